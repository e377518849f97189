//! Replies: headers that every answer carries, and errors in OpenAI's form.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, IntoHeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use waltz_exchange::openai::{ApiError, Retry};

/// Names of headers that every answer of an exchange carries, read once.
pub mod name {
    use http::HeaderName;

    /// The id of the request.
    pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    /// The same, as Anthropic's SDK looks for it.
    pub static ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
    /// The session.
    pub static SESSION_ID: HeaderName = HeaderName::from_static("x-waltz-session-id");
    /// The id of the answer.
    pub static RESPONSE_ID: HeaderName = HeaderName::from_static("x-waltz-response-id");
    /// The stage of the release.
    pub static STAGE: HeaderName = HeaderName::from_static("x-waltz-stage");
    /// The variant that answered.
    pub static VARIANT: HeaderName = HeaderName::from_static("x-waltz-variant");
    /// What was decided.
    pub static DECISION: HeaderName = HeaderName::from_static("x-waltz-decision");
    /// Rounds of coaching.
    pub static ROUNDS: HeaderName = HeaderName::from_static("x-waltz-rounds");
    /// Milliseconds that were not spent waiting for a model.
    pub static OVERHEAD: HeaderName = HeaderName::from_static("x-waltz-overhead-ms");
    /// Milliseconds in all.
    pub static PROCESSING: HeaderName = HeaderName::from_static("openai-processing-ms");
}

/// Sets a header; a value that cannot be one is left out rather than split.
pub fn set(headers: &mut HeaderMap, name: impl IntoHeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Sets a header to a number, nearly always of one digit.
pub fn set_count(headers: &mut HeaderMap, name: impl IntoHeaderName, count: u32) {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let digit = DIGITS.get(count as usize).map(|digit| HeaderValue::from_static(digit));
    headers.insert(name, digit.unwrap_or_else(|| count.into()));
}

/// Headers of a JSON reply.
pub fn json_headers() -> HeaderMap {
    // An answer of an exchange carries a dozen.
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

/// Headers of a stream.
pub fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set(&mut headers, "x-accel-buffering", "no");
    headers
}

/// The status, headers and body of an error.
pub fn error_parts(error: &ApiError) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = json_headers();
    match error.retry {
        Retry::Never => set(&mut headers, "x-should-retry", "false"),
        Retry::After(milliseconds) => {
            set(&mut headers, "retry-after-ms", &milliseconds.to_string());
            set(&mut headers, "retry-after", &milliseconds.div_ceil(1000).to_string());
        }
    }
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, headers, Bytes::from(error.body().to_string()))
}

/// An error as a response.
pub fn error(error: &ApiError) -> Response {
    let (status, headers, body) = error_parts(error);
    response(status, headers, Body::from(body))
}

/// A value as a JSON response.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => response(StatusCode::OK, json_headers(), Body::from(body)),
        Err(failure) => {
            tracing::error!(error = %failure, "a reply cannot be written as JSON");
            error(&ApiError::upstream(500, "internal_error", "internal error", Retry::Never))
        }
    }
}

/// A response of parts.
pub fn response(status: StatusCode, headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
