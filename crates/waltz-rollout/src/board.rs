//! All that is known and decided for one agent and task type. The gateway asks it which variant serves and tells it
//! what came of it; what follows comes back as events, and the state as a whole can be written down and read again.

mod change;
mod event;
mod rollback;
mod share;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::release::{ReleaseEvent, ReleaseStatus};
use waltz_exchange::variant::{
    DEFAULT_VARIANT, OutcomeClass, SafetyOutcome, Variant, VariantOutcome, VariantStatus,
};

pub use change::Change;
pub use event::BoardEvent;
pub(crate) use rollback::dated_id;

use crate::choose::Linear;
use crate::decide::{Action, Circumstances, VariantDecision, action, decide};
use crate::evidence::TwoSample;
use crate::guard::{Guard, Standing};
use crate::release::{ReleaseRun, Side};
use crate::subject::{Admission, SubjectCap};
use crate::window::Recent;
use crate::{ChooseRule, Error, RollbackMode, Settings, Value, reward};

/// The state of one agent and task type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// Decides which unit meets which variant; it never changes.
    pub seed: String,
    /// The variant that serves.
    pub serving: String,
    /// The variant to fall back on when nothing better is known.
    pub safe_default: String,
    /// Counts the changes of what serves, for compare-and-swap.
    pub version: u64,
    /// Experiments and the release stand still, and what serves has all traffic.
    pub paused: bool,
    /// Why nothing changes by itself any more until a person looks.
    pub frozen: Option<String>,
    /// The variants by name.
    pub entries: BTreeMap<String, Entry>,
    /// The release of a variant, running or ended last.
    pub release: Option<ReleaseRun>,
    /// When what serves was rolled back within the last day.
    rollbacks: Vec<Timestamp>,
    subjects: SubjectCap,
}

/// A variant with what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The variant.
    pub variant: Variant,
    /// What was learned of it.
    pub value: Value,
    /// The watch over it.
    pub guard: Guard,
    /// What was last said of it.
    pub action: Action,
    /// It beside what serves, while both have traffic.
    rival: Option<TwoSample>,
    /// What was learned of it by the kind of request, where the rule wants that.
    linear: Option<Linear>,
}

impl Entry {
    fn new(variant: Variant) -> Self {
        Self {
            variant,
            value: Value::default(),
            guard: Guard::default(),
            action: Action::NoAction,
            rival: None,
            linear: None,
        }
    }
}

impl Board {
    /// A board with the default variant alone, which serves and is the one to fall back on.
    pub fn new(agent: &str, task_type: &str, seed: &str) -> Self {
        let default = Variant {
            agent: agent.to_owned(),
            task_type: task_type.to_owned(),
            name: DEFAULT_VARIANT.to_owned(),
            patch: Vec::new(),
            status: VariantStatus::Live,
            version: 0,
        };
        Self {
            agent: agent.to_owned(),
            task_type: task_type.to_owned(),
            seed: seed.to_owned(),
            serving: DEFAULT_VARIANT.to_owned(),
            safe_default: DEFAULT_VARIANT.to_owned(),
            version: 0,
            paused: false,
            frozen: None,
            entries: BTreeMap::from([(DEFAULT_VARIANT.to_owned(), Entry::new(default))]),
            release: None,
            rollbacks: Vec::new(),
            subjects: SubjectCap::default(),
        }
    }

