//! A candidate on its way to all traffic, step by step.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::variant::Choice;

/// A candidate on its way. Fields of other versions of the program are passed over: a board must stay readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Its id.
    pub id: String,
    /// What is released.
    pub kind: ReleaseKind,
    /// Where: `agent/task type`; of a version of the program itself, `waltz/` and what differs.
    pub scope: String,
    /// The new version.
    pub candidate: String,
    /// The version that serves the rest.
    pub control: String,
    /// Decides who meets the candidate first; it never changes.
    pub seed: String,
    /// The name of the plan.
    pub profile: String,
    /// The steps.
    pub steps: Vec<ReleaseStep>,
    /// The current step, from 0.
    pub step: usize,
    /// When the current step began.
    pub step_started_at: Timestamp,
    /// Since when its clock stands, because it or more than it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// The digest of what a person approved, where it began with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Where it stands.
    pub status: ReleaseStatus,
    /// Counts the changes, for compare-and-swap.
    pub version: u64,
}

/// The name under which releases of the program itself stand beside those of agents. No agent can have it.
pub const PROGRAM: &str = "waltz";

/// What is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseKind {
    /// A variant of an agent.
    Variant,
    /// A policy.
    Policy,
    /// A judge.
    Judge,
    /// Trained weights.
    Weights,
}

impl ReleaseKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Variant => "variant",
            Self::Policy => "policy",
            Self::Judge => "judge",
            Self::Weights => "weights",
        }
    }

    /// Whether success is what the candidate itself says it is. A stricter judge finds more fault with its own drafts, and
    /// a blind one none: neither is evidence.
    pub fn judges_itself(self) -> bool {
        matches!(self, Self::Policy | Self::Judge)
    }

    /// What a board of an agent and a kind of task releases: variants, but for the program's own boards.
    pub fn of(agent: &str, task_type: &str) -> Self {
        let own =
            [Self::Policy, Self::Judge, Self::Weights].into_iter().find(|kind| kind.as_str() == task_type);
        own.filter(|_| agent == PROGRAM).unwrap_or(Self::Variant)
    }
}

/// Which version of the program answered, while one is released.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramChoice {
    /// What is released.
    pub kind: ReleaseKind,
    /// The version that answered, and its chance.
    pub choice: Choice,
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseStep {
    /// The candidate's share of traffic in percent; 0 is shadow: it answers, and nobody sees it.
    pub percent: u8,
    /// It lasts at least so long.
    pub min_seconds: i64,
    /// And at least so many outcomes of the candidate.
    pub min_samples: u64,
    /// What happens when the time is over and the evidence says neither yes nor no.
    #[serde(default)]
    pub on_inconclusive: OnInconclusive,
    /// Who lets it go on.
    #[serde(default)]
    pub approval: Approval,
}

/// What happens without evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInconclusive {
    /// It stays where it is.
    #[default]
    Hold,
    /// It ends.
    Abort,
}

/// Who lets a step go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The evidence.
    #[default]
    Auto,
    /// A person, when the evidence is there.
    Human,
}

/// Where a release stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseStatus {
    /// It gathers evidence and moves on by itself.
    Running,
    /// It keeps its share and does not move on.
    Held,
    /// The candidate gets no traffic until it is resumed.
    Paused,
    /// The candidate has all traffic for good.
    Completed,
    /// The candidate was given up.
    Aborted,
}

impl ReleaseStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Held => "held",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
        }
    }
}

/// A release moved, stopped or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseEvent {
    /// The release.
    pub release_id: String,
    /// When.
    pub at: Timestamp,
    /// What it was.
    pub from_status: ReleaseStatus,
    /// What it is.
    pub to_status: ReleaseStatus,
    /// The candidate's share before, in percent.
    pub from_percent: u8,
    /// And now.
    pub to_percent: u8,
    /// Why, with the numbers.
    pub reasons: Vec<String>,
    /// Who asked for it; none when the evidence did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Everything is paused: the kill switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Who paused it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
