//! Watches one variant: the window makes it suspect, and for the variant that serves, two detectors with a frozen
//! baseline say when it must be rolled back. The board calls it with every outcome; each takes constant time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use waltz_exchange::rollback::DegradationMetrics;

use crate::evidence::Shiryaev;
use crate::gate::lower_bound;
use crate::settings::{RollbackMode, RollbackSettings};
use crate::value::Value;
use crate::window::{self, Recent};

/// Success and reward are watched apart and share the chance of a false alarm.
const METRICS: f64 = 2.0;
/// A baseline is estimated again when so many outcomes are there; the first makes one for a variant that was never
/// promoted.
const MILESTONES: [u64; 4] = [100, 200, 500, WELL_KNOWN];
/// From so many outcomes on a mean is defended as it is.
const WELL_KNOWN: u64 = 1000;
/// The chance that a bound below an estimated baseline lies too high, on each side of the usual 95 %.
const BASELINE_ALPHA: f64 = 0.025;

/// Whether a variant can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nothing is known against it.
    #[default]
    Ok,
    /// Its last window was breached: it is not promoted, and people are told.
    Suspect,
    /// It was found to make things worse.
    RolledBack,
}

/// The state of the watch over one variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    standing: Standing,
    recent: VecDeque<Recent>,
    /// Outcomes since the window was last breached.
    clean: usize,
    detector: Option<Detector>,
}

/// Defends a frozen baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Detector {
    success: Shiryaev,
    reward: Shiryaev,
    /// Outcomes behind the baseline; none when it was given.
    visits: Option<u64>,
}

/// What the guard saw in an outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The window, where it is full.
    pub metrics: Option<DegradationMetrics>,
    /// The standing changed to this.
    pub turned: Option<Standing>,
    /// The variant must be rolled back, for this reason.
    pub alarm: Option<String>,
}

impl Guard {
    /// Whether the variant can be trusted.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Begins to defend what the variant has shown so far: a bound below it, or from 1,000 outcomes on its mean.
    pub fn freeze(&mut self, value: &Value) {
        self.detector = Some(Detector {
            success: Shiryaev::new(baseline(value.successes as f64, value)),
            reward: Shiryaev::new(baseline(value.sum, value)),
            visits: Some(value.visits),
        });
    }

    /// Defends a known success rate and mean reward, which are not estimated again.
    pub fn defend(&mut self, success: f64, reward: f64) {
        self.detector =
            Some(Detector { success: Shiryaev::new(success), reward: Shiryaev::new(reward), visits: None });
    }

    /// Starts anew: no standing, no window, no baseline.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The variant was rolled back.
    pub(crate) fn condemn(&mut self) {
        *self = Self { standing: Standing::RolledBack, ..Self::default() };
    }

    /// Takes an outcome that `value` already holds. `serves` says whether the variant is the one that serves.
    pub fn observe(
        &mut self,
        value: &Value,
        outcome: Recent,
        serves: bool,
        settings: &RollbackSettings,
    ) -> Watch {
        self.recent.push_back(outcome);
        while self.recent.len() > settings.window {
            self.recent.pop_front();
        }
        let metrics = self.window(value, settings);
        let breached = metrics.as_ref().is_some_and(|metrics| window::is_breached(metrics, settings));
        let turned = self.turn(breached, settings.window);
        if serves {
            self.detect(value, outcome);
        }
        let alarm = self.alarm(metrics.as_ref(), serves, settings);
        Watch { metrics, turned, alarm }
    }

    /// The last outcomes beside all before them, where there are enough of both.
    pub(crate) fn window(&self, value: &Value, settings: &RollbackSettings) -> Option<DegradationMetrics> {
        window::compare(&self.recent, value, settings.window)
    }