    /// Takes an outcome and returns what follows from it. Failures of the infrastructure are counted and change
    /// nothing.
    pub fn observe(
        &mut self,
        outcome: &VariantOutcome,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<Vec<BoardEvent>, Error> {
        let reward = reward(outcome)?;
        let name = outcome.variant.as_str();
        let entry = self.entries.get_mut(name).ok_or_else(|| Error::UnknownVariant(name.to_owned()))?;
        let Some(reward) = reward else {
            entry.value.infrastructure += 1;
            return Ok(Vec::new());
        };
        if let Some(subject) = &outcome.subject
            && let Admission::Capped { news } = self.subjects.admit(subject, at, &settings.subject)
        {
            let event = BoardEvent::SubjectCapped { subject: subject.clone(), variant: name.to_owned() };
            return Ok(if news { vec![event] } else { Vec::new() });
        }
        let success = outcome.class == OutcomeClass::Success;
        let recent = Recent { success, reward, errored: !success || outcome.errors > 0 };
        let serves = name == self.serving;
        entry.value.add(reward, success, recent.errored);
        if settings.choose.rule == ChooseRule::Linucb {
            entry.linear.get_or_insert_default().observe(&outcome.context, reward);
        }
        let watch = entry.guard.observe(&entry.value, recent, serves, &settings.rollback);
        let metrics = watch.metrics.unwrap_or_default();
        let mut events = Vec::new();
        match watch.turned {
            Some(Standing::Suspect) => {
                events.push(BoardEvent::Suspect { variant: name.to_owned(), degradation_metrics: metrics });
            }
            Some(Standing::Ok) => events.push(BoardEvent::Cleared { variant: name.to_owned() }),
            Some(Standing::RolledBack) | None => {}
        }
        if self.may_roll_back(name) {
            let worse = self.compare(name, success, settings);
            if let Some(reason) = watch.alarm {
                events.extend(self.roll_back(name, reason, metrics, at, settings));
            } else if let Some((name, reason)) = worse {
                events.extend(self.roll_back(&name, reason, metrics, at, settings));
            }
        }
        events.extend(self.observe_release(name, success, outcome.safety.as_ref(), at, settings));
        events.extend(self.consider(name, at, settings));
        Ok(events)
    }

    /// Takes what judges said of an answer that the candidate of a release gave in shadow.
    pub fn observe_shadow(
        &mut self,
        safety: &SafetyOutcome,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
        if self.paused {
            return Vec::new();
        }
        let event = self.release.as_mut().and_then(|run| run.observe_safety(safety, at, &settings.release));
        self.follow(event)
    }

    /// Lets the release move on by time alone.
    pub fn tick(&mut self, at: Timestamp, settings: &Settings) -> Vec<BoardEvent> {
        if self.paused {
            return Vec::new();
        }
        let event = self.release.as_mut().and_then(|run| run.tick(at, &settings.release));
        self.follow(event)
    }

    /// What is to be done about a variant at this time, and why.
    pub fn decision(&self, name: &str, at: Timestamp, settings: &Settings) -> Result<VariantDecision, Error> {
        let entry = self.entry(name)?;
        Ok(decide(&entry.value, &self.circumstances(entry, at, settings), &settings.decide))
    }

    /// A variant with what is known of it.
    pub fn entry(&self, name: &str) -> Result<&Entry, Error> {
        self.entries.get(name).ok_or_else(|| Error::UnknownVariant(name.to_owned()))
    }

    fn may_roll_back(&self, name: &str) -> bool {
        let live = self.entries.get(name).is_some_and(|entry| entry.variant.status == VariantStatus::Live);
        live && self.frozen.is_none()
    }

    /// Sets the outcome beside those of the other side of each comparison. A release has its own.
    fn compare(&mut self, name: &str, success: bool, settings: &Settings) -> Option<(String, String)> {
        if settings.rollback.mode != RollbackMode::Bounded || self.paused || self.running_release().is_some()
        {
            return None;
        }
        let serving = self.serving.clone();
        let live = self.entries.values().filter(|entry| entry.variant.status == VariantStatus::Live).count();
        // Rules may share unevenly; an even split is a fair guess at the size of a block under any of them.
        let share = 1.0 / live.max(2) as f64;
        let threshold = (1.0 / settings.rollback.alpha).ln();
        for (other, entry) in &mut self.entries {
            let concerned = name == serving || *other == name;
            if *other == serving || !concerned || entry.variant.status != VariantStatus::Live {
                continue;
            }
            let rival = entry.rival.get_or_insert_with(|| TwoSample::new(share));
            let evidence = rival.observe(*other == name, success, share);
            if evidence >= threshold {
                let reason = format!(
                    "Success rate {:.0}% is below that of `{serving}` at the same time; evidence {:.0} of {:.0}",
                    100.0 * entry.value.success_rate(),
                    evidence.exp(),
                    threshold.exp()
                );
                return Some((other.clone(), reason));
            }
        }
        None
    }

    fn observe_release(
        &mut self,
        name: &str,
        success: bool,
        safety: Option<&SafetyOutcome>,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
        if self.paused {
            return Vec::new();
        }
        let serving = &self.serving;
        let event = self.release.as_mut().filter(|run| run.is_active()).and_then(|run| {
            let side = match name {
                name if name == run.release.candidate => Side::Candidate,
                name if name == serving => Side::Control,
                _ => return None,
            };
            run.observe(side, success, safety, at, &settings.release)
        });
        self.follow(event)
    }

    /// Carries out what a release decided.
    fn follow(&mut self, event: Option<ReleaseEvent>) -> Vec<BoardEvent> {
        let Some(event) = event else { return Vec::new() };
        let Some(candidate) = self.release.as_ref().map(|run| run.release.candidate.clone()) else {
            return Vec::new();
        };
        match event.to_status {
            ReleaseStatus::Completed => self.serve(&candidate),
            ReleaseStatus::Aborted => self.retreat(&candidate),
            ReleaseStatus::Running | ReleaseStatus::Held | ReleaseStatus::Paused => {}
        }
        vec![BoardEvent::Release(event)]
    }

    /// Applies or names a variant when what is to be done about it has changed.
    fn consider(&mut self, name: &str, at: Timestamp, settings: &Settings) -> Option<BoardEvent> {
        let entry = self.entries.get(name)?;
        if name == self.serving || entry.variant.status != VariantStatus::Live {
            return None;
        }
        let now = action(&entry.value, &self.circumstances(entry, at, settings), &settings.decide);
        if now == entry.action {
            return None;
        }
        let decision = decide(&entry.value, &self.circumstances(entry, at, settings), &settings.decide);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.action = now;
        }
        let variant = name.to_owned();
        if now != Action::AutoApply {
            return Some(BoardEvent::Decided { variant, decision });
        }
        let from_variant = self.serving.clone();
        self.serve(name);
        Some(BoardEvent::Applied { variant, from_variant, decision })
    }

