//! The form in which a client speaks: OpenAI's or Anthropic's. Inside, everything is OpenAI's form; this
//! is where answers, stream chunks and errors take the client's.

use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use waltz_exchange::anthropic::stream::{Encoder, Frame, error_event, message_stop};
use waltz_exchange::anthropic::{self, request};
use waltz_exchange::openai::{Answer, ApiError, ChatRequest};
use waltz_exchange::{json, sse};

use crate::api::body;
use crate::reply;

/// The path of Anthropic's interface.
pub const MESSAGES: &str = "/v1/messages";

/// The form in which a client speaks.
#[derive(Debug)]
pub enum Dialect {
    /// Chat completions.
    OpenAi,
    /// Messages. A stream is encoded piece by piece; the encoder is gone once its end was written.
    Anthropic(Mutex<Option<Encoder>>),
}

impl Dialect {
    /// The form of a path.
    pub fn of(path: &str) -> Self {
        // What is asked for below the path is an Anthropic client's too, whether it is there or not.
        let below = path.strip_prefix(MESSAGES);
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            Self::Anthropic(Mutex::new(Some(Encoder::default())))
        } else {
            Self::OpenAi
        }
    }

    /// The form of a path that clients of both forms ask for, or that is not there: the headers tell who asks.
    pub fn spoken(path: &str, headers: &HeaderMap) -> Self {
        let is_anthropic = headers.contains_key("anthropic-version")
            || (headers.contains_key("x-api-key") && !headers.contains_key(AUTHORIZATION));
        Self::of(if is_anthropic { MESSAGES } else { path })
    }

    /// One chunk of a stream, as the frames that the client expects.
    pub fn chunk(&self, data: &str) -> Vec<Bytes> {
        let Self::Anthropic(encoder) = self else { return vec![Bytes::from(sse::encode(data))] };
        let mut encoder = encoder.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = json::parse_answer(data.as_bytes())
            .ok()
            .zip(encoder.as_mut())
            .map(|(chunk, encoder)| encoder.push(chunk));
        written(frames)
    }

    /// What a stream still needs before its terminal frame.
    pub fn ending(&self) -> Vec<Bytes> {
        let Self::Anthropic(encoder) = self else { return Vec::new() };
        let encoder = encoder.lock().unwrap_or_else(PoisonError::into_inner).take();
        written(encoder.map(Encoder::finish))
    }

    /// The terminal frame of a stream.
    pub fn terminal(&self) -> Bytes {
        match self {
            Self::OpenAi => Bytes::from_static(sse::DONE.as_bytes()),
            Self::Anthropic(_) => Bytes::from(message_stop().encode()),
        }
    }

    /// An error inside a stream.
    pub fn error_frame(&self, error: &ApiError) -> Bytes {
        match self {
            Self::OpenAi => Bytes::from(sse::encode(&error.body().to_string())),
            Self::Anthropic(_) => Bytes::from(error_event(error).encode()),
        }
    }

    /// An error as a whole reply.
    pub fn error_parts(&self, error: &ApiError) -> (StatusCode, HeaderMap, Bytes) {
        let (status, headers, body) = reply::error_parts(error);
        match self {
            Self::OpenAi => (status, headers, body),
            Self::Anthropic(_) => {
                let status = StatusCode::from_u16(anthropic::error_status(error)).unwrap_or(status);
                (status, headers, Bytes::from(anthropic::error_body(error).to_string()))
            }
        }
    }

    /// The same as a response.
    pub fn reply_error(&self, error: &ApiError) -> Response {
        let (status, headers, body) = self.error_parts(error);
        reply::response(status, headers, Body::from(body))
    }

    /// A whole answer that has to be written anew, with what waltz adds to it.
    pub fn answer(&self, answer: &Answer, extras: &Map<String, Value>) -> Value {
        let mut answer = answer.clone();
        for (name, value) in extras {
            answer.head.insert(name.clone(), value.clone());
        }
        match self {
            Self::OpenAi => answer.to_json(),
            Self::Anthropic(_) => anthropic::answer::to_message(&answer),
        }
    }
}

/// Reads a request in the form of its path.
pub fn parse_request(path: &str, body: &[u8]) -> Result<ChatRequest, ApiError> {
    if path != MESSAGES {
        return ChatRequest::parse(body);
    }
    request::to_chat(body::object(body)?)
}

fn written<E: std::fmt::Display>(frames: Option<Result<Vec<Frame>, E>>) -> Vec<Bytes> {
    match frames {
        Some(Ok(frames)) => frames.iter().map(|frame| Bytes::from(frame.encode())).collect(),
        Some(Err(error)) => {
            tracing::error!(error = %error, "a chunk cannot be written in the client's form");
            Vec::new()
        }
        None => Vec::new(),
    }
}
