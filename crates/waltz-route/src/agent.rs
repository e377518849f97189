//! What an agent can do, as far as routing needs to know.

use serde::{Deserialize, Serialize};

/// An agent's capabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// The kinds of task it does.
    pub task_types: Vec<String>,
    /// What it knows.
    pub skills: Vec<String>,
    /// What it costs, beside others.
    pub cost: Cost,
    /// How often it succeeds, 0 to 1.
    pub success_rate: f64,
    /// Tasks of one level that it takes.
    pub max_concurrent: usize,
}

/// What an agent costs, beside others; of two that are equal otherwise, the cheaper one is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Little.
    Cheap,
    /// As most do.
    #[default]
    Medium,
    /// Much.
    Expensive,
}
