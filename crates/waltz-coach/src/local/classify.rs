//! The neural judge's questions to a local language model: an adapter of it reads an exchange, and heads on its last
//! state answer. They wait in the model's bounded queue and are read in batches on its thread.

use std::path::Path;
use std::sync::Arc;

use tokio::time::Instant;
use waltz_model::{Adapter, Excerpt, Gguf, Pooling, QUESTIONS, Shape, Turns};

use super::{Files, Loaded, LocalModel, Trouble, apart};

/// An adapter with the neural judge's heads, for one model.
#[derive(Debug)]
pub(crate) struct Classifier {
    adapter: Arc<Adapter>,
    pooling: Pooling,
    turns: Turns,
}

impl Classifier {
    /// SHA-256 of what the weights hold.
    pub(super) fn content(&self) -> &str {
        &self.adapter.note().content
    }
}

impl LocalModel {
    /// Whether a file holds a neural judge for this model, or why not. The model's file is read as a whole: call it on a
    /// thread that may wait.
    pub fn check_judge(&self, weights: &Path) -> Result<(), String> {
        let Files::Language { gguf, .. } = &self.files else {
            return Err(format!("`{}` is no language model", self.name));
        };
        let told = |error: waltz_model::Error| error.to_string();
        let gguf = Gguf::open(&gguf.path).map_err(told)?;
        let shape = Shape::from_gguf(&gguf).map_err(told)?;
        answers_all(&Adapter::open(weights, &shape, &gguf.sha256()).map_err(told)?).map(|_| ())
    }

    /// Opens the neural judge: a file, or the one that is part of the program. It must have been trained for this
    /// model.
    pub(crate) async fn classifier(&self, weights: Option<&Path>) -> Result<Classifier, String> {
        let Loaded::Language(language) = self.ready().await? else {
            return Err(format!("`{}` is no language model", self.name));
        };
        let weights = weights.map(Path::to_owned);
        let open = move || {
            let (shape, base) = (&language.shape, &language.base);
            let adapter = match &weights {
                Some(path) => Adapter::open(path, shape, base),
                None => Adapter::neural_judge(shape, base),
            };
            let adapter = adapter.map_err(|error| error.to_string())?;
            let pooling = answers_all(&adapter)?;
            let turns = Turns::new(&language.tokenizer);
            Ok(Classifier { adapter: Arc::new(adapter), pooling, turns })
        };
        tokio::task::spawn_blocking(open).await.unwrap_or_else(|_| Err("opening it failed".to_owned()))
    }

    /// The logits of all questions about a prompt alone, or about a prompt and its answer, and whether all of it was read.
    pub(crate) async fn classify(
        &self,
        classifier: &Arc<Classifier>,
        prompt: String,
        answer: Option<String>,
        deadline: Instant,
    ) -> Result<(Vec<f32>, bool), Trouble> {
        let Loaded::Language(language) = self.ready().await.map_err(Trouble::Broken)? else {
            return Err(Trouble::Broken(format!("`{}` is no language model", self.name)));
        };
        let (reader, judge) = (Arc::clone(&language), Arc::clone(classifier));
        let tokens = apart(&language.seats, move || {
            Ok(match answer {
                None => judge.turns.prompt(&reader.tokenizer, &prompt),
                Some(answer) => judge.turns.answer(&reader.tokenizer, &prompt, &answer),
            })
        });
        let Excerpt { tokens, is_whole } = tokens.await?;
        let (adapter, deadline) = (Some(Arc::clone(&classifier.adapter)), Some(deadline.into_std()));
        let state = language.room.encode(tokens, classifier.pooling, adapter, deadline).await?;
        let logits =
            classifier.adapter.classify(&state).map_err(|error| Trouble::Broken(error.to_string()))?;
        let logits = logits.ok_or_else(|| Trouble::Broken("it has no heads".to_owned()))?;
        Ok((logits, is_whole))
    }
}

/// How the heads of an adapter read a text, if they are the neural judge's.
fn answers_all(adapter: &Adapter) -> Result<Pooling, String> {
    match &adapter.note().heads {
        Some(heads) if heads.names == QUESTIONS => Ok(heads.pooling),
        _ => Err(format!("it does not answer {}", QUESTIONS.join(", "))),
    }
}
