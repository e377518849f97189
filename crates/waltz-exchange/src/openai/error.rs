//! The error body that OpenAI's SDKs understand: always four keys.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Whether the client's SDK should try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Trying again would give the same answer: sent as `x-should-retry: false`.
    Never,
    /// Trying again after so many milliseconds may help: sent as `retry-after-ms`.
    After(u64),
}

/// The HTTP status that an upstream's error inside a stream stands for, in OpenAI's form or Anthropic's: a
/// status that it names itself, else what its type or code says. What is not known to be the request's
/// fault is the upstream's.
pub fn status_inside(error: &Value) -> u16 {
    let named = ["code", "status"].iter().find_map(|name| error.get(name)?.as_u64());
    if let Some(status) = named.and_then(|status| u16::try_from(status).ok())
        && (400..600).contains(&status)
    {
        return status;
    }
    let known = |name: &&str| {
        Some(match error.get(name)?.as_str()? {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "conflict_error" => 409,
            "request_too_large" => 413,
            "rate_limit_error" | "rate_limit_exceeded" => 429,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => return None,
        })
    };
    ["type", "code"].iter().find_map(known).unwrap_or(500)
}

/// An error as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The class, such as `invalid_request_error`.
    pub kind: Cow<'static, str>,
    /// What was wrong and how to mend it.
    pub message: String,
    /// The field that is meant.
    pub param: Option<String>,
    /// A stable code to act on.
    pub code: Cow<'static, str>,
    /// Whether to try again.
    pub retry: Retry,
}

impl ApiError {
    /// A request that can never work as it is.
    pub fn invalid(message: impl Into<String>, param: Option<&str>) -> Self {
        Self {
            status: 400,
            kind: "invalid_request_error".into(),
            message: message.into(),
            param: param.map(str::to_owned),
            code: "invalid_request".into(),
            retry: Retry::Never,
        }
    }

    /// A request whose answer must be had elsewhere or later.
    pub fn upstream(status: u16, code: &'static str, message: impl Into<String>, retry: Retry) -> Self {
        Self {
            status,
            kind: "upstream_error".into(),
            message: message.into(),
            param: None,
            code: code.into(),
            retry,
        }
    }

    /// The same error with another code.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = code.into();
        self
    }

    /// The error body.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_inside_a_stream_stands_for_a_status() {
        for (error, status) in [
            (json!({"type": "overloaded_error"}), 529),
            (json!({"type": "rate_limit_error"}), 429),
            (json!({"type": "api_error"}), 500),
            (json!({"type": "invalid_request_error", "code": "context_length_exceeded"}), 400),
            (json!({"type": "requests", "code": "rate_limit_exceeded"}), 429),
            (json!({"type": "BadRequestError", "code": 400}), 400),
            (json!({"type": "rate_limit_error", "code": 7}), 429),
            (json!({"code": 200}), 500),
            (json!({"code": 70_000}), 500),
            (json!("words"), 500),
        ] {
            assert_eq!(status_inside(&error), status, "{error}");
        }
    }
}
