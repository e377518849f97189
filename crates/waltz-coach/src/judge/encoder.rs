//! Level 2a: an encoder that is part of the program. It reads everything that levels 0 and 1 do not settle, on threads
//! of its own, one core a text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use waltz_exchange::VerdictState;
use waltz_model::{Encoder, EncoderTokenizer, Threads};

use super::said::{Known, Said, fingerprint};

/// Level 2a, ready to be asked. Its weights lie in the program and are read page by page as questions need them.
#[derive(Debug)]
pub struct EncoderJudge {
    reader: Arc<OnceLock<Result<Reader, String>>>,
    /// Texts that are read at once: one for each core.
    seats: Arc<Semaphore>,
    /// How long a question may take, waiting included.
    limit: Duration,
    known: Mutex<Known>,
    asked: AtomicU64,
}

#[derive(Debug)]
struct Reader {
    encoder: Encoder,
    tokenizer: EncoderTokenizer,
    threads: Threads,
}

impl Reader {
    fn open() -> Result<Self, String> {
        let told = |error: waltz_model::Error| error.to_string();
        let (encoder, tokenizer) =
            (Encoder::embedded().map_err(told)?, EncoderTokenizer::embedded().map_err(told)?);
        Ok(Self { encoder, tokenizer, threads: Threads::new(1) })
    }

    fn read(&self, prompt: &str, answer: Option<&str>) -> Option<Said> {
        let excerpt = match answer {
            None => self.tokenizer.prompt(prompt),
            Some(answer) => self.tokenizer.answer(prompt, answer),
        };
        Said::from_logits(&self.encoder.classify(&self.threads, &excerpt), excerpt.is_whole)
    }
}

impl EncoderJudge {
    /// The encoder that is part of the program.
    pub fn new(limit: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            reader: Arc::default(),
            seats: Arc::new(Semaphore::new(cores)),
            limit,
            known: Mutex::default(),
            asked: AtomicU64::new(0),
        }
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
        let seat = tokio::time::timeout_at(deadline, Arc::clone(&self.seats).acquire_owned());
        let Ok(Ok(seat)) = seat.await else { return Err(VerdictState::Timeout) };
        let reader = Arc::clone(&self.reader);
        let (prompt, answer) = (prompt.to_owned(), answer.map(str::to_owned));
        // Milliseconds of arithmetic have no place on a thread that serves.
        let read = tokio::task::spawn_blocking(move || {
            let said = match reader.get_or_init(Reader::open) {
                Ok(reader) => reader.read(&prompt, answer.as_deref()).ok_or("it has other heads".to_owned()),
                Err(reason) => Err(reason.clone()),
            };
            drop(seat);
            said
        });
        match read.await {
            Ok(Ok(said)) => {
                self.known().insert(key, said);
                Ok(said)
            }
            Ok(Err(reason)) => {
                tracing::error!(reason, "the encoder cannot be read");
                Err(VerdictState::Unavailable)
            }
            Err(_) => Err(VerdictState::Unavailable),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
