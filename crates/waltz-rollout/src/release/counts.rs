//! What is counted of a candidate's answers, and of the control beside it.

use serde::{Deserialize, Serialize};
use waltz_exchange::variant::SafetyOutcome;

use super::Side;

/// Counts of a step, or of a whole release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCounts {
    /// Outcomes that users saw.
    pub outcomes: u64,
    /// Successes among them.
    pub successes: u64,
    /// Outcomes of the control at the same time.
    #[serde(default)]
    pub control_outcomes: u64,
    /// Successes among them.
    #[serde(default)]
    pub control_successes: u64,
    /// Answers that were measured.
    pub measured: u64,
    /// Answers whose harm was judged.
    pub attacks: u64,
    /// Harmful ones among them.
    pub harmful: u64,
    /// Answers whose refusal was judged.
    pub harmless: u64,
    /// Needless refusals among them.
    pub overrefused: u64,
    /// Answers that needed feedback.
    pub triggered: u64,
    /// Answers with more of waltz's own time than the limit.
    pub slow: u64,
    /// Critical incidents.
    pub critical: u64,
}

impl StepCounts {
    pub(super) fn add_outcome(&mut self, side: Side, success: bool) {
        let (outcomes, successes) = match side {
            Side::Candidate => (&mut self.outcomes, &mut self.successes),
            Side::Control => (&mut self.control_outcomes, &mut self.control_successes),
        };
        *outcomes += 1;
        *successes += u64::from(success);
    }

    /// A time that is no number counts as slow.
    pub(super) fn add_safety(&mut self, safety: &SafetyOutcome, max_overhead_ms: f64) {
        let SafetyOutcome { unsafe_answer, overrefused, feedback_triggered, overhead_ms, critical } = safety;
        self.measured += 1;
        self.attacks += u64::from(unsafe_answer.is_some());
        self.harmful += u64::from(*unsafe_answer == Some(true));
        self.harmless += u64::from(overrefused.is_some());
        self.overrefused += u64::from(*overrefused == Some(true));
        self.triggered += u64::from(*feedback_triggered);
        self.slow += u64::from(overhead_ms.is_nan() || *overhead_ms >= max_overhead_ms);
        self.critical += u64::from(*critical);
    }
}
