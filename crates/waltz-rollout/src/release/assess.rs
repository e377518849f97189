//! What a step's counts say: that it may go on, that something is missing, or that things got worse.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::rollback::DegradationMetrics;

use super::{ReleaseRun, StepCounts};
use crate::evidence::ln_e_above;
use crate::settings::ReleaseSettings;

/// Worse success, more harm, more refusals: each has a third of the chance of a false end.
const REASONS: f64 = 3.0;
/// The share of answers that may be slow where 95 % must not be.
const SLOW: f64 = 0.05;

/// Whether a step may go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assessment {
    /// All conditions hold; they are listed.
    Ready(Vec<String>),
    /// Some do not; those are listed.
    Wait(Vec<String>),
}

impl ReleaseRun {
    /// Whether the current step may go on at this time, and why or why not.
    pub fn assess(&self, at: Timestamp, settings: &ReleaseSettings) -> Assessment {
        let mut checks = vec![self.time(at), self.samples()];
        if self.current().percent > 0 && !self.judges_itself() {
            checks.push(self.non_inferior(settings));
        }
        let StepCounts {
            measured, attacks, harmful, harmless, overrefused, triggered, slow, critical, ..
        } = self.step;
        checks.push(below("ASR", harmful, attacks, settings.max_asr));
        checks.push(below("ORR", overrefused, harmless, settings.max_orr));
        checks.push(below("FTR", triggered, measured, settings.max_ftr));
        checks.push(below(&format!("share above {} ms", settings.max_overhead_ms), slow, measured, SLOW));
        checks.push((critical == 0, format!("{critical} critical incidents")));
        checks.push(if self.suspect {
            (false, "the candidate's last window was degraded".to_owned())
        } else {
            (true, "the candidate is no suspect".to_owned())
        });
        checks.push((
            self.next_percent() <= settings.cap,
            format!("the operator's limit is {} %", settings.cap),
        ));
        if self.is_still() {
            checks.push((false, "it stands still".to_owned()));
        }
        let (met, unmet): (Vec<_>, Vec<_>) = checks.into_iter().partition(|(holds, _)| *holds);
        let words = |checks: Vec<(bool, String)>| checks.into_iter().map(|(_, words)| words).collect();
        if unmet.is_empty() { Assessment::Ready(words(met)) } else { Assessment::Wait(words(unmet)) }
    }

    /// Why the release must end, if it must.
    pub(super) fn worse(&self, settings: &ReleaseSettings) -> Option<String> {
        if self.judges_itself() {
            return None;
        }
        let threshold = (REASONS / settings.abort_alpha).ln();
        let StepCounts { attacks, harmful, harmless, overrefused, .. } = self.whole;
        for (name, bad, n, limit) in [
            ("ASR", harmful, attacks, settings.abort_asr),
            ("ORR", overrefused, harmless, settings.abort_orr),
        ] {
            // Evidence can only be there where the rate itself is above the limit.
            if bad as f64 > limit * n as f64 && ln_e_above(bad as f64, n as f64, limit) >= threshold {
                return Some(format!("{name} {bad} of {n} is above {limit} for certain"));
            }
        }
        let evidence = self.rival.ln_e();
        (evidence >= threshold).then(|| {
            let StepCounts { outcomes, successes, .. } = self.whole;
            format!(
                "success {successes} of {outcomes} is below the control's (evidence {:.0} >= {:.0})",
                evidence.exp(),
                threshold.exp()
            )
        })
    }

    /// The candidate beside the control since the start, in the form of a rollback's numbers.
    pub(crate) fn degradation(&self) -> DegradationMetrics {
        let StepCounts { outcomes, successes, control_outcomes, control_successes, .. } = self.whole;
        let rate = |good: u64, n: u64| if n == 0 { 0.0 } else { good as f64 / n as f64 };
        let (control, candidate) = (rate(control_successes, control_outcomes), rate(successes, outcomes));
        DegradationMetrics {
            baseline_success_rate: control,
            recent_success_rate: candidate,
            success_drop_pct: if control > 0.0 { (control - candidate) / control } else { 0.0 },
            sample_size: outcomes,
            ..DegradationMetrics::default()
        }
    }

    pub(super) fn time_is_over(&self, at: Timestamp) -> bool {
        self.time(at).0
    }

    fn time(&self, at: Timestamp) -> (bool, String) {
        let least = self.current().min_seconds;
        let until = self.release.paused_at.unwrap_or(at);
        let lasted = until.duration_since(self.release.step_started_at).as_secs();
        (lasted >= least, format!("{lasted} s of at least {least} s"))
    }

    fn samples(&self) -> (bool, String) {
        let least = self.current().min_samples;
        // Shadow has no outcomes, only answers that were measured.
        let n = if self.current().percent > 0 { self.step.outcomes } else { self.step.measured };
        (n >= least, format!("{n} outcomes of at least {least}"))
    }

    fn non_inferior(&self, settings: &ReleaseSettings) -> (bool, String) {
        let StepCounts { outcomes, successes, control_outcomes, control_successes, .. } = self.step;
        if control_outcomes < settings.min_control.max(1) {
            let least = settings.min_control;
            return (
                false,
                format!("the control was not measured: {control_outcomes} outcomes of at least {least}"),
            );
        }
        let baseline = control_successes as f64 / control_outcomes as f64;
        let floor = (settings.non_inferiority * baseline).clamp(0.001, 0.999);
        let evidence = ln_e_above(successes as f64, outcomes as f64, floor).exp();
        let words = format!(
            "evidence {evidence:.1} of at least {} that success ({successes} of {outcomes}) is above {floor:.3}",
            settings.promote_e
        );
        (evidence >= settings.promote_e, words)
    }
}

/// A rate that nobody measured is not below anything.
fn below(name: &str, bad: u64, n: u64, limit: f64) -> (bool, String) {
    if n == 0 {
        return (false, format!("{name} was not measured"));
    }
    let rate = bad as f64 / n as f64;
    (rate < limit, format!("{name} {rate:.3} ({bad} of {n}), limit {limit}"))
}
