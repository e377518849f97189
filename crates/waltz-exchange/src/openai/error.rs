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
