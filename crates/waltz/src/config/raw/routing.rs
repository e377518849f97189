//! The sections that say who does which task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an agent costs, beside others.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cost {
    /// Little.
    Cheap,
    /// As most do.
    #[default]
    Medium,
    /// Much.
    Expensive,
}

/// A value that a task's metadata can have.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Scalar {
    /// True or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// One rule.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rule {
    /// A name for it, which plans and records give.
    pub(crate) id: String,
    /// The kind of task it speaks of.
    pub(crate) task_type: String,
    /// What else must hold: keys of the task's metadata and their values. A key that a task does not have does not hold.
    pub(crate) conditions: BTreeMap<String, Scalar>,
    /// The agent that gets the task, unless it is full or lacks a skill.
    pub(crate) agent: String,
    /// The highest goes first; of equals, the one that stands first.
    pub(crate) priority: i64,
    /// Why, in words: the reason that plans and records give.
    pub(crate) explanation: String,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            id: String::new(),
            task_type: String::new(),
            conditions: BTreeMap::new(),
            agent: String::new(),
            priority: 10,
            explanation: String::new(),
        }
    }
}

/// Limits of plans and runs, and what teams must have.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Routing {
    /// The most tasks of a run.
    pub(crate) max_tasks: u32,
    /// Tasks of one run that are done at the same time.
    pub(crate) max_parallel: u32,
    /// The most tasks of a graph, whether it is run or only planned; those that are done already count too.
    pub(crate) max_planned_tasks: u32,
    /// Bytes of results that one run collects and hands on, in all: a result counts once, and once more for each task that gets it.
    pub(crate) max_result_bytes: u64,
    /// How long a run may take. Then nothing more of it begins, and what is under way fails.
    pub(crate) run_timeout_ms: u64,
    /// Task types for which a team must have a security agent.
    pub(crate) security_task_types: Vec<String>,
    /// The skill that makes an agent a security agent.
    pub(crate) security_skill: String,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            max_tasks: 256,
            max_parallel: 16,
            max_planned_tasks: 10_000,
            max_result_bytes: 64 * 1024 * 1024,
            run_timeout_ms: 3_600_000,
            security_task_types: Vec::new(),
            security_skill: "security".to_owned(),
        }
    }
}
