//! The error body that Anthropic's SDKs understand, made from the error that the gateway answers with,
//! and the one way in which the readers of this form say that a field is wrong.

use serde_json::{Value, json};

use crate::openai::ApiError;

/// The error body: `{"type": "error", "error": {"type", "message"}}`.
pub fn error_body(error: &ApiError) -> Value {
    json!({"type": "error", "error": {"type": kind(error.status), "message": error.message}})
}

/// The HTTP status to send with [`error_body`]: the error's own, but 529 where others say 503.
pub fn error_status(error: &ApiError) -> u16 {
    if error.status == 503 { 529 } else { error.status }
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// A request that can never work as it is: which field, and what it must be.
pub(super) fn invalid(path: &str, wanted: &str) -> ApiError {
    ApiError::invalid(format!("`{path}` {wanted}"), Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::Retry;

    #[test]
    fn every_status_has_its_type() {
        for (status, sent, expected) in [
            (400, 400, "invalid_request_error"),
            (401, 401, "authentication_error"),
            (403, 403, "permission_error"),
            (404, 404, "not_found_error"),
            (413, 413, "request_too_large"),
            (422, 422, "invalid_request_error"),
            (429, 429, "rate_limit_error"),
            (500, 500, "api_error"),
            (502, 502, "api_error"),
            (503, 529, "overloaded_error"),
            (504, 504, "timeout_error"),
        ] {
            let error = ApiError::upstream(status, "code", "why", Retry::Never);
            let expected = json!({"type": "error", "error": {"type": expected, "message": "why"}});
            assert_eq!(error_body(&error), expected);
            assert_eq!(error_status(&error), sent);
        }
    }
}
