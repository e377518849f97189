//! What has been learned of a variant for an agent and a task type: Q, the mean reward, and its counts.

use serde::{Deserialize, Serialize};

use crate::gate;

/// The step of the moving average.
const EMA_STEP: f64 = 0.1;

/// What has been learned of a variant. Decisions look at counts and sums alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Outcomes that count.
    pub visits: u64,
    /// The sum of their rewards, as they were when they came.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
    /// Successes among them.
    pub successes: u64,
    /// Those that failed or met errors.
    pub errored: u64,
    /// Outcomes that do not count, because the infrastructure failed.
    pub infrastructure: u64,
    /// Outcomes of a judge whose place in Q a client's report has taken.
    #[serde(default)]
    pub corrected: u64,
    /// What these reports changed in the sum of the rewards, all in all.
    #[serde(default)]
    pub correction: f64,
    /// A moving average of the rewards, for the eye; nothing is decided by it.
    pub ema: f64,
    /// What similar agents suggest; only the choice among variants looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<Prior>,
}

/// What is believed before the first outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    /// The mean reward that is expected.
    pub mean: f64,
    /// How many outcomes the belief is worth.
    pub weight: f64,
}

impl Value {
    /// Takes one outcome.
    pub fn add(&mut self, reward: f64, success: bool, errored: bool) {
        self.ema = if self.visits == 0 { reward } else { self.ema + EMA_STEP * (reward - self.ema) };
        self.visits += 1;
        self.sum += reward;
        self.squares += reward * reward;
        self.successes += u64::from(success);
        self.errored += u64::from(errored);
    }

    /// Puts a reward in the place of one that was added, for Q. What was gathered as evidence stays as it is: it must not
    /// move by what only some clients choose to say.
    pub(crate) fn correct(&mut self, old: f64, new: f64) {
        self.corrected += 1;
        self.correction += new - old;
    }

    /// The sum of the rewards after what clients corrected. What was forgotten since it was corrected cannot carry it
    /// out of its bounds.
    pub fn rewards(&self) -> f64 {
        (self.sum + self.correction).clamp(0.0, self.visits as f64)
    }

    /// Q: the mean reward; 0 before the first outcome.
    pub fn q(&self) -> f64 {
        share(self.rewards(), self.visits)
    }

    /// The share of successes; 0 before the first outcome.
    pub fn success_rate(&self) -> f64 {
        share(self.successes as f64, self.visits)
    }

    /// The variance of the rewards; 0 below two outcomes.
    pub fn variance(&self) -> f64 {
        if self.visits < 2 {
            return 0.0;
        }
        let n = self.visits as f64;
        ((self.squares - self.sum * self.sum / n) / (n - 1.0)).max(0.0)
    }

    /// The one-sided 95 % bound above Q.
    pub fn upper_bound(&self) -> f64 {
        gate::upper_bound(self.rewards(), self.visits as f64, 0.05)
    }

    /// Sum and count with the prior, for choosing.
    pub fn believed(&self) -> (f64, f64) {
        let (mean, weight) = self.prior.map_or((0.0, 0.0), |prior| (prior.mean, prior.weight));
        (self.rewards() + mean * weight, self.visits as f64 + weight)
    }
}

fn share(sum: f64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { sum / n as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_is_the_mean_and_reaches_the_thresholds_when_they_say_so() {
        let mut value = Value::default();
        for _ in 0..9 {
            value.add(1.0, true, false);
        }
        value.add(0.0, false, true);
        assert_eq!((value.q(), value.visits, value.success_rate()), (0.9, 10, 0.9));
        assert!((value.variance() - 0.1).abs() < 1e-12);
        assert!((value.ema - 0.9).abs() < 1e-12);
        assert_eq!(Value::default().q(), 0.0);
        assert!(value.upper_bound() > 0.9 && value.upper_bound() < 1.0);
    }

    #[test]
    fn a_prior_moves_the_choice_and_not_the_decision() {
        let value = Value { prior: Some(Prior { mean: 0.8, weight: 10.0 }), ..Value::default() };
        assert_eq!((value.q(), value.visits), (0.0, 0));
        assert_eq!(value.believed(), (8.0, 10.0));
    }
}
