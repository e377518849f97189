//! The section for the judge: level 2, and what an operator changes of level 0.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The judge: what level 0 finds, and level 2, which reads what levels 0 and 1 leave open: 2a, an encoder in the program, and
/// 2b, a small language model.
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
    /// Families of level 0 that are switched off or made soft, or the severity from which they decide.
    pub(crate) families: BTreeMap<String, FamilySwitch>,
    /// The severity from which findings of a category decide, such as `categories.hate_speech.threshold`. Families that take no
    /// exception keep their own; only `off` turns them down.
    pub(crate) categories: BTreeMap<String, CategoryRule>,
    /// Texts that are never findings, as they are written or as an expression between slashes.
    pub(crate) allow: Vec<String>,
}

/// What becomes of the findings of a family.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum FamilySwitch {
    /// They decide from this severity on.
    From(f64),
    /// A word for it.
    Named(FamilyState),
}

/// What becomes of the findings of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FamilyState {
    /// There are none.
    Off,
    /// They never decide.
    Soft,
    /// As the family says.
    On,
}

/// How findings of a category count.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CategoryRule {
    /// The severity from which they decide.
    pub(crate) threshold: f64,
}

impl Default for CategoryRule {
    fn default() -> Self {
        Self { threshold: 0.5 }
    }
}

impl Default for Judge {
    fn default() -> Self {
        Self {
            encoder: true,
            neural: Neural::Auto,
            weights: None,
            candidate_weights: None,
            timeout_ms: 2_000,
            families: BTreeMap::new(),
            categories: BTreeMap::new(),
            allow: Vec::new(),
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