    fn circumstances<'a>(&'a self, entry: &Entry, at: Timestamp, settings: &Settings) -> Circumstances<'a> {
        let name = &entry.variant.name;
        let incumbent = if *name == self.serving { None } else { self.entries.get(&self.serving) };
        let held = if self.frozen.is_some() {
            Some("the board is frozen")
        } else if self.paused {
            Some("the board is paused")
        } else if self.running_release().is_some() {
            Some("a release is under way")
        } else if self.in_cooldown(at, settings) {
            Some("it is too soon after a rollback")
        } else {
            None
        };
        Circumstances {
            standing: entry.guard.standing(),
            incumbent: incumbent.map(|entry| &entry.value),
            held,
        }
    }

    /// Lets a variant serve alone. The others stand by.
    fn serve(&mut self, name: &str) {
        for entry in self.entries.values_mut() {
            if entry.variant.status == VariantStatus::Live {
                set_status(entry, VariantStatus::Standby);
            }
        }
        self.take_over(name);
    }

    /// Lets a variant serve and defends what it has shown; comparisons begin anew.
    fn take_over(&mut self, name: &str) {
        for entry in self.entries.values_mut() {
            entry.rival = None;
        }
        if let Some(entry) = self.entries.get_mut(name) {
            set_status(entry, VariantStatus::Live);
            entry.guard.reset();
            entry.action = Action::NoAction;
            if entry.value.visits > 0 {
                entry.guard.freeze(&entry.value);
            }
        }
        name.clone_into(&mut self.serving);
        self.version += 1;
    }

    /// Takes the traffic of a candidate away.
    fn retreat(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            set_status(entry, VariantStatus::RolledBack);
            entry.guard.condemn();
            entry.rival = None;
            self.version += 1;
        }
    }
}

/// Changes the status and counts the change.
fn set_status(entry: &mut Entry, status: VariantStatus) {
    if entry.variant.status != status {
        entry.variant.status = status;
        entry.variant.version += 1;
    }
}

#[cfg(test)]
mod tests;
