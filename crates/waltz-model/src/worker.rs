//! A room with one model in it: many ask at once, one thread answers all of them in batches.
//!
//! [`Room`] is a handle for any thread or task. Requests wait in a bounded queue and join the batch between
//! two steps (`worker/batch.rs`); answers come back through channels that are large enough never to hold
//! up the batch. A caller that drops its receiver cancels its request.

mod batch;
mod sequence;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::generate::{Ask, Piece, Pooling};
use crate::{Adapter, Error, Model, Tokenizer};
use batch::Batch;
use sequence::Job;

/// How much a room may take on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomSettings {
    /// Longest prompt and answer together, in tokens; at most the model's own context.
    pub context: usize,
    /// Most requests that are answered at once.
    pub running: usize,
    /// Most requests that wait.
    pub queue: usize,
    /// Most tokens that all running requests may remember together: bounds memory. At least `context`.
    pub memory: usize,
    /// Tokens of earlier prompts that are remembered for prompts that begin alike.
    pub prefixes: usize,
    /// Threads that compute; 0 means one per core.
    pub threads: usize,
}

impl Default for RoomSettings {
    fn default() -> Self {
        Self { context: 2_048, running: 16, queue: 64, memory: 8_192, prefixes: 2_048, threads: 0 }
    }
}

/// Why a request was not taken on, or not finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue is full; later it may not be.
    #[error("the model is busy: {waiting} requests wait already")]
    Busy {
        /// How many wait.
        waiting: usize,
    },
    /// The prompt has no tokens.
    #[error("the prompt is empty; expected at least one token")]
    EmptyPrompt,
    /// Prompt and answer do not fit.
    #[error("prompt of {prompt} and answer of {answer} tokens together exceed the context of {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Most tokens of the answer.
        answer: usize,
        /// What fits.
        context: usize,
    },
    /// An answer of no tokens was asked for.
    #[error("the answer may have 0 tokens; expected at least 1")]
    NoTokens,
    /// The prompt has a token that the model does not know.
    #[error("token {token} is not in the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// A value of [`crate::Sampling`] is out of range.
    #[error("{0}")]
    Sampling(String),
    /// The adapter was made for another model.
    #[error("the adapter was made for the model file {adapter}, and this is {model}")]
    Adapter {
        /// SHA-256 of the model file that it belongs to.
        adapter: String,
        /// SHA-256 of this model's file.
        model: String,
    },
    /// What the model computed cannot be used.
    #[error("the model's numbers are not finite: its file or its adapter is not sound")]
    NotFinite,
    /// The time was up.
    #[error("the model did not finish in time")]
    Deadline,
    /// The room was closed.
    #[error("the model has stopped")]
    Stopped,
}

/// A handle on a model that is ready to answer. When the last one is dropped, the room closes and ends the
/// answers that are still being written.
#[derive(Clone, Debug)]
pub struct Room {
    door: Arc<Door>,
}

#[derive(Debug)]
struct Door {
    queue: Arc<Queue>,
    context: usize,
    width: usize,
    vocabulary: usize,
    /// SHA-256 of the model's file.
    base: String,
}

/// What waits to be answered.
#[derive(Debug)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Room {
    /// Starts the thread that answers.
    pub fn start(
        model: Arc<Model>,
        tokenizer: Arc<Tokenizer>,
        settings: RoomSettings,
    ) -> Result<Self, Error> {
        let vocabulary = model.shape().vocabulary;
        if tokenizer.vocabulary() != vocabulary {
            return Err(Error::Vocabulary { model: vocabulary, tokenizer: tokenizer.vocabulary() });
        }
        let base = model.base().to_owned();
        let context = settings.context.min(settings.memory).min(model.shape().context);
        let width = model.shape().width;
        let queue = Queue { state: Mutex::default(), changed: Condvar::new(), limit: settings.queue };
        let queue = Arc::new(queue);
        let waiting = Arc::clone(&queue);
        let work = move || {
            let _closing = Closing(&waiting);
            Batch::new(model, tokenizer, settings).run(&waiting);
        };
        thread::Builder::new().name("model".to_owned()).spawn(work).map_err(Error::Thread)?;
        Ok(Self { door: Arc::new(Door { queue, context, width, vocabulary, base }) })
    }

    /// Asks for text. The answer ends with [`Piece::End`]; if the channel closes without it, the room
    /// broke down.
    pub fn ask(&self, ask: Ask) -> Result<mpsc::Receiver<Piece>, Refusal> {
        if ask.max_tokens == 0 {
            return Err(Refusal::NoTokens);
        }
        self.check(&ask.tokens, ask.max_tokens, ask.adapter.as_deref())?;
        ask.sampling.check().map_err(Refusal::Sampling)?;
        // A text per token, what was held back, and the end.
        let (pieces, receiver) = mpsc::channel(ask.max_tokens + 2);
        self.door.queue.push(Job::write(ask, self.door.vocabulary, pieces))?;
        Ok(receiver)
    }

    /// Turns tokens into one vector as wide as the model: its numbers after the last norm, pooled.
    pub async fn encode(
        &self,
        tokens: Vec<u32>,
        pooling: Pooling,
        adapter: Option<Arc<Adapter>>,
        deadline: Option<Instant>,
    ) -> Result<Vec<f32>, Refusal> {
        self.check(&tokens, 0, adapter.as_deref())?;
        let (reply, receiver) = oneshot::channel();
        self.door.queue.push(Job::encode(tokens, pooling, adapter, deadline, reply))?;
        receiver.await.unwrap_or(Err(Refusal::Stopped))
    }

    /// Whether the thread that answers is there still. After a panic it is not.
    pub fn is_open(&self) -> bool {
        !self.door.queue.lock().closed
    }

    /// Longest prompt and answer together, in tokens.
    pub fn context(&self) -> usize {
        self.door.context
    }

    /// Numbers of the vectors that [`Room::encode`] makes.
    pub fn width(&self) -> usize {
        self.door.width
    }

    fn check(&self, tokens: &[u32], answer: usize, adapter: Option<&Adapter>) -> Result<(), Refusal> {
        let Door { context, vocabulary, .. } = *self.door;
        if let Some(origin) = adapter.map(|adapter| &adapter.note().origin)
            && origin.base != self.door.base
        {
            return Err(Refusal::Adapter { adapter: origin.base.clone(), model: self.door.base.clone() });
        }
        let prompt = tokens.len();
        if prompt == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if prompt.saturating_add(answer) > context {
            return Err(Refusal::TooLong { prompt, answer, context });
        }
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => Err(Refusal::UnknownToken { token: *token, vocabulary }),
            None => Ok(()),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn push(&self, job: Job) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refusal::Stopped);
        }
        if state.jobs.len() >= self.limit {
            return Err(Refusal::Busy { waiting: state.jobs.len() });
        }
        state.jobs.push_back(job);
        self.changed.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when the thread ends, also by a panic, so that nobody waits in vain.
struct Closing<'a>(&'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.jobs.clear();
    }
}

#[cfg(test)]
#[path = "worker/tests.rs"]
mod tests;
