//! The older rule of degradation: how the last outcomes compare with all before them. It is quick because it fires on
//! noise: a healthy variant of 0.90 breaches it in 32 % of all looks. So it makes a variant suspect and no more.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use waltz_exchange::rollback::DegradationMetrics;

use crate::settings::RollbackSettings;
use crate::value::Value;

/// One outcome of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// The task was done.
    pub success: bool,
    /// Its reward.
    pub reward: f64,
    /// It failed or met errors.
    pub errored: bool,
}

/// How the window compares with all outcomes of `value` before it; none until both are full.
pub(crate) fn compare(recent: &VecDeque<Recent>, value: &Value, window: usize) -> Option<DegradationMetrics> {
    let size = recent.len();
    let before = value.visits.checked_sub(size as u64)?;
    if size < window || before < window as u64 {
        return None;
    }
    let (mut successes, mut errored, mut sum) = (0_u64, 0_u64, 0.0);
    for outcome in recent {
        successes += u64::from(outcome.success);
        errored += u64::from(outcome.errored);
        sum += outcome.reward;
    }
    let (earlier, now) = (before as f64, size as f64);
    let baseline_success_rate = (value.successes - successes) as f64 / earlier;
    let recent_success_rate = successes as f64 / now;
    let baseline_reward = (value.sum - sum) / earlier;
    let recent_reward = sum / now;
    let baseline_error_rate = (value.errored - errored) as f64 / earlier;
    let recent_error_rate = errored as f64 / now;
    Some(DegradationMetrics {
        baseline_success_rate,
        recent_success_rate,
        success_drop_pct: relative(baseline_success_rate - recent_success_rate, baseline_success_rate),
        baseline_reward,
        recent_reward,
        reward_drop_pct: relative(baseline_reward - recent_reward, baseline_reward),
        baseline_error_rate,
        recent_error_rate,
        error_increase_pct: relative(recent_error_rate - baseline_error_rate, baseline_error_rate),
        sample_size: size as u64,
    })
}

/// What of the rule is breached, in words.
pub(crate) fn breaches(metrics: &DegradationMetrics, settings: &RollbackSettings) -> Vec<String> {
    let mut breaches = Vec::new();
    let percent = |share: f64| 100.0 * share;
    if metrics.success_drop_pct > settings.success_drop {
        breaches.push(format!(
            "Success rate dropped from {:.0}% to {:.0}% ({:.1}% drop)",
            percent(metrics.baseline_success_rate),
            percent(metrics.recent_success_rate),
            percent(metrics.success_drop_pct)
        ));
    }
    if metrics.reward_drop_pct > settings.reward_drop {
        breaches.push(format!(
            "Mean reward dropped from {:.2} to {:.2} ({:.1}% drop)",
            metrics.baseline_reward,
            metrics.recent_reward,
            percent(metrics.reward_drop_pct)
        ));
    }
    if metrics.error_increase_pct > settings.error_increase {
        breaches.push(format!(
            "Error rate rose from {:.0}% to {:.0}% ({:.1}% rise)",
            percent(metrics.baseline_error_rate),
            percent(metrics.recent_error_rate),
            percent(metrics.error_increase_pct)
        ));
    }
    breaches
}

/// The same without words, for every outcome.
pub(crate) fn is_breached(metrics: &DegradationMetrics, settings: &RollbackSettings) -> bool {
    metrics.success_drop_pct > settings.success_drop
        || metrics.reward_drop_pct > settings.reward_drop
        || metrics.error_increase_pct > settings.error_increase
}

fn relative(change: f64, from: f64) -> f64 {
    if from > 0.0 { change / from } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_compared_with_what_came_before_it() {
        let outcome = |success| Recent { success, reward: f64::from(u8::from(success)), errored: !success };
        let mut value = Value::default();
        let mut recent = VecDeque::new();
        for step in 0..40 {
            // 18 of the first 20 and 15 of the last 20.
            let success = if step < 20 { step % 10 != 0 } else { step % 4 != 0 };
            value.add(outcome(success).reward, success, !success);
            if step >= 20 {
                recent.push_back(outcome(success));
                assert_eq!(compare(&recent, &value, 20).is_some(), step == 39, "{step}");
            }
        }
        let metrics = compare(&recent, &value, 20).unwrap();
        assert_eq!((metrics.baseline_success_rate, metrics.recent_success_rate), (0.90, 0.75));
        let words = breaches(&metrics, &RollbackSettings::default());
        assert_eq!(words[0], "Success rate dropped from 90% to 75% (16.7% drop)");
        assert_eq!(words.len(), 3);
        assert!(is_breached(&metrics, &RollbackSettings::default()));
        let lenient = RollbackSettings {
            success_drop: 0.2,
            reward_drop: 0.2,
            error_increase: 2.0,
            ..RollbackSettings::default()
        };
        assert!(breaches(&metrics, &lenient).is_empty() && !is_breached(&metrics, &lenient));
    }
}
