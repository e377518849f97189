//! The sections that say how requests are judged, and what happens where they cannot be.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use waltz_exchange::{Depth, policy};

/// What to do with a prompt that asks for harm.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Input {
    /// Draft an answer and coach it.
    Coach,
    /// Refuse before any upstream call.
    Block,
}

/// How streams are released.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stream {
    /// Sentence by sentence at low risk, paragraph by paragraph at medium, else once all was read.
    ByRisk,
    /// Once all was read.
    Whole,
}

/// How deep the judge reads.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawDepth {
    /// Not at all.
    None,
    /// The judge in this process alone.
    Rules,
    /// The feedback model where something is flagged.
    Flagged,
    /// The feedback model always.
    Always,
}

impl From<RawDepth> for Depth {
    fn from(depth: RawDepth) -> Self {
        match depth {
            RawDepth::None => Self::None,
            RawDepth::Rules => Self::Rules,
            RawDepth::Flagged => Self::Flagged,
            RawDepth::Always => Self::Always,
        }
    }
}

/// Which requests are judged how deep.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Policy {
    /// What to do with a prompt that asks for harm.
    pub(crate) input: Input,
    /// How streams are released.
    pub(crate) stream: Stream,
    /// The kind of task when nobody says.
    pub(crate) default_task_type: String,
    /// Depth of task types that are not safety-critical.
    pub(crate) default_depth: RawDepth,
    /// Depth of safety-critical task types.
    pub(crate) critical_depth: RawDepth,
    /// The safety-critical task types.
    pub(crate) critical_task_types: Vec<String>,
    /// Depth of single task types.
    pub(crate) task_types: BTreeMap<String, RawDepth>,
    /// Depth of single routes; the deeper of route and task type wins.
    pub(crate) routes: BTreeMap<String, RawDepth>,
    /// A file with the operator's own rules, read again when it changes.
    pub(crate) rules_file: Option<String>,
    /// Rules that are to take the place of `rules_file`: they are released step by step, beside those that serve.
    pub(crate) candidate_rules_file: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            input: Input::Coach,
            stream: Stream::ByRisk,
            default_task_type: "user_interaction".to_owned(),
            default_depth: RawDepth::Flagged,
            critical_depth: RawDepth::Always,
            critical_task_types: policy::SAFETY_CRITICAL_TASK_TYPES.map(str::to_owned).to_vec(),
            task_types: BTreeMap::new(),
            routes: BTreeMap::new(),
            rules_file: None,
            candidate_rules_file: None,
        }
    }
}

/// What happens when the judge cannot do its work.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    /// The rules decide alone, and the answer says so.
    Open,
    /// No answer is sent that was not read.
    Closed,
}

/// What happens when the judge cannot do its work, per risk.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Failure {
    /// Ordinary traffic.
    pub(crate) low: OnFailure,
    /// Suspicious traffic.
    pub(crate) medium: OnFailure,
    /// Requests that ask for harm.
    pub(crate) high: OnFailure,
}

impl Default for Failure {
    fn default() -> Self {
        Self { low: OnFailure::Open, medium: OnFailure::Closed, high: OnFailure::Closed }
    }
}
