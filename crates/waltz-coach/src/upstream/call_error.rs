//! Why a call to an upstream gave no usable answer, and what may be made of that.

use bytes::Bytes;

/// Why a call gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// All slots are taken.
    #[error("upstream `{0}` has no free slot")]
    Shed(String),
    /// No connection, or it broke before an answer began.
    #[error("upstream `{0}` cannot be reached")]
    Unreachable(String),
    /// The answer began and did not come to its end.
    #[error("upstream `{0}` broke off in the middle of its answer")]
    BrokenOff(String),
    /// A time-out; the second field says which.
    #[error("upstream `{0}` was too slow: {1}")]
    Timeout(String, &'static str),
    /// The answer is unusable.
    #[error("upstream `{0}` sent an unusable answer: {1}")]
    Unusable(String, String),
    /// An HTTP error.
    #[error("upstream `{upstream}` answered {status}")]
    Status {
        /// Which upstream.
        upstream: String,
        /// Its status.
        status: u16,
        /// `retry-after-ms` or `retry-after`, in milliseconds.
        retry_after_ms: Option<u64>,
        /// The head of its body.
        body: Bytes,
    },
}

impl CallError {
    /// Whether another try, here or elsewhere, may go better.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Shed(_) | Self::Unreachable(_) | Self::BrokenOff(_) | Self::Timeout(..) => true,
            Self::Status { status, .. } => *status >= 500 || matches!(status, 408 | 409 | 429),
            Self::Unusable(..) => false,
        }
    }

    /// Whether the upstream does not want this request: a parameter, a model or a text that it refuses. The same request
    /// would be refused again, and another one may not be.
    pub fn refuses_request(&self) -> bool {
        let Self::Status { status, .. } = self else { return false };
        (400..500).contains(status) && !self.is_transient() && !matches!(status, 401 | 403)
    }

    /// A word for records and headers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Shed(_) => "shed",
            Self::Unreachable(_) => "unreachable",
            Self::BrokenOff(_) => "broken_off",
            Self::Timeout(..) => "timeout",
            Self::Unusable(..) => "unusable",
            Self::Status { .. } => "status",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_is_told_from_bad_keys_and_bad_times() {
        let status = |status: u16| CallError::Status {
            upstream: "main".to_owned(),
            status,
            retry_after_ms: None,
            body: Bytes::new(),
        };
        for refused in [400, 404, 413, 422] {
            assert!(status(refused).refuses_request() && !status(refused).is_transient(), "{refused}");
        }
        for other in [401, 403, 408, 409, 429, 500, 503] {
            assert!(!status(other).refuses_request(), "{other}");
        }
        assert!(!CallError::Unreachable("main".to_owned()).refuses_request());
    }
}
