//! All that is known and decided for one agent and task type. The gateway asks it which variant serves and tells it
//! what came of it; what follows comes back as events, and the state as a whole can be written down and read again.

mod change;
mod event;
mod learn;
mod rollback;
mod share;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::release::{ReleaseEvent, ReleaseStatus};
use waltz_exchange::variant::{DEFAULT_VARIANT, Variant, VariantStatus};

pub use change::Change;
pub use event::BoardEvent;
pub(crate) use rollback::dated_id;

use crate::choose::Linear;
use crate::decide::{Action, Circumstances, VariantDecision, decide};
use crate::evidence::TwoSample;
use crate::guard::Guard;
use crate::release::ReleaseRun;
use crate::subject::SubjectCap;
use crate::{Error, Settings, Value};

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
    /// Since when everything is paused, here and elsewhere; see [`Board::stand`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<Timestamp>,
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
    /// Begins anew: what was learned and held against it is forgotten, and what was believed before stays.
    fn forget(&mut self) {
        self.value = Value { prior: self.value.prior, ..Value::default() };
        self.linear = None;
        self.rival = None;
        self.guard.reset();
    }

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
            held: None,
            entries: BTreeMap::from([(DEFAULT_VARIANT.to_owned(), Entry::new(default))]),
            release: None,
            rollbacks: Vec::new(),
            subjects: SubjectCap::default(),
        }
    }

    /// Takes note of whether everything is paused, and since when. Whoever reads a board says it before anything else
    /// happens on it. Returns whether that made a difference.
    pub fn stand(&mut self, held: Option<Timestamp>, at: Timestamp) -> bool {
        let clock = |board: &Self| board.release.as_ref().and_then(|run| run.release.paused_at);
        let before = (self.held, clock(self));
        self.held = held;
        self.settle(at);
        before != (self.held, clock(self))
    }

    /// Whether variants compete, or one is on its way.
    pub fn is_moving(&self) -> bool {
        let live = |entry: &&Entry| entry.variant.status == VariantStatus::Live;
        self.running_release().is_some() || self.entries.values().filter(live).count() > 1
    }

    /// Lets time act: the release moves on, and what is known is looked at under the settings of now.
    pub fn tick(&mut self, at: Timestamp, settings: &Settings) -> Vec<BoardEvent> {
        let mut events = self.recheck(at, settings);
        let event = self.release.as_mut().and_then(|run| run.tick(at, &settings.release));
        events.extend(self.follow(event));
        events
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

    /// Whether nothing may gain traffic.
    fn is_still(&self) -> bool {
        self.held.is_some() || self.paused || self.frozen.is_some()
    }

    /// Stops the release's clock, or lets it go on. What waits to be compared does not outlast a stop.
    fn settle(&mut self, at: Timestamp) {
        let still = self.is_still().then(|| self.held.unwrap_or(at));
        if let Some(run) = &mut self.release {
            run.stand(still, at);
        }
        if still.is_some() {
            self.entries.values_mut().filter_map(|entry| entry.rival.as_mut()).for_each(TwoSample::interrupt);
        }
    }

    /// Carries out what a release decided. Where nobody asked for its end, that is a rollback like any other.
    fn follow(&mut self, event: Option<ReleaseEvent>) -> Vec<BoardEvent> {
        let (Some(event), Some(run)) = (event, &self.release) else { return Vec::new() };
        let (candidate, metrics) = (run.release.candidate.clone(), run.degradation());
        let mut events = Vec::new();
        match event.to_status {
            ReleaseStatus::Completed => self.serve(&candidate),
            ReleaseStatus::Aborted => {
                self.retreat(&candidate);
                if event.by.is_none() {
                    let (to, reason) = (self.serving.clone(), event.reasons.join("; "));
                    events.push(self.rollback_event(&candidate, &to, reason, metrics, event.at));
                }
            }
            ReleaseStatus::Running | ReleaseStatus::Held | ReleaseStatus::Paused => {}
        }
        events.push(BoardEvent::Release(event));
        events
    }

    fn circumstances<'a>(&'a self, entry: &Entry, at: Timestamp, settings: &Settings) -> Circumstances<'a> {
        let name = &entry.variant.name;
        let incumbent = if *name == self.serving { None } else { self.entries.get(&self.serving) };
        let held = if self.held.is_some() {
            Some("everything is paused")
        } else if self.frozen.is_some() {
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
