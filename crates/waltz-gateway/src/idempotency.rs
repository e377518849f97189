//! `Idempotency-Key`: a request that comes twice, at once or later, gets one exchange and the same answer.
//! Answers are kept in this process, for a while and within a limit; a request without the header never
//! comes here. The router asks before it begins an exchange.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;
use waltz_exchange::id;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_exchange::record::Decision;

use crate::client::{Head, Line};

/// The header.
pub const HEADER: &str = "idempotency-key";

/// What an entry counts beside its answer, so that the limit on bytes limits their number too.
const ENTRY_BYTES: usize = 1024;

/// The longest key.
const MAX_KEY_BYTES: usize = 255;

type Digest = [u8; 32];

/// For how long and within which limit answers are kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// How long an answer is kept after its end.
    pub time: Duration,
    /// Bytes of all answers, each with a fixed addition.
    pub bytes: usize,
}

/// The answers that are kept, and those under way.
#[derive(Debug, Default)]
pub struct Answers {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Digest, Entry>,
    /// Entries whose answer has ended, oldest first.
    ended: VecDeque<(Instant, Digest)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Of the request.
    body: Digest,
    answer: Reader,
    bytes: usize,
}

/// An answer as far as it has come.
#[derive(Debug, Default)]
pub struct Answer {
    /// The status and the headers, and the body of an answer that is no stream.
    pub head: Option<Head>,
    /// The frames of a stream.
    pub frames: Vec<Bytes>,
    /// Nothing more comes.
    pub is_over: bool,
}

/// Where an answer can be read, from its beginning, by any number of clients.
pub type Reader = watch::Receiver<Answer>;

/// A request that has to be answered; whoever holds it writes the answer down.
#[derive(Debug)]
pub struct First {
    name: Digest,
    writer: watch::Sender<Answer>,
    keep: Keep,
}

/// The name of a request that has a key: its tenant, path and key.
pub fn name(headers: &HeaderMap, tenant: &str, path: &str) -> Result<Option<Digest>, ApiError> {
    let mut keys = headers.get_all(HEADER).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() || !(1..=MAX_KEY_BYTES).contains(&key.len()) {
        let message = format!("there may be one header `Idempotency-Key` of 1 to {MAX_KEY_BYTES} bytes");
        return Err(ApiError::invalid(message, Some(HEADER)).with_code("invalid_idempotency_key"));
    }
    // None of the parts can hold a line break.
    let whole = [tenant.as_bytes(), path.as_bytes(), key.as_bytes()].join(&b'\n');
    Ok(Some(id::sha256(&whole)))
}

impl Answers {
    /// A request that came for the first time, with the place for its answer; or the answer of its twin.
    pub fn enter(&self, name: Digest, body: &[u8], keep: Keep) -> Result<(Option<First>, Reader), ApiError> {
        let body = id::sha256(body);
        let mut table = self.table();
        table.forget(keep);
        if let Some(twin) = table.entries.get(&name) {
            return if twin.body == body { Ok((None, twin.answer.clone())) } else { Err(reused()) };
        }
        if table.bytes + ENTRY_BYTES > keep.bytes {
            return Err(full());
        }
        let (writer, answer) = watch::channel(Answer::default());
        table.bytes += ENTRY_BYTES;
        table.entries.insert(name, Entry { body, answer: answer.clone(), bytes: ENTRY_BYTES });
        Ok((Some(First { name, writer, keep }), answer))
    }

    /// Writes an answer down as it comes, whether anybody still waits for it or not. `terminal` ends a
    /// stream that is whole.
    pub async fn write(&self, first: First, line: Line, terminal: Bytes) {
        let First { name, writer, keep } = first;
        let kept = self.copy(name, &writer, line, &terminal).await;
        {
            let mut table = self.table();
            if kept {
                table.ended.push_back((Instant::now(), name));
                table.forget(keep);
            } else {
                table.remove(&name);
            }
        }
        writer.send_modify(|answer| answer.is_over = true);
    }

    /// Returns whether the answer is one to keep.
    async fn copy(&self, name: Digest, writer: &watch::Sender<Answer>, line: Line, terminal: &Bytes) -> bool {
        let Line { head, mut frames } = line;
        let Ok(head) = head.await else { return false };
        let (is_final, is_passing) = match &head {
            Head::Whole(status, headers, body) => {
                self.table().grow(&name, body.len());
                (is_final(*status), is_passing(headers))
            }
            Head::Stream(headers) => (false, is_passing(headers)),
        };
        writer.send_modify(|answer| answer.head = Some(head));
        let mut is_whole = false;
        while let Some(frame) = frames.recv().await {
            is_whole = frame == *terminal;
            self.table().grow(&name, frame.len());
            writer.send_modify(|answer| answer.frames.push(frame));
        }
        (is_final || is_whole) && !is_passing
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Lets go of answers that are old, and of the oldest while there are too many bytes. Answers under way
    /// stay: clients read them.
    fn forget(&mut self, keep: Keep) {
        while let Some((ended, name)) = self.ended.front().copied() {
            if ended.elapsed() < keep.time && self.bytes + ENTRY_BYTES <= keep.bytes {
                break;
            }
            self.ended.pop_front();
            self.remove(&name);
        }
    }

    fn grow(&mut self, name: &Digest, bytes: usize) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.bytes += bytes;
            self.bytes += bytes;
        }
    }

    fn remove(&mut self, name: &Digest) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Whether the same request would be answered the same way again.
fn is_final(status: StatusCode) -> bool {
    !status.is_server_error() && !matches!(status.as_u16(), 408 | 409 | 429)
}

/// Whether the failure policy answered because the judge could not: another time it may be able to.
fn is_passing(headers: &HeaderMap) -> bool {
    headers.get("x-waltz-decision").is_some_and(|decision| decision == Decision::Degraded.as_str())
}

fn reused() -> ApiError {
    let message =
        "this `Idempotency-Key` came with another request body before; use a new key for a new request";
    let mut error = ApiError::invalid(message, Some(HEADER)).with_code("idempotency_key_reused");
    error.status = 422;
    error
}

fn full() -> ApiError {
    let message =
        "answers under way fill the room for requests with an `Idempotency-Key` (`idempotency.max_bytes`)";
    ApiError::upstream(503, "idempotency_full", message, Retry::After(1_000))
}

#[cfg(test)]
mod tests;
