//! What is said when a variant loses its traffic.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A variant was replaced because it made things worse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackEvent {
    /// `rb-YYYYMMDD-` and eight hex digits.
    pub rollback_id: String,
    /// When.
    pub timestamp: Timestamp,
    /// The agent.
    pub agent_name: String,
    /// The kind of task.
    pub task_type: String,
    /// The variant that lost its traffic.
    pub from_variant: String,
    /// The variant that serves now.
    pub to_variant: String,
    /// Why, with the numbers.
    pub reason: String,
    /// The numbers.
    pub degradation_metrics: DegradationMetrics,
}

/// How a variant does now, beside how it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DegradationMetrics {
    /// Success rate before.
    pub baseline_success_rate: f64,
    /// Success rate in the window.
    pub recent_success_rate: f64,
    /// Relative drop of it.
    pub success_drop_pct: f64,
    /// Mean reward before.
    pub baseline_reward: f64,
    /// Mean reward in the window.
    pub recent_reward: f64,
    /// Relative drop of it.
    pub reward_drop_pct: f64,
    /// Share of outcomes with errors before.
    pub baseline_error_rate: f64,
    /// Share of outcomes with errors in the window.
    pub recent_error_rate: f64,
    /// Relative rise of it.
    pub error_increase_pct: f64,
    /// Outcomes in the window.
    pub sample_size: u64,
}

/// Where a rollback stands among what people have to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollbackStatus {
    /// It happened by itself, and nobody has looked at it.
    Waiting,
    /// A person agrees, or asked for it.
    Confirmed,
    /// A person disagrees, and the variant is released again.
    Reinstated,
}

impl RollbackStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Confirmed => "confirmed",
            Self::Reinstated => "reinstated",
        }
    }
}
