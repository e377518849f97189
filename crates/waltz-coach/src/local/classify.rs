//! The neural judge's questions to a local language model: an adapter of it reads an exchange, and heads on its last
//! state answer. They wait in the model's bounded queue and are read in batches on its thread.

use std::path::Path;
use std::sync::Arc;

use tokio::time::Instant;
use waltz_model::{Adapter, Pooling, QUESTIONS, Turns};

use super::{Loaded, LocalModel, Trouble, apart};

/// An adapter with the neural judge's heads, for one model.
#[derive(Debug)]
pub(crate) struct Classifier {
    adapter: Arc<Adapter>,
    pooling: Pooling,
    turns: Turns,
}

impl LocalModel {
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
            match &adapter.note().heads {
                Some(heads) if heads.names == QUESTIONS => {
                    let (pooling, turns) = (heads.pooling, Turns::new(&language.tokenizer));
                    Ok(Classifier { adapter: Arc::new(adapter), pooling, turns })
                }
                _ => Err(format!("it does not answer {}", QUESTIONS.join(", "))),
            }
        };
        tokio::task::spawn_blocking(open).await.unwrap_or_else(|_| Err("opening it failed".to_owned()))
    }

    /// The logits of all questions about a prompt alone, or about a prompt and its answer.
    pub(crate) async fn classify(
        &self,
        classifier: &Arc<Classifier>,
        prompt: String,
        answer: Option<String>,
        deadline: Instant,
    ) -> Result<Vec<f32>, Trouble> {
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
        let tokens = tokens.await?;
        let (adapter, deadline) = (Some(Arc::clone(&classifier.adapter)), Some(deadline.into_std()));
        let state = language.room.encode(tokens, classifier.pooling, adapter, deadline).await?;
        let logits =
            classifier.adapter.classify(&state).map_err(|error| Trouble::Broken(error.to_string()))?;
        logits.ok_or_else(|| Trouble::Broken("it has no heads".to_owned()))
    }
}
