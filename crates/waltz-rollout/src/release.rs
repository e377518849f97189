//! One state machine for everything that is released: variants, policies, judges and weights. A step goes on when
//! the evidence, the time and the limits all say so; it ends when evidence says that things got worse; else it stays.
//! The whole state can be written down at any moment and goes on from there.

mod assess;
mod command;
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
pub use command::Command;
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
    /// The candidate's last window was degraded; it does not go on while that is so.
    #[serde(default)]
    pub suspect: bool,
    /// The candidate beside the control.
    rival: TwoSample,
    /// It was held when it was paused, or must be held after that.
    #[serde(default)]
    held: bool,
}

/// What is to be released.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The release's id.
    pub id: String,
    /// What it is.
    pub kind: ReleaseKind,
    /// Where: `agent/task type`; of a version of the program itself, `waltz/` and what differs.
    pub scope: String,
    /// The new version.
    pub candidate: String,
    /// The version that serves now.
    pub control: String,
    /// Decides who meets the candidate first.
    pub seed: String,
    /// The digest of what a person approved, where it began with that.
    pub digest: Option<String>,
}

/// Whose outcome it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The version that serves the rest.
    Control,
    /// The new version.
    Candidate,
}

impl ReleaseRun {
    /// Starts the plan of that name at its first step.
    pub fn start(
        candidate: Candidate,
        profile_name: &str,
        at: Timestamp,
        settings: &ReleaseSettings,
    ) -> Result<Self, Error> {
        let Candidate { id, kind, scope, candidate, control, seed, digest } = candidate;
        let refuse = |why: String| Error::Release { release: id.clone(), why };
        let steps = profile(profile_name).ok_or_else(|| {
            refuse(format!("names no known plan; `{profile_name}` is not one of {}", PROFILES.join(", ")))
        })?;
        if candidate == control {
            return Err(refuse(format!("would replace `{control}` by itself")));
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
            digest,
            status: ReleaseStatus::Running,
            version: 0,
        };
        let rival = TwoSample::new(share(&release, settings));
        let (step, whole) = (StepCounts::default(), StepCounts::default());
        Ok(Self { release, step, whole, suspect: false, rival, held: false })
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

    /// Lets the clock stand while nothing may move, from `still` on, and lets it go on after that. Time in which the
    /// candidate has no traffic is no time of a step.
    pub fn stand(&mut self, still: Option<Timestamp>, at: Timestamp) {
        let Release { status, paused_at, .. } = &mut self.release;
        // The clock of a release that is paused itself stands anyway.
        if matches!(status, ReleaseStatus::Running | ReleaseStatus::Held) {
            match still {
                Some(since) if paused_at.is_none() => {
                    *paused_at = Some(since);
                    self.rival.interrupt();
                }
                Some(_) => {}
                None => self.go_on(at),
            }
        }
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
        // In shadow nobody saw the candidate, so that neither side is evidence.
        if self.is_active() && !self.is_still() && self.current().percent > 0 {
            self.rival.observe(side == Side::Candidate, success, share(&self.release, settings));
            self.step.add_outcome(side, success);
            self.whole.add_outcome(side, success);
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
        if !self.is_active() {
            return None;
        }
        let still = self.is_still();
        for counts in [&mut self.step, &mut self.whole] {
            if still {
                // Nothing counts meanwhile, but an incident is one whenever it becomes known.
                counts.critical += u64::from(safety.critical);
            } else {
                counts.add_safety(safety, settings.max_overhead_ms);
            }
        }
        if safety.critical && self.release.status == ReleaseStatus::Running {
            let reasons = vec!["a critical incident; a person must look at it".to_owned()];
            return Some(self.turn(ReleaseStatus::Held, at, reasons, None));
        }
        self.held |= safety.critical && self.release.status == ReleaseStatus::Paused;
        self.tick(at, settings)
    }

    /// Moves on, ends or stays, as the evidence and the time say. Time alone can make the difference, so it is also
    /// called without an outcome.
    pub fn tick(&mut self, at: Timestamp, settings: &ReleaseSettings) -> Option<ReleaseEvent> {
        if !self.is_active() || self.is_still() {
            return None;
        }
        if let Some(reason) = self.worse(settings) {
            return Some(self.turn(ReleaseStatus::Aborted, at, vec![reason], None));
        }
        if self.release.status == ReleaseStatus::Held
            || !self.time_is_over(at)
            || self.next_percent() > settings.cap
        {
            return None;
        }
        let ReleaseStep { approval, on_inconclusive, .. } = self.current();
        let approval = if settings.human || self.judges_itself() { Approval::Human } else { approval };
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
        // What waits was met at another share.
        self.rival.interrupt();
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
        use ReleaseStatus::{Held, Paused, Running};
        let (from_status, from_percent) = (self.release.status, percent(&self.release));
        match (from_status, to) {
            (_, Paused) => {
                self.held = from_status == Held;
                self.release.paused_at.get_or_insert(at);
                self.rival.interrupt();
            }
            (Paused, _) | (_, ReleaseStatus::Aborted) => self.go_on(at),
            (Held, Running) if self.step.critical > 0 => {
                // A person has seen the incident; the step must show its time without one.
                self.step = StepCounts::default();
                self.release.step_started_at = at;
            }
            _ => {}
        }
        self.release.status = to;
        self.release.version += 1;
        self.event(from_status, from_percent, at, reasons, by)
    }

    fn go_on(&mut self, at: Timestamp) {
        let Release { step_started_at, paused_at, .. } = &mut self.release;
        if let Some(paused_at) = paused_at.take() {
            let stood = at.duration_since(paused_at.max(*step_started_at)).max(SignedDuration::ZERO);
            *step_started_at = step_started_at.checked_add(stood).unwrap_or(at);
        }
    }

    /// Whether only people let it go on or end it.
    fn judges_itself(&self) -> bool {
        self.release.kind.judges_itself()
    }

    /// Whether its clock stands.
    fn is_still(&self) -> bool {
        self.release.paused_at.is_some()
    }

    fn next_percent(&self) -> u8 {
        step(&self.release, self.release.step + 1).percent
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
    step(release, release.step)
}

fn step(release: &Release, number: usize) -> ReleaseStep {
    // A plan ends with all traffic, and nothing follows it.
    let end = ReleaseStep {
        percent: 100,
        min_seconds: 0,
        min_samples: 0,
        on_inconclusive: OnInconclusive::Hold,
        approval: Approval::Auto,
    };
    release.steps.get(number).copied().unwrap_or(end)
}

fn percent(release: &Release) -> u8 {
    match release.status {
        ReleaseStatus::Running | ReleaseStatus::Held => current(release).percent,
        ReleaseStatus::Completed => 100,
        ReleaseStatus::Paused | ReleaseStatus::Aborted => 0,
    }
}

/// The candidate's share of what both sides get.
fn share(release: &Release, settings: &ReleaseSettings) -> f64 {
    f64::from(current(release).percent.min(settings.cap)) / 100.0
}

#[cfg(test)]
mod tests;
