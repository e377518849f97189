//! One state machine for everything that is released: variants, policies, judges and weights. A step goes on when
//! the evidence, the time and the limits all say so; it ends when evidence says that things got worse; else it stays.
//! The whole state can be written down at any moment and goes on from there.

mod assess;
mod counts;
mod profile;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use waltz_exchange::release::{
    Approval, OnInconclusive, Release, ReleaseEvent, ReleaseKind, ReleaseStatus, ReleaseStep,
};
use waltz_exchange::variant::SafetyOutcome;

use crate::Error;
use crate::assign;
use crate::evidence::TwoSample;
use crate::settings::ReleaseSettings;
pub use assess::Assessment;
pub use counts::StepCounts;
pub use profile::{PROFILES, profile};

/// A release with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRun {
    /// The release as people see it.
    pub release: Release,
    /// What was counted in the current step.
    pub step: StepCounts,
    /// What was counted since the start.
    pub whole: StepCounts,
    /// The candidate beside the control.
    rival: TwoSample,
}

/// What is to be released.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The release's id.
    pub id: String,
    /// What it is.
    pub kind: ReleaseKind,
    /// Where: `agent/task type` of a variant, else the name of the policy, judge or model.
    pub scope: String,
    /// The new version.
    pub candidate: String,
    /// The version that serves now.
    pub control: String,
    /// Decides who meets the candidate first.
    pub seed: String,
    /// The success rate of the control, which the candidate has to keep up with.
    pub baseline: f64,
}

/// Whose outcome it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The version that serves the rest.
    Control,
    /// The new version.
    Candidate,
}

/// What a person asks of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Go on to the next step now.
    Promote,
    /// Keep the share and do not go on.
    Hold,
    /// Take the candidate's traffic away for now.
    Pause,
    /// Go on after a hold or a pause.
    Resume,
    /// Give the candidate up.
    Abort,
}

impl ReleaseRun {
    /// Starts the plan of that name at its first step.
    pub fn start(candidate: Candidate, profile_name: &str, at: Timestamp) -> Result<Self, Error> {
        let Candidate { id, kind, scope, candidate, control, seed, baseline } = candidate;
        let refuse = |why: String| Error::Release { release: id.clone(), why };
        let steps = profile(profile_name).ok_or_else(|| {
            refuse(format!("names no known plan; `{profile_name}` is not one of {}", PROFILES.join(", ")))
        })?;
        if candidate == control {
            return Err(refuse(format!("would replace `{control}` by itself")));
        }
        if !(0.0..=1.0).contains(&baseline) {
            return Err(refuse(format!("has the baseline {baseline}; allowed is 0 to 1")));
        }
        let release = Release {
            id,
            kind,
            scope,
            candidate,
            control,
            seed,
            profile: profile_name.to_owned(),
            steps,
            step: 0,
            step_started_at: at,
            paused_at: None,
            baseline,
            status: ReleaseStatus::Running,
            version: 0,
        };
        let share = share(&release);
        let (step, whole) = (StepCounts::default(), StepCounts::default());
        Ok(Self { release, step, whole, rival: TwoSample::new(share) })
    }

    /// Whether it can still move.
    pub fn is_active(&self) -> bool {
        !matches!(self.release.status, ReleaseStatus::Completed | ReleaseStatus::Aborted)
    }

    /// The candidate's share of the traffic in percent. `cap` is the operator's upper limit: it can only lower the
    /// share that the steps have reached.
    pub fn percent(&self, cap: u8) -> u8 {
        percent(&self.release).min(cap)
    }

    /// Whether a unit meets the candidate.
    pub fn meets_candidate(&self, unit: &str, cap: u8) -> bool {
        assign::is_in(&self.release.seed, unit, self.percent(cap))
    }

    /// The step that runs.
    pub fn current(&self) -> ReleaseStep {
        current(&self.release)
    }

    /// Takes an outcome that users saw.
    pub fn observe(
        &mut self,
        side: Side,
        success: bool,
        safety: Option<&SafetyOutcome>,
        at: Timestamp,
        settings: &ReleaseSettings,
    ) -> Option<ReleaseEvent> {
        if !self.is_active() || self.release.status == ReleaseStatus::Paused {
            return None;
        }
        // In shadow nobody saw the candidate, so that neither side is evidence.
        if self.current().percent > 0 {
            self.rival.observe(side == Side::Candidate, success, share(&self.release));
            if side == Side::Candidate {
                self.step.add_outcome(success);
                self.whole.add_outcome(success);
            }
        }
        match (side, safety) {
            (Side::Candidate, Some(safety)) => self.observe_safety(safety, at, settings),
            _ => self.tick(at, settings),
        }
    }

    /// Takes what judges said of an answer of the candidate, seen by users or in shadow.
    pub fn observe_safety(
        &mut self,
        safety: &SafetyOutcome,
        at: Timestamp,
        settings: &ReleaseSettings,
    ) -> Option<ReleaseEvent> {
        if !self.is_active() || self.release.status == ReleaseStatus::Paused {
            return None;
        }
        self.step.add_safety(safety, settings.max_overhead_ms);
        self.whole.add_safety(safety, settings.max_overhead_ms);
        if safety.critical && self.release.status == ReleaseStatus::Running {
            let reasons = vec!["a critical incident; a person must look at it".to_owned()];
            return Some(self.turn(ReleaseStatus::Held, at, reasons, None));
        }
        self.tick(at, settings)
    }

