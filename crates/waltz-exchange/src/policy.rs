//! How closely an exchange is read.

use serde::{Deserialize, Serialize};

/// How deep the judge reads a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Nothing is judged; the exchange is only recorded.
    None,
    /// The judge in this process decides alone.
    Rules,
    /// The feedback model is asked when something is flagged.
    Flagged,
    /// The feedback model reads every draft.
    Always,
}

/// How dangerous a request looks before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Ordinary traffic.
    #[default]
    Low,
    /// Something in the conversation was suspicious.
    Medium,
    /// The request itself asks for harm.
    High,
}

impl Risk {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The seven task types that are safety-critical by default.
pub const SAFETY_CRITICAL_TASK_TYPES: [&str; 7] = [
    "user_interaction",
    "customer_support",
    "data_access",
    "security",
    "code_generation",
    "content_generation",
    "api_call",
];
