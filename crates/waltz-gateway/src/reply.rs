//! Replies: headers that every answer carries, and errors in OpenAI's form.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use waltz_exchange::openai::{ApiError, Retry};

/// Sets a header; a value that cannot be one is left out rather than split.
pub fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Headers of a JSON reply.
pub fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
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