    /// Moves on, ends or stays, as the evidence and the time say. Time alone can make the difference, so it is also
    /// called without an outcome.
    pub fn tick(&mut self, at: Timestamp, settings: &ReleaseSettings) -> Option<ReleaseEvent> {
        if !matches!(self.release.status, ReleaseStatus::Running | ReleaseStatus::Held) {
            return None;
        }
        if let Some(reason) = self.worse(settings) {
            return Some(self.turn(ReleaseStatus::Aborted, at, vec![reason], None));
        }
        if self.release.status == ReleaseStatus::Held || !self.time_is_over(at) {
            return None;
        }
        let ReleaseStep { approval, on_inconclusive, .. } = self.current();
        match (self.assess(at, settings), on_inconclusive, approval) {
            (Assessment::Ready(mut reasons), _, Approval::Human) => {
                reasons.push("the step waits for a person to promote it".to_owned());
                Some(self.turn(ReleaseStatus::Held, at, reasons, None))
            }
            (Assessment::Ready(reasons), _, Approval::Auto) => Some(self.advance(at, reasons, None)),
            (Assessment::Wait(reasons), OnInconclusive::Abort, _) => {
                Some(self.turn(ReleaseStatus::Aborted, at, reasons, None))
            }
            (Assessment::Wait(_), OnInconclusive::Hold, _) => None,
        }
    }

    /// Does what a person asks, if `expected` is still the release's version.
    pub fn command(
        &mut self,
        command: Command,
        by: &str,
        expected: u64,
        at: Timestamp,
        settings: &ReleaseSettings,
    ) -> Result<ReleaseEvent, Error> {
        let Release { version, status, id, .. } = &self.release;
        if *version != expected {
            return Err(Error::Stale { expected, found: *version });
        }
        use ReleaseStatus::{Aborted, Held, Paused, Running};
        let reasons = vec![format!("asked for by {by}")];
        match (command, *status) {
            (Command::Promote, Running | Held) => {
                let mut reasons = reasons;
                if let Assessment::Wait(missing) = self.assess(at, settings) {
                    reasons.extend(
                        missing.into_iter().map(|missing| format!("against the evidence: {missing}")),
                    );
                }
                Ok(self.advance(at, reasons, Some(by)))
            }
            (Command::Hold, Running) => Ok(self.turn(Held, at, reasons, Some(by))),
            (Command::Pause, Running | Held) => Ok(self.turn(Paused, at, reasons, Some(by))),
            (Command::Resume, Held | Paused) => Ok(self.turn(Running, at, reasons, Some(by))),
            (Command::Abort, Running | Held | Paused) => Ok(self.turn(Aborted, at, reasons, Some(by))),
            _ => {
                let why = format!("is {} and cannot do this", status.as_str());
                Err(Error::Release { release: id.clone(), why })
            }
        }
    }

    /// Ends it because what it depends on is gone.
    pub(crate) fn abandon(&mut self, reason: &str, at: Timestamp) -> Option<ReleaseEvent> {
        self.is_active().then(|| self.turn(ReleaseStatus::Aborted, at, vec![reason.to_owned()], None))
    }

    fn advance(&mut self, at: Timestamp, reasons: Vec<String>, by: Option<&str>) -> ReleaseEvent {
        let (from_status, from_percent) = (self.release.status, percent(&self.release));
        self.release.step += 1;
        self.release.step_started_at = at;
        self.release.version += 1;
        self.step = StepCounts::default();
        // All traffic leaves no control to be compared with: what follows is the guard's.
        self.release.status = if current(&self.release).percent == 100 {
            ReleaseStatus::Completed
        } else {
            ReleaseStatus::Running
        };
        self.event(from_status, from_percent, at, reasons, by)
    }

    fn turn(
        &mut self,
        to: ReleaseStatus,
        at: Timestamp,
        reasons: Vec<String>,
        by: Option<&str>,
    ) -> ReleaseEvent {
        let (from_status, from_percent) = (self.release.status, percent(&self.release));
        if to == ReleaseStatus::Paused {
            self.release.paused_at = Some(at);
        } else if let Some(paused_at) = self.release.paused_at.take() {
            // Time without traffic is no time of the step.
            let paused = at.duration_since(paused_at).max(SignedDuration::ZERO);
            let started = self.release.step_started_at.checked_add(paused);
            self.release.step_started_at = started.unwrap_or(at);
        } else if from_status == ReleaseStatus::Held && to == ReleaseStatus::Running && self.step.critical > 0
        {
            // A person has seen the incident; the step must show its time without one.
            self.step = StepCounts::default();
            self.release.step_started_at = at;
        }
        self.release.status = to;
        self.release.version += 1;
        self.event(from_status, from_percent, at, reasons, by)
    }

    fn event(
        &self,
        from_status: ReleaseStatus,
        from_percent: u8,
        at: Timestamp,
        reasons: Vec<String>,
        by: Option<&str>,
    ) -> ReleaseEvent {
        ReleaseEvent {
            release_id: self.release.id.clone(),
            at,
            from_status,
            to_status: self.release.status,
            from_percent,
            to_percent: percent(&self.release),
            reasons,
            by: by.map(str::to_owned),
        }
    }
}

fn current(release: &Release) -> ReleaseStep {
    // A plan ends with all traffic, and nothing follows it.
    let end = ReleaseStep {
        percent: 100,
        min_seconds: 0,
        min_samples: 0,
        on_inconclusive: OnInconclusive::Hold,
        approval: Approval::Auto,
    };
    release.steps.get(release.step).copied().unwrap_or(end)
}

fn percent(release: &Release) -> u8 {
    match release.status {
        ReleaseStatus::Running | ReleaseStatus::Held => current(release).percent,
        ReleaseStatus::Completed => 100,
        ReleaseStatus::Paused | ReleaseStatus::Aborted => 0,
    }
}

fn share(release: &Release) -> f64 {
    f64::from(current(release).percent) / 100.0
}

#[cfg(test)]
mod tests;
