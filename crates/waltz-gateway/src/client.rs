//! The line to one client: the head of the reply goes first, then frames of a stream. It knows when
//! the client hung up, and keeps a held stream alive with comments.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waltz_exchange::sse;
use waltz_screen::Vault;

use crate::dialect::Dialect;
use crate::personal::Restoring;

/// The head of a reply.
#[derive(Clone, Debug)]
pub enum Head {
    /// A whole reply.
    Whole(StatusCode, HeaderMap, Bytes),
    /// Frames follow.
    Stream(HeaderMap),
}

/// Why an exchange cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The client hung up.
    Gone,
    /// The gateway must stop, and the time for open exchanges is over.
    Stopping,
}

/// The exchange's end of the line.
#[derive(Debug)]
pub struct Client {
    head: Option<oneshot::Sender<Head>>,
    frames: mpsc::Sender<Bytes>,
    heartbeat: Duration,
    patience: Duration,
    last_frame: Mutex<Instant>,
    streaming: bool,
    stopping: CancellationToken,
    dialect: Dialect,
    restoring: Option<Mutex<Restoring>>,
}

/// The HTTP handler's end of the line.
#[derive(Debug)]
pub struct Line {
    /// Where the head arrives.
    pub head: oneshot::Receiver<Head>,
    /// Where frames arrive.
    pub frames: mpsc::Receiver<Bytes>,
}

/// A new line. The frame queue is bounded: a slow reader slows its own upstream and nobody else.
pub fn line(
    heartbeat: Duration,
    patience: Duration,
    stopping: CancellationToken,
    dialect: Dialect,
) -> (Client, Line) {
    let (head_sender, head) = oneshot::channel();
    let (frame_sender, frames) = mpsc::channel(16);
    let client = Client {
        head: Some(head_sender),
        frames: frame_sender,
        heartbeat,
        patience,
        last_frame: Mutex::new(Instant::now()),
        streaming: false,
        stopping,
        dialect,
        restoring: None,
    };
    (client, Line { head, frames })
}

impl Client {
    /// Whether the head of a stream was sent.
    pub fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Begins a stream. A comment goes out with the head, so that the client sees a first byte at once.
    pub async fn begin_stream(&mut self, headers: HeaderMap) -> Result<(), Interrupted> {
        let Some(head) = self.head.take() else { return Ok(()) };
        head.send(Head::Stream(headers)).map_err(|_| Interrupted::Gone)?;
        self.streaming = true;
        self.frame(Bytes::from_static(sse::HOLD.as_bytes())).await
    }

    /// The form in which the client speaks.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// From now on, values that were taken out of the request go back into the chunks of its answer.
    pub fn restore_from(&mut self, vault: &Arc<Vault>, is_json: bool) {
        if !vault.is_empty() {
            self.restoring = Some(Mutex::new(Restoring::new(Arc::clone(vault), is_json)));
        }
    }

    /// Sends a chunk of a stream in the client's form.
    pub async fn chunk(&self, data: &str) -> Result<(), Interrupted> {
        let restored = self
            .restoring
            .as_ref()
            .map(|restoring| restoring.lock().unwrap_or_else(PoisonError::into_inner).chunk(data));
        for frame in self.dialect.chunk(restored.as_deref().unwrap_or(data)) {
            self.frame(frame).await?;
        }
        Ok(())
    }

    /// Sends a frame of a stream. A client that takes nothing for too long counts as gone: it must not hold
    /// an upstream for ever.
    pub async fn frame(&self, frame: Bytes) -> Result<(), Interrupted> {
        tokio::select! {
            biased;
            sent = self.frames.send(frame) => sent.map_err(|_| Interrupted::Gone)?,
            () = tokio::time::sleep(self.patience) => return Err(Interrupted::Gone),
            () = self.stopping.cancelled() => return Err(Interrupted::Stopping),
        }
        self.note_beat();
        Ok(())
    }

    fn note_beat(&self) {
        *self.last_frame.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Sends a whole reply.
    pub fn whole(&mut self, status: StatusCode, headers: HeaderMap, body: Bytes) -> Result<(), Interrupted> {
        match self.head.take() {
            Some(head) => head.send(Head::Whole(status, headers, body)).map_err(|_| Interrupted::Gone),
            None => Ok(()),
        }
    }

    /// Waits for work while the client waits: ends early when the client hangs up or the gateway must stop,
    /// and sends a comment every so often when a stream has begun.
    ///
    /// The work stays where it is pinned: a future that is handed over takes its room twice.
    pub async fn hold<W: Future>(&self, mut work: Pin<&mut W>) -> Result<W::Output, Interrupted> {
        tokio::select! {
            biased;
            done = &mut work => Ok(done),
            () = self.frames.closed() => Err(Interrupted::Gone),
            () = self.stopping.cancelled() => Err(Interrupted::Stopping),
            never = self.beat(), if self.streaming => match never {},
        }
    }

    /// Comments on a stream for as long as nothing else is sent.
    async fn beat(&self) -> Infallible {
        loop {
            let last = *self.last_frame.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::time::sleep_until(last + self.heartbeat).await;
            // A full queue means that the client has enough to read; no comment is needed then.
            self.frames.try_send(Bytes::from_static(sse::HOLD.as_bytes())).ok();
            self.note_beat();
        }
    }
}
