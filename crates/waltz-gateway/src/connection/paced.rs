//! An answer on HTTP/2, given out in small pieces. Each stream has a window of its own there, so that one
//! that is shut stops no write of the connection; the pieces show which answers wait, and since when.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The largest piece: what one answer can leave behind a window once its body has ended.
const PIECE: usize = 16 * 1024;

/// The answers of one connection of which a piece waits for its window.
#[derive(Debug, Default)]
pub(super) struct Untaken {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    since: HashMap<u64, Instant>,
}

impl Untaken {
    /// How long the slowest answer has waited.
    pub(super) fn longest(&self) -> Duration {
        self.waiting().since.values().map(Instant::elapsed).max().unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that says when it is waited for.
pub(super) struct Paced {
    body: Body,
    /// What is left of the frame that is being given out.
    rest: Bytes,
    number: u64,
    untaken: Arc<Untaken>,
}

impl Paced {
    pub(super) fn new(body: Body, untaken: Arc<Untaken>) -> Self {
        let number = {
            let mut waiting = untaken.waiting();
            waiting.next += 1;
            waiting.next
        };
        Self { body, rest: Bytes::new(), number, untaken }
    }
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    /// Called again only when the piece before was let out.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let number = self.number;
        self.untaken.waiting().since.remove(&number);
        while self.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            match frame?.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.untaken.waiting().since.insert(number, Instant::now());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.untaken.waiting().since.remove(&self.number);
    }
}
