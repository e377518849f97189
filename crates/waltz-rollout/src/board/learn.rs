//! What a board makes of outcomes. One answer is one outcome: a report on an answer that the judge has judged corrects
//! Q, and no evidence counts it again.

use jiff::Timestamp;
use waltz_exchange::release::ReleaseKind;
use waltz_exchange::rollback::DegradationMetrics;
use waltz_exchange::variant::{OutcomeClass, SafetyOutcome, VariantOutcome, VariantStatus};

use super::{Board, BoardEvent};
use crate::decide::{Action, action, decide};
use crate::evidence::TwoSample;
use crate::guard::Standing;
use crate::release::Side;
use crate::subject::Admission;
use crate::window::Recent;
use crate::{ChooseRule, Error, RollbackMode, Settings, reward};

/// The subject of reports that name none.
const ANONYMOUS: &str = "anonymous";

/// A variant that is found to be worse, why, and the numbers.
type Worse = (String, String, DegradationMetrics);

impl Board {
    /// Takes an outcome and returns what follows from it. Failures of the infrastructure are counted and change
    /// nothing; what judges said of the answer reaches the release all the same.
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
            return Ok(self.observe_safety(name, outcome.safety.as_ref(), at, settings));
        };
        let success = outcome.class == OutcomeClass::Success;
        let recent = Recent { success, reward, errored: !success || outcome.errors > 0 };
        let serves = name == self.serving;
        entry.value.add(reward, success, recent.errored);
        if settings.choose.rule == ChooseRule::Linucb {
            entry.linear.get_or_insert_default().observe(&outcome.context, reward);
        }
        let watch = entry.guard.observe(&entry.value, recent, serves, &settings.rollback);
        let standing = entry.guard.standing();
        let metrics = watch.metrics.unwrap_or_default();
        let mut events = Vec::new();
        match watch.turned {
            Some(Standing::Suspect) => {
                events.push(BoardEvent::Suspect { variant: name.to_owned(), degradation_metrics: metrics });
            }
            Some(Standing::Ok) => events.push(BoardEvent::Cleared { variant: name.to_owned() }),
            Some(Standing::RolledBack) | None => {}
        }
        if let Some(run) = self.release.as_mut().filter(|run| run.release.candidate == name) {
            run.suspect = standing == Standing::Suspect;
        }
        if self.may_roll_back(name) {
            let worse = self.compare(name, success, settings);
            let alarm = watch.alarm.map(|reason| (name.to_owned(), reason, metrics));
            if let Some((name, reason, metrics)) = alarm.or(worse) {
                events.extend(self.roll_back(&name, reason, metrics, at, settings));
            }
        }
        events.extend(self.observe_release(name, success, outcome.safety.as_ref(), at, settings));
        events.extend(self.consider(name, at, settings));
        Ok(events)
    }

    /// Takes what a client reports of an answer. `served` is what the judge made of it, where it did: then the report
    /// takes that one's place in Q, and nothing else follows. One subject counts only so often.
    pub fn report(
        &mut self,
        outcome: &VariantOutcome,
        served: Option<&VariantOutcome>,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<Vec<BoardEvent>, Error> {
        let Some(new) = reward(outcome)? else { return self.observe(outcome, at, settings) };
        let name = outcome.variant.as_str();
        let entry = self.entries.get_mut(name).ok_or_else(|| Error::UnknownVariant(name.to_owned()))?;
        let subject = outcome.subject.as_deref().unwrap_or(ANONYMOUS);
        if let Admission::Capped { news } = self.subjects.admit(subject, at, &settings.subject) {
            let event = BoardEvent::SubjectCapped { subject: subject.to_owned(), variant: name.to_owned() };
            return Ok(if news { vec![event] } else { Vec::new() });
        }
        let Some(served) = served else { return self.observe(outcome, at, settings) };
        let Some(old) = reward(served)? else { return self.observe(outcome, at, settings) };
        entry.value.correct(old, new);
        Ok(Vec::new())
    }

    /// Takes what judges said of an answer that the candidate of a release gave in shadow.
    pub fn observe_shadow(
        &mut self,
        safety: &SafetyOutcome,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
        let event = self.release.as_mut().and_then(|run| run.observe_safety(safety, at, &settings.release));
        self.follow(event)
    }

    /// Looks at all evidence again, because settings may have become stricter since it was gathered.
    pub(super) fn recheck(&mut self, at: Timestamp, settings: &Settings) -> Vec<BoardEvent> {
        let live: Vec<String> =
            self.entries.keys().filter(|name| self.may_roll_back(name)).cloned().collect();
        for name in live {
            let Some(entry) = self.entries.get(&name) else { continue };
            let alarm = entry.guard.recheck(&entry.value, name == self.serving, &settings.rollback);
            let alarm = alarm.map(|(reason, metrics)| (name.clone(), reason, metrics));
            let ln_e = entry.rival.as_ref().map_or(0.0, TwoSample::ln_e);
            let worse = self.outdone(&name, ln_e, settings);
            if let Some((name, reason, metrics)) = alarm.or(worse) {
                // The others are looked at the next time, beside what serves then.
                return self.roll_back(&name, reason, metrics, at, settings);
            }
        }
        Vec::new()
    }

    fn may_roll_back(&self, name: &str) -> bool {
        let live = self.entries.get(name).is_some_and(|entry| entry.variant.status == VariantStatus::Live);
        // Whoever makes a judge find fault must not be able to take it out of service.
        let judges_itself = ReleaseKind::of(&self.agent, &self.task_type).judges_itself();
        live && self.frozen.is_none() && !judges_itself
    }

    /// Sets the outcome beside those of the other side of each comparison. A release has its own.
    fn compare(&mut self, name: &str, success: bool, settings: &Settings) -> Option<Worse> {
        if settings.rollback.mode != RollbackMode::Bounded
            || self.is_still()
            || self.running_release().is_some()
        {
            return None;
        }
        let live = self.entries.values().filter(|entry| entry.variant.status == VariantStatus::Live).count();
        // Rules may share unevenly; an even split is a fair guess at the size of a block under any of them.
        let share = 1.0 / live.max(2) as f64;
        let mut found = None;
        for (other, entry) in &mut self.entries {
            let concerned = name == self.serving || *other == name;
            if *other == self.serving || !concerned || entry.variant.status != VariantStatus::Live {
                continue;
            }
            let rival = entry.rival.get_or_insert_with(|| TwoSample::new(share));
            let ln_e = rival.observe(*other == name, success, share);
            if ln_e >= threshold(settings) && found.is_none() {
                found = Some((other.clone(), ln_e));
            }
        }
        let (other, ln_e) = found?;
        self.outdone(&other, ln_e, settings)
    }

    /// Whether the evidence against a variant beside what serves is enough.
    fn outdone(&self, name: &str, ln_e: f64, settings: &Settings) -> Option<Worse> {
        let bounded = settings.rollback.mode == RollbackMode::Bounded;
        let entry = self.entries.get(name).filter(|_| bounded && ln_e >= threshold(settings))?;
        let reason = format!(
            "Success rate {:.0}% is below that of `{}` at the same time; evidence {:.0} of {:.0}",
            100.0 * entry.value.success_rate(),
            self.serving,
            ln_e.exp(),
            threshold(settings).exp()
        );
        let metrics = entry.guard.window(&entry.value, &settings.rollback).unwrap_or_default();
        Some((name.to_owned(), reason, metrics))
    }

    fn observe_release(
        &mut self,
        name: &str,
        success: bool,
        safety: Option<&SafetyOutcome>,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
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

    /// Tells the release what judges said of an answer that is no outcome.
    fn observe_safety(
        &mut self,
        name: &str,
        safety: Option<&SafetyOutcome>,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
        let run = self.release.as_mut().filter(|run| run.release.candidate == name);
        let event =
            run.zip(safety).and_then(|(run, safety)| run.observe_safety(safety, at, &settings.release));
        self.follow(event)
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
}

fn threshold(settings: &Settings) -> f64 {
    (1.0 / settings.rollback.alpha).ln()
}
