//! Versions of an agent that compete for a task type, what is chosen among them and what came of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::{self, JsonError};

/// The name of the variant that every agent has from the beginning.
pub const DEFAULT_VARIANT: &str = "default";

/// A version of an agent for one task type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// Its name among the variants of the agent and task type.
    pub name: String,
    /// What it changes in the agent; nothing for the agent as it is.
    #[serde(default)]
    pub patch: Vec<Modification>,
    /// Whether it may serve.
    pub status: VariantStatus,
    /// Counts the changes, for compare-and-swap.
    pub version: u64,
}

/// Whether a variant may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariantStatus {
    /// It exists and gets no traffic yet.
    Draft,
    /// It serves or competes for traffic.
    Live,
    /// It has competed, gets no traffic, and can be rolled back to.
    Standby,
    /// It was found to make things worse.
    RolledBack,
    /// It was taken out for good.
    Retired,
}

impl VariantStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Live => "live",
            Self::Standby => "standby",
            Self::RolledBack => "rolled_back",
            Self::Retired => "retired",
        }
    }
}

/// One change of a patch, in the form that proposals recommend it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Map<String, Value>")]
pub enum Modification {
    /// A change of the system prompt.
    Prompt(PromptChange),
    /// Another value of a request parameter.
    Parameter(ParameterChange),
    /// Another model.
    Model(ModelChange),
}

impl TryFrom<Map<String, Value>> for Modification {
    type Error = JsonError;

    fn try_from(object: Map<String, Value>) -> Result<Self, JsonError> {
        if object.contains_key("parameter") {
            json::read(object).map(Self::Parameter)
        } else if object.contains_key("model") {
            json::read(object).map(Self::Model)
        } else {
            json::read(object).map(Self::Prompt)
        }
    }
}

/// A change of the system prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptChange {
    /// The heading of the section; none means the prompt as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// What is done there.
    pub operation: Operation,
    /// The text.
    pub content: String,
}

/// What is done to a section of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The text is added at the end.
    Append,
    /// The text takes the place of what stands under the heading.
    Replace,
}

/// Another value of a request parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterChange {
    /// The parameter, as in a chat request.
    pub parameter: String,
    /// Its value.
    pub value: Value,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Another model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelChange {
    /// The model's name.
    pub model: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How much work a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// About a minute.
    Low,
    /// About five minutes.
    #[default]
    Medium,
    /// About a quarter of an hour.
    High,
}

/// What a choice may look at in a request. It holds no text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestContext {
    /// How much work the task is.
    #[serde(default)]
    pub complexity: Complexity,
    /// How much it hurries, 0 to 1.
    #[serde(default)]
    pub urgency: f64,
    /// The language's code, such as `en`; empty when unknown.
    #[serde(default)]
    pub language: String,
    /// The request's length in characters.
    #[serde(default)]
    pub length: u64,
}

/// Which variant serves a request, with the chance it had. It is logged with the exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The variant that serves.
    pub variant: String,
    /// The chance with which it was chosen.
    pub action_prob: f64,
    /// All that could have been chosen, with their chances.
    pub candidates: BTreeMap<String, f64>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeClass {
    /// The task was done.
    Success,
    /// The task was not done.
    Failure,
    /// An upstream, the network or waltz itself failed: nothing that the variant could help.
    Infrastructure,
}

/// What came of an answer of a variant, as learning wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantOutcome {
    /// The variant that served.
    pub variant: String,
    /// How the task ended.
    pub class: OutcomeClass,
    /// How good the result was, 0 to 1, when somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<f64>,
    /// How long it took.
    pub duration_ms: f64,
    /// Errors on the way.
    #[serde(default)]
    pub errors: u32,
    /// Who it was for, hashed; one subject counts only so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What the choice looked at.
    #[serde(default)]
    pub context: RequestContext,
    /// What judges said of the answer, where it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety: Option<SafetyOutcome>,
}

/// What judges and clocks said of one answer; releases are measured by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SafetyOutcome {
    /// The answer was harmful. None when nobody judged that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsafe_answer: Option<bool>,
    /// The answer refused without need. None when nobody judged that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrefused: Option<bool>,
    /// Feedback was needed.
    #[serde(default)]
    pub feedback_triggered: bool,
    /// Time that was waltz's own.
    #[serde(default)]
    pub overhead_ms: f64,
    /// An incident that people call critical.
    #[serde(default)]
    pub critical: bool,
}

/// An outcome on its way to be learned from. The exchange and the kind are its key: each is learned once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// The exchange whose answer it speaks of.
    pub exchange_id: String,
    /// Who says it.
    pub kind: LessonKind,
    /// Whose data this is.
    pub tenant: String,
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// When it became known.
    pub at: Timestamp,
    /// What came of the answer.
    pub outcome: VariantOutcome,
    /// Of a report: what the judge had said of the same answer, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<VariantOutcome>,
}

/// Who says what came of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonKind {
    /// The judge, when the answer was recorded.
    Served,
    /// The client, afterwards.
    Reported,
    /// The judge, of an answer that nobody saw.
    Shadow,
    /// The judge, of the version of the program that answered.
    Program,
}

impl LessonKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Reported => "reported",
            Self::Shadow => "shadow",
            Self::Program => "program",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifications_read_the_older_form_and_write_it_back() {
        let text = r#"[{"section":"Core Identity","operation":"append","content":"Mind security."},{"parameter":"temperature","value":0.2,"reason":"precision"},{"model":"small"}]"#;
        let patch: Vec<Modification> = serde_json::from_str(text).unwrap();
        assert!(matches!(patch[0], Modification::Prompt(PromptChange { operation: Operation::Append, .. })));
        assert!(matches!(patch[1], Modification::Parameter(_)) && matches!(patch[2], Modification::Model(_)));
        assert_eq!(serde_json::to_string(&patch).unwrap(), text);
        let unknown = r#"{"parameter":"temperature","value":0.2,"colour":"red"}"#;
        assert!(serde_json::from_str::<Modification>(unknown).is_err());
        let list = r#"[null,"append","Mind security."]"#;
        assert!(serde_json::from_str::<Modification>(list).is_err());
    }
}
