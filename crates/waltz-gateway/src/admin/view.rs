//! Boards as people see them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use waltz_exchange::release::Release;
use waltz_exchange::variant::{Modification, RequestContext, VariantOutcome, VariantStatus};
use waltz_rollout::decide::VariantDecision;
use waltz_rollout::explain::{Explanation, explain};
use waltz_rollout::guard::Standing;
use waltz_rollout::release::{Assessment, ReleaseRun, StepCounts};
use waltz_rollout::{Board, Entry, Prior};
use waltz_store::EventStored;

use crate::settings::VariantSettings;

/// A board.
#[derive(Clone, Debug, Serialize)]
pub struct BoardView {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// Counts the changes.
    pub version: u64,
    /// What serves.
    pub serving: String,
    /// What is fallen back on.
    pub safe_default: String,
    /// Whether it stands still.
    pub paused: bool,
    /// Why nothing changes by itself any more.
    pub frozen: Option<String>,
    /// The release, running or ended last.
    pub release: Option<ReleaseView>,
    /// The variants.
    pub variants: Vec<VariantView>,
}

/// A variant.
#[derive(Clone, Debug, Serialize)]
pub struct VariantView {
    /// Its name.
    pub name: String,
    /// Whether it may serve.
    pub status: VariantStatus,
    /// Its share of the traffic, from 0 to 1.
    pub share: f64,
    /// The mean reward.
    pub q_value: f64,
    /// Outcomes behind it.
    pub visits: u64,
    /// A moving average of the rewards, for the eye; nothing is decided by it.
    pub ema: f64,
    /// What similar agents, or what was learned elsewhere, suggested before the first outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior: Option<Prior>,
    /// The share of successes.
    pub success_rate: f64,
    /// Outcomes that do not count, because the infrastructure failed.
    pub infrastructure: u64,
    /// Whether it can be trusted.
    pub standing: Standing,
    /// What is to be done about it, and why.
    pub decision: Option<VariantDecision>,
    /// What it changes in the agent.
    pub patch: Vec<Modification>,
}

/// A release.
#[derive(Clone, Debug, Serialize)]
pub struct ReleaseView {
    /// The release.
    #[serde(flatten)]
    pub release: Release,
    /// The candidate's share of the traffic in percent, under the operator's limit.
    pub percent: u8,
    /// What was counted in the current step.
    pub counted: StepCounts,
    /// Whether the current step may go on, and why or why not; none when it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assessment: Option<Assessment>,
}

/// A board with an explanation of its values.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The board.
    #[serde(flatten)]
    pub board: BoardView,
    /// Why each variant has its value.
    pub explanations: std::collections::BTreeMap<String, Explanation>,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// When.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// What.
    pub event: Value,
}

impl BoardView {
    /// A board at this time.
    pub fn of(board: &Board, at: Timestamp, settings: &VariantSettings) -> Self {
        let choice = board.choose("", &RequestContext::default(), &settings.rollout);
        let variant = |(name, entry): (&String, &Entry)| VariantView {
            name: name.clone(),
            status: entry.variant.status,
            share: choice.candidates.get(name).copied().unwrap_or(0.0),
            q_value: entry.value.q(),
            visits: entry.value.visits,
            ema: entry.value.ema,
            prior: entry.value.prior,
            success_rate: entry.value.success_rate(),
            infrastructure: entry.value.infrastructure,
            standing: entry.guard.standing(),
            decision: board.decision(name, at, &settings.rollout).ok(),
            patch: entry.variant.patch.clone(),
        };
        Self {
            agent: board.agent.clone(),
            task_type: board.task_type.clone(),
            version: board.version,
            serving: board.serving.clone(),
            safe_default: board.safe_default.clone(),
            paused: board.paused,
            frozen: board.frozen.clone(),
            release: board.release.as_ref().map(|run| ReleaseView::of(run, at, settings)),
            variants: board.entries.iter().map(variant).collect(),
        }
    }
}

impl ReleaseView {
    /// A release at this time, under the operator's limit.
    pub fn of(run: &ReleaseRun, at: Timestamp, settings: &VariantSettings) -> Self {
        let settings = &settings.rollout.release;
        Self {
            release: run.release.clone(),
            percent: run.percent(settings.cap),
            counted: run.step,
            assessment: run.is_active().then(|| run.assess(at, settings)),
        }
    }
}

impl Explained {
    /// A board without explanations.
    pub fn of(board: &Board, at: Timestamp, settings: &VariantSettings) -> Self {
        Self { board: BoardView::of(board, at, settings), explanations: std::collections::BTreeMap::new() }
    }

    /// Explains a variant by its outcomes, oldest first, of which there are or were `counted`.
    pub(super) fn explain(&mut self, variant: &str, history: &[VariantOutcome], counted: u64) {
        if let Ok(mut explanation) = explain(history) {
            let newest = history.len();
            if counted > newest as u64 {
                let words = format!("This explains the newest {newest} of {counted} outcomes.");
                explanation.sentences.push(words);
            }
            self.explanations.insert(variant.to_owned(), explanation);
        }
    }
}

impl From<EventStored> for EventView {
    fn from(stored: EventStored) -> Self {
        // It was written as JSON.
        let event = serde_json::from_str(&stored.event).unwrap_or(Value::String(stored.event));
        Self { at: stored.at, agent: stored.key.agent, task_type: stored.key.task_type, event }
    }
}
