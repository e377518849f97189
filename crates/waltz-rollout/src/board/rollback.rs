//! Takes traffic from a variant that makes things worse. What was rolled back is never rolled back to unless it is
//! the safe default, a second rollback in a short time goes to the safe default, and too many freeze the board:
//! nothing can swing to and fro.

use jiff::{SignedDuration, Timestamp};
use waltz_exchange::id::sha256_hex;
use waltz_exchange::release::PROGRAM;
use waltz_exchange::rollback::{DegradationMetrics, RollbackEvent};
use waltz_exchange::variant::VariantStatus;

use super::{Board, BoardEvent, set_status};
use crate::guard::Standing;
use crate::settings::Settings;

const DAY: SignedDuration = SignedDuration::from_hours(24);

impl Board {
    /// Takes the traffic of `from`, which has some, and says what became of it.
    pub(super) fn roll_back(
        &mut self,
        from: &str,
        reason: String,
        metrics: DegradationMetrics,
        at: Timestamp,
        settings: &Settings,
    ) -> Vec<BoardEvent> {
        if from != self.serving {
            let to = self.serving.clone();
            self.retreat(from);
            let mut events = vec![self.rollback_event(from, &to, reason, metrics, at)];
            if self.is_candidate(from) {
                events.extend(self.abandon_release("the candidate was rolled back", at));
            }
            return events;
        }
        self.rollbacks.retain(|past| at.duration_since(*past) < DAY);
        let too_many = self.rollbacks.len() >= settings.rollback.max_per_day;
        let target = if too_many || self.in_cooldown(at, settings) {
            self.safe_default.clone()
        } else {
            self.best_other(from, settings).unwrap_or_else(|| self.safe_default.clone())
        };
        if target == from {
            let reason = format!("{reason}; there is no variant to roll back to");
            self.freeze(&reason, at);
            self.version += 1;
            return vec![BoardEvent::Frozen { reason }];
        }
        let mut events = self.abandon_release("the control was rolled back", at);
        self.step_back(from, &target);
        self.rollbacks.push(at);
        events.insert(0, self.rollback_event(from, &target, reason, metrics, at));
        if too_many {
            let reason = format!("more than {} rollbacks within a day", settings.rollback.max_per_day);
            self.freeze(&reason, at);
            events.push(BoardEvent::Frozen { reason });
        }
        events
    }

    /// Whether a rollback is so recent that nothing may be applied.
    pub(super) fn in_cooldown(&self, at: Timestamp, settings: &Settings) -> bool {
        let cooldown = SignedDuration::from_secs(settings.rollback.cooldown_seconds);
        self.rollbacks.last().is_some_and(|last| at.duration_since(*last) < cooldown)
    }

    /// The variant with the highest mean that is known well enough and is not in doubt itself.
    pub(crate) fn best_other(&self, from: &str, settings: &Settings) -> Option<String> {
        // Older versions of the program itself are not in memory any more.
        let others = self.entries.values().filter(|_| self.agent != PROGRAM);
        others
            .filter(|entry| {
                let status = entry.variant.status;
                entry.variant.name != from
                    // What is released has not shown yet that it can carry everything.
                    && !self.is_candidate(&entry.variant.name)
                    && matches!(status, VariantStatus::Live | VariantStatus::Standby)
                    && entry.guard.standing() == Standing::Ok
                    && entry.value.visits >= settings.rollback.target_visits
            })
            .max_by(|one, other| one.value.q().total_cmp(&other.value.q()))
            .map(|entry| entry.variant.name.clone())
    }

    /// Serves `target` and condemns `from`. Other live variants go on competing, now with `target`.
    pub(super) fn step_back(&mut self, from: &str, target: &str) {
        self.take_over(target);
        self.retreat(from);
    }

    /// Ends the release for a cause outside of its candidate, which stands by: nothing is held against it.
    pub(super) fn abandon_release(&mut self, reason: &str, at: Timestamp) -> Vec<BoardEvent> {
        let run = self.release.as_mut();
        let Some((name, event)) =
            run.and_then(|run| Some((run.release.candidate.clone(), run.abandon(reason, at)?)))
        else {
            return Vec::new();
        };
        if let Some(entry) =
            self.entries.get_mut(&name).filter(|entry| entry.variant.status == VariantStatus::Live)
        {
            set_status(entry, VariantStatus::Standby);
        }
        vec![BoardEvent::Release(event)]
    }

    fn is_candidate(&self, name: &str) -> bool {
        self.running_release().is_some_and(|run| run.release.candidate == name)
    }

    fn freeze(&mut self, reason: &str, at: Timestamp) {
        self.frozen = Some(reason.to_owned());
        self.settle(at);
    }

    pub(super) fn rollback_event(
        &self,
        from: &str,
        to: &str,
        reason: String,
        degradation_metrics: DegradationMetrics,
        timestamp: Timestamp,
    ) -> BoardEvent {
        let Self { agent, task_type, version, .. } = self;
        let key = format!("{agent}\u{1f}{task_type}\u{1f}{from}\u{1f}{to}\u{1f}{version}\u{1f}{timestamp}");
        BoardEvent::RolledBack(RollbackEvent {
            rollback_id: dated_id("rb", &key, timestamp),
            timestamp,
            agent_name: agent.clone(),
            task_type: task_type.clone(),
            from_variant: from.to_owned(),
            to_variant: to.to_owned(),
            reason,
            degradation_metrics,
        })
    }
}

/// An id of the older form: a prefix, the day, and eight hex digits of the key's hash.
pub(crate) fn dated_id(prefix: &str, key: &str, at: Timestamp) -> String {
    let day: String = at.to_string().chars().take(10).filter(char::is_ascii_digit).collect();
    format!("{prefix}-{day}-{}", &sha256_hex(key.as_bytes())[..8])
}
