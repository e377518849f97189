//! The section for level 2 of the judge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Level 2 of the judge reads what levels 0 and 1 leave open: 2a, an encoder in the program, and 2b, a small language
/// model.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Judge {
    /// Whether level 2a is asked.
    pub(crate) encoder: bool,
    /// Whether level 2b is asked where 2a is not sure.
    pub(crate) neural: Neural,
    /// Weights of level 2b that `waltz train judge --level 2b` wrote; without it, those in the program.
    pub(crate) weights: Option<String>,
    /// Weights that are to take the place of those: they are released step by step, beside those that serve.
    pub(crate) candidate_weights: Option<String>,
    /// How long one question may take; afterwards the failure policy decides, and the answer says so.
    pub(crate) timeout_ms: u64,
}

impl Default for Judge {
    fn default() -> Self {
        Self {
            encoder: true,
            neural: Neural::Auto,
            weights: None,
            candidate_weights: None,
            timeout_ms: 2_000,
        }
    }
}

/// Whether level 2b of the judge is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Neural {
    /// Where the model `smollm2` was pulled. It is loaded at the first question.
    Auto,
    /// Always: without the model nothing is served. It is loaded at the start.
    On,
    /// Never.
    Off,
}