    /// Whether what is known so far wants a rollback under these settings, why, and the window's numbers.
    pub fn recheck(
        &self,
        value: &Value,
        serves: bool,
        settings: &RollbackSettings,
    ) -> Option<(String, DegradationMetrics)> {
        let metrics = self.window(value, settings);
        let reason = self.alarm(metrics.as_ref(), serves, settings)?;
        Some((reason, metrics.unwrap_or_default()))
    }

    fn alarm(
        &self,
        metrics: Option<&DegradationMetrics>,
        serves: bool,
        settings: &RollbackSettings,
    ) -> Option<String> {
        let breached = metrics.filter(|metrics| window::is_breached(metrics, settings));
        let words = || breached.map(|metrics| window::breaches(metrics, settings).join("; "));
        match settings.mode {
            RollbackMode::Bounded => self
                .evidence()
                .filter(|(_, evidence)| serves && *evidence >= METRICS * settings.horizon / settings.alpha)
                .map(|(name, evidence)| {
                    format!(
                        "{}; evidence of a lower {name} {evidence:.3e}",
                        words().unwrap_or_else(|| "Performance fell below its baseline".to_owned())
                    )
                }),
            RollbackMode::Window => words(),
            RollbackMode::Off => None,
        }
    }

    fn turn(&mut self, breached: bool, window: usize) -> Option<Standing> {
        self.clean = if breached { 0 } else { self.clean + 1 };
        let next = match self.standing {
            Standing::Ok if breached => Standing::Suspect,
            Standing::Suspect if self.clean >= window => Standing::Ok,
            same => same,
        };
        (next != self.standing).then(|| {
            self.standing = next;
            next
        })
    }

    fn detect(&mut self, value: &Value, outcome: Recent) {
        self.renew(value);
        if let Some(detector) = &mut self.detector {
            detector.success.observe(f64::from(u8::from(outcome.success)));
            detector.reward.observe(outcome.reward);
        }
    }

    /// The larger evidence of the two detectors, with its name.
    fn evidence(&self) -> Option<(&'static str, f64)> {
        let detector = self.detector.as_ref()?;
        let (success, reward) = (detector.success.evidence(), detector.reward.evidence());
        Some(if success >= reward { ("success rate", success) } else { ("reward", reward) })
    }

    /// At a milestone a higher estimate takes the baseline's place, never a lower one: what fell slowly would
    /// otherwise be defended in its fallen state. A suspect gets its baseline too: most suspects are healthy.
    fn renew(&mut self, value: &Value) {
        let reached = MILESTONES.into_iter().rfind(|milestone| value.visits >= *milestone);
        let Some(reached) = reached else { return };
        let Some(Detector { success, reward, visits }) = &mut self.detector else {
            self.freeze(value);
            return;
        };
        if visits.is_some_and(|visits| visits < reached) {
            *visits = Some(value.visits);
            for (detector, sum) in [(success, value.successes as f64), (reward, value.sum)] {
                let estimate = baseline(sum, value);
                if estimate > detector.baseline() {
                    *detector = Shiryaev::new(estimate);
                }
            }
        }
    }
}

