//! The body of an upstream's answer, read piece by piece under its time-outs and size limit.

use std::io;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use waltz_exchange::anthropic;
use waltz_exchange::openai::Answer;
use waltz_exchange::openai::answer::AnswerError;

use super::{CallError, Protocol, UpstreamSettings};

/// The pieces of an answer as they come.
#[derive(Debug)]
pub(crate) enum Pieces {
    /// From a server.
    Server(Incoming),
    /// From a model in this process.
    Local(mpsc::Receiver<io::Result<Bytes>>),
}

impl Pieces {
    /// The next piece, or `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::Server(body) => loop {
                let Some(frame) = body.frame().await else { return Ok(None) };
                // Trailers say nothing that is asked for.
                if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                    return Ok(Some(data));
                }
            },
            Self::Local(pieces) => pieces.recv().await.transpose(),
        }
    }
}

/// A body that is still arriving. Dropping it closes the call and frees its slot.
#[derive(Debug)]
pub struct Body {
    upstream: String,
    protocol: Protocol,
    headers: HeaderMap,
    pieces: Pieces,
    deadline: Instant,
    chunk_timeout: Duration,
    left: usize,
    _slot: OwnedSemaphorePermit,
}

impl Body {
    pub(super) fn new(
        upstream: String,
        response: http::Response<Pieces>,
        slot: OwnedSemaphorePermit,
        deadline: Instant,
        settings: &UpstreamSettings,
    ) -> Self {
        let UpstreamSettings { protocol, chunk_timeout, max_answer_bytes, .. } = settings;
        let (http::response::Parts { headers, .. }, pieces) = response.into_parts();
        Self {
            upstream,
            protocol: *protocol,
            headers,
            pieces,
            deadline,
            chunk_timeout: *chunk_timeout,
            left: *max_answer_bytes,
            _slot: slot,
        }
    }

    /// The upstream's name.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// The form it is in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Reads the whole body as an answer, whatever form it is in.
    pub async fn answer(self) -> Result<Answer, CallError> {
        let (upstream, protocol) = (self.upstream.clone(), self.protocol);
        let bytes = self.collect().await?;
        parse_answer(protocol, &bytes).map_err(|error| CallError::Unusable(upstream, error.to_string()))
    }

    /// The answer's headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether the answer is an event stream.
    pub fn is_event_stream(&self) -> bool {
        self.media_type().eq_ignore_ascii_case(b"text/event-stream")
    }

    /// Whether the answer is of a kind that can be read. One that does not say is read as JSON.
    pub(super) fn is_usable(&self) -> bool {
        let media_type = self.media_type();
        let is_json = media_type.is_empty()
            || media_type.eq_ignore_ascii_case(b"application/json")
            || media_type.last_chunk().is_some_and(|end: &[u8; 5]| end.eq_ignore_ascii_case(b"+json"));
        is_json || self.is_event_stream()
    }

    /// The content type without its parameters.
    fn media_type(&self) -> &[u8] {
        let value =
            self.headers.get(http::header::CONTENT_TYPE).map_or(&[] as &[u8], |value| value.as_bytes());
        value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
    }

    /// When the next piece must be here.
    pub fn patience(&self) -> Instant {
        self.deadline.min(Instant::now() + self.chunk_timeout)
    }

    /// The next piece, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        self.next_until(self.patience()).await
    }

    /// The next piece, or `None` at the end, if it is here by a given time.
    pub async fn next_until(&mut self, until: Instant) -> Result<Option<Bytes>, CallError> {
        let piece = match timeout_at(until, self.pieces.next()).await {
            Err(_) => return Err(CallError::Timeout(self.upstream.clone(), "the answer stalled")),
            Ok(Err(error)) => {
                tracing::debug!(upstream = %self.upstream, error = %error, "answer broke off");
                return Err(CallError::BrokenOff(self.upstream.clone()));
            }
            Ok(Ok(piece)) => piece,
        };
        if let Some(piece) = &piece {
            let Some(left) = self.left.checked_sub(piece.len()) else {
                return Err(CallError::Unusable(self.upstream.clone(), "the answer is too long".to_owned()));
            };
            self.left = left;
        }
        Ok(piece)
    }

    /// The whole body.
    pub async fn collect(mut self) -> Result<Bytes, CallError> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first.as_ref());
        whole.extend_from_slice(&second);
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The beginning of the body, for error messages; what fails to arrive is left out.
    pub(super) async fn head(mut self, limit: usize) -> Bytes {
        let mut head = BytesMut::new();
        while head.len() < limit {
            match self.next().await {
                Ok(Some(piece)) => head.extend_from_slice(&piece[..piece.len().min(limit - head.len())]),
                Ok(None) | Err(_) => break,
            }
        }
        head.freeze()
    }
}

/// Reads an answer in the form of an upstream.
pub fn parse_answer(protocol: Protocol, bytes: &[u8]) -> Result<Answer, AnswerError> {
    match protocol {
        Protocol::OpenAi => Answer::parse(bytes),
        Protocol::Anthropic => anthropic::answer::from_message(bytes, seconds_now()),
    }
}

/// Anthropic's form says no time, and OpenAI's clients expect one.
pub fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
