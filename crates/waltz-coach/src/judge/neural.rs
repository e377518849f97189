//! Level 2b: the local language model with trained heads. It is asked where level 2a is not sure.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waltz_exchange::VerdictState;

use super::said::{Known, Said, fingerprint};
use crate::local::{Classifier, LocalModel, Trouble};

/// How long after a failed opening the next one may begin: it reads megabytes.
const PAUSE: Duration = Duration::from_secs(10);

/// Level 2b, ready to be asked. The model is loaded when the first question comes.
#[derive(Debug)]
pub struct NeuralJudge {
    model: Arc<LocalModel>,
    weights: Option<PathBuf>,
    /// How long a question may take.
    limit: Duration,
    opened: Arc<tokio::sync::Mutex<Option<Opening>>>,
    known: Mutex<Known>,
    asked: AtomicU64,
}

/// An attempt to open the weights: when it ended, and how.
type Opening = (Instant, Result<Arc<Classifier>, String>);

impl NeuralJudge {
    /// A judge over a local language model: with weights of a file, or with those that are part of the program.
    pub fn new(model: Arc<LocalModel>, weights: Option<PathBuf>, limit: Duration) -> Self {
        Self {
            model,
            weights,
            limit,
            opened: Arc::default(),
            known: Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// The language model whose body it is.
    pub fn model(&self) -> &Arc<LocalModel> {
        &self.model
    }

    /// What its answers hang on: the model, and whose weights.
    pub fn identity(&self) -> String {
        let weights = self.weights.as_ref().map_or("embedded".into(), |path| path.display().to_string());
        format!("{} {weights}", self.model.identity())
    }

    /// Loads the model and the weights if they are not there.
    pub async fn warm(&self) -> Result<(), String> {
        self.classifier().await.map(|_| ())
    }

    /// The weights, opened. Whoever waits for them may give up; opening goes on for the next one.
    async fn classifier(&self) -> Result<Arc<Classifier>, String> {
        let mut opened = Arc::clone(&self.opened).lock_owned().await;
        match &*opened {
            Some((_, Ok(classifier))) => return Ok(Arc::clone(classifier)),
            Some((ended, Err(reason))) if ended.elapsed() < PAUSE => return Err(reason.clone()),
            _ => {}
        }
        let (model, weights) = (Arc::clone(&self.model), self.weights.clone());
        let opening = tokio::spawn(async move {
            let outcome = model.classifier(weights.as_deref()).await.map(Arc::new);
            *opened = Some((Instant::now(), outcome.clone()));
            outcome
        });
        opening.await.unwrap_or_else(|_| Err("opening it was given up".to_owned()))
    }

    /// Questions that were not known before.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asks about a prompt alone, or about a prompt and its answer.
    pub(super) async fn ask(&self, prompt: &str, answer: Option<&str>) -> Result<Said, VerdictState> {
        let key = fingerprint(prompt, answer);
        if let Some(said) = self.known().get(&key) {
            return Ok(said);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.limit;
        let asked = async {
            let classifier = self.classifier().await.map_err(Trouble::Broken)?;
            self.model.classify(&classifier, prompt.to_owned(), answer.map(str::to_owned), deadline).await
        };
        let (logits, is_whole) = match tokio::time::timeout_at(deadline, asked).await {
            Err(_) => return Err(VerdictState::Timeout),
            Ok(Err(trouble)) => {
                tracing::warn!(%trouble, "the neural judge gave no answer");
                return Err(VerdictState::Unavailable);
            }
            Ok(Ok(read)) => read,
        };
        let Some(said) = Said::from_logits(&logits, is_whole) else { return Err(VerdictState::Unavailable) };
        self.known().insert(key, said);
        Ok(said)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "neural/tests.rs"]
mod tests;