/// What is defended of a mean: a bound below it, or the mean itself where it is known well.
fn baseline(sum: f64, value: &Value) -> f64 {
    let n = value.visits as f64;
    if value.visits >= WELL_KNOWN { sum / n } else { lower_bound(sum, n, BASELINE_ALPHA) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(success: bool) -> Recent {
        Recent { success, reward: f64::from(u8::from(success)), errored: !success }
    }

    fn feed(
        guard: &mut Guard,
        value: &mut Value,
        settings: &RollbackSettings,
        successes: &[bool],
    ) -> Vec<Watch> {
        successes
            .iter()
            .map(|success| {
                let recent = outcome(*success);
                value.add(recent.reward, recent.success, recent.errored);
                guard.observe(value, recent, true, settings)
            })
            .collect()
    }

    #[test]
    fn a_breach_makes_suspect_and_a_clean_window_clears_it() {
        let (mut guard, mut value) = (Guard::default(), Value::default());
        let settings = RollbackSettings { mode: RollbackMode::Off, ..RollbackSettings::default() };
        feed(&mut guard, &mut value, &settings, &[true; 60]);
        assert_eq!(guard.standing(), Standing::Ok);
        let watches = feed(&mut guard, &mut value, &settings, &[false; 3]);
        assert_eq!(guard.standing(), Standing::Suspect);
        assert!(watches.iter().all(|watch| watch.alarm.is_none()), "mode off never acts");
        let turns: Vec<Standing> = feed(&mut guard, &mut value, &settings, &[true; 60])
            .into_iter()
            .filter_map(|watch| watch.turned)
            .collect();
        assert_eq!(turns, [Standing::Ok]);
    }

    #[test]
    fn the_window_acts_only_in_its_mode() {
        for (mode, acts) in [(RollbackMode::Window, true), (RollbackMode::Bounded, false)] {
            let (mut guard, mut value) = (Guard::default(), Value::default());
            let settings = RollbackSettings { mode, ..RollbackSettings::default() };
            feed(&mut guard, &mut value, &settings, &[true; 60]);
            let watches = feed(&mut guard, &mut value, &settings, &[false; 3]);
            assert_eq!(watches.iter().any(|watch| watch.alarm.is_some()), acts, "{mode:?}");
        }
    }

    #[test]
    fn the_state_goes_on_where_it_was_written_down() {
        let (mut guard, mut value) = (Guard::default(), Value::default());
        let settings = RollbackSettings::default();
        let pattern: Vec<bool> = (0..300).map(|step| step % 9 != 0).collect();
        feed(&mut guard, &mut value, &settings, &pattern);
        let text = serde_json::to_string(&guard).unwrap();
        assert!(text.len() < 3000, "{} bytes", text.len());
        let mut restored: Guard = serde_json::from_str(&text).unwrap();
        assert_eq!(restored, guard);
        let mut same = value.clone();
        let fall = [false; 40];
        assert_eq!(
            feed(&mut guard, &mut value, &settings, &fall),
            feed(&mut restored, &mut same, &settings, &fall)
        );
    }

    #[test]
    fn a_better_estimate_replaces_the_baseline_and_a_worse_one_does_not() {
        let (mut guard, mut value) = (Guard::default(), Value::default());
        let settings = RollbackSettings::default();
        feed(&mut guard, &mut value, &settings, &[true; 10]);
        guard.freeze(&value);
        let first = guard.detector.clone().unwrap().success.baseline();
        feed(&mut guard, &mut value, &settings, &[true; 90]);
        let second = guard.detector.clone().unwrap().success.baseline();
        assert!(first < 0.70 && second > 0.95, "{first}, {second}");
        // It falls to 0.7 over two milestones: the baseline stays where it was.
        let (mut guard_of_fallen, mut fallen) = (Guard::default(), Value::default());
        let before: Vec<bool> = (0..95).map(|step| step % 20 != 0).collect();
        let after: Vec<bool> = (0..110).map(|step| step % 10 >= 3).collect();
        feed(&mut guard_of_fallen, &mut fallen, &settings, &before);
        guard_of_fallen.freeze(&fallen);
        let frozen = guard_of_fallen.detector.clone().unwrap().success.baseline();
        feed(&mut guard_of_fallen, &mut fallen, &settings, &after);
        let detector = guard_of_fallen.detector.clone().unwrap();
        assert_eq!((detector.success.baseline(), fallen.visits), (frozen, 205));
        assert!(detector.visits.is_some_and(|visits| visits >= 200), "the milestones were met");
        assert!(baseline(fallen.successes as f64, &fallen) < frozen, "a worse one was there to be taken");
        guard.defend(0.99, 0.99);
        feed(&mut guard, &mut value, &settings, &[true; 900]);
        assert_eq!(guard.detector.clone().unwrap().success.baseline(), 0.99);
    }
}
