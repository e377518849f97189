//! What another way of choosing would have earned, from logged choices and their chances. In order of trust for our
//! sizes: SNIPS, DR, clipped IPS.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Below this effective sample size an estimate decides nothing.
pub const ENOUGH: f64 = 100.0;
/// Weights of the clipped estimate end here.
const CLIP: f64 = 10.0;

/// A logged choice with what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// Its reward, 0 to 1.
    pub reward: f64,
    /// The chance with which it was chosen.
    pub action_prob: f64,
    /// The chance with which the other way would have chosen it.
    pub target_prob: f64,
    /// The reward that a model expects of what was chosen; 0 without a model.
    pub expected: f64,
    /// The reward that the model expects of the other way; 0 without a model.
    pub expected_target: f64,
}

/// Estimates of the mean reward of the other way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimates {
    /// Choices.
    pub n: usize,
    /// Inverse propensity score.
    pub ips: f64,
    /// The same with weights of at most 10.
    pub clipped_ips: f64,
    /// Self-normalised.
    pub snips: f64,
    /// The standard error of `snips`.
    pub snips_error: f64,
    /// Doubly robust.
    pub dr: f64,
    /// (sum of weights)^2 / sum of squared weights.
    pub effective_n: f64,
    /// Whether the effective sample size is large enough to decide by.
    pub decisive: bool,
}

/// The estimates. Chances that are none and rewards off the scale are refused.
pub fn estimate(rows: &[Logged]) -> Result<Estimates, Error> {
    let (mut weights, mut squares, mut ips, mut clipped, mut dr) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for row in rows {
        let Logged { reward, action_prob, target_prob, expected, expected_target } = *row;
        let chances = action_prob > 0.0 && action_prob <= 1.0 && (0.0..=1.0).contains(&target_prob);
        let rewards = [reward, expected, expected_target].iter().all(|reward| (0.0..=1.0).contains(reward));
        if !chances || !rewards {
            return Err(Error::Estimate(format!("a logged choice is off the scale: {row:?}")));
        }
        let weight = target_prob / action_prob;
        weights += weight;
        squares += weight * weight;
        ips += weight * reward;
        clipped += weight.min(CLIP) * reward;
        dr += expected_target + weight * (reward - expected);
    }
    if weights == 0.0 {
        return Err(Error::Estimate("no logged choice is one that the other way makes".to_owned()));
    }
    let n = rows.len() as f64;
    let snips = ips / weights;
    let spread: f64 =
        rows.iter().map(|row| (row.target_prob / row.action_prob * (row.reward - snips)).powi(2)).sum();
    let effective_n = weights * weights / squares;
    Ok(Estimates {
        n: rows.len(),
        ips: ips / n,
        clipped_ips: clipped / n,
        snips,
        snips_error: spread.sqrt() / weights,
        dr: dr / n,
        effective_n,
        decisive: effective_n >= ENOUGH,
    })
}

/// A choice that was made, by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken<'a> {
    /// What was chosen.
    pub action: &'a str,
    /// The chance with which it was chosen.
    pub action_prob: f64,
    /// Its reward, 0 to 1.
    pub reward: f64,
}

/// Choices beside a fixed policy, with a model for DR: the mean reward of each action. Every choice is modelled by the
/// other half of the log, so that no reward predicts itself.
pub fn under_policy(taken: &[Taken<'_>], policy: &BTreeMap<String, f64>) -> Result<Vec<Logged>, Error> {
    let sum: f64 = policy.values().sum();
    if policy.values().any(|chance| !(0.0..=1.0).contains(chance)) || (sum - 1.0).abs() > 1e-6 {
        return Err(Error::Estimate(format!(
            "the chances of a policy are 0 to 1 and add up to 1, not to {sum}"
        )));
    }
    let halves = [Means::of(taken.iter().step_by(2)), Means::of(taken.iter().skip(1).step_by(2))];
    let logged = |(at, choice): (usize, &Taken<'_>)| {
        let model = &halves[1 - at % 2];
        Logged {
            reward: choice.reward,
            action_prob: choice.action_prob,
            target_prob: policy.get(choice.action).copied().unwrap_or(0.0),
            expected: model.expected(choice.action),
            expected_target: policy.iter().map(|(action, chance)| chance * model.expected(action)).sum(),
        }
    };
    Ok(taken.iter().enumerate().map(logged).collect())
}

/// Mean rewards by action.
struct Means<'a> {
    by_action: BTreeMap<&'a str, (f64, f64)>,
    all: (f64, f64),
}

impl<'a> Means<'a> {
    fn of(taken: impl Iterator<Item = &'a Taken<'a>>) -> Self {
        let mut means = Self { by_action: BTreeMap::new(), all: (0.0, 0.0) };
        for choice in taken {
            for (sum, n) in [means.by_action.entry(choice.action).or_default(), &mut means.all] {
                *sum += choice.reward;
                *n += 1.0;
            }
        }
        means
    }

    /// What is known of an action; of one that was never chosen, what is known of all.
    fn expected(&self, action: &str) -> f64 {
        let (sum, n) = self.by_action.get(action).copied().unwrap_or(self.all);
        if n == 0.0 { 0.0 } else { sum / n }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Two arms of 0.3 and 0.8, logged with 0.8 and 0.2; the other way takes the second in nine of ten cases.
    fn rows(seed: u64, n: usize, model: [f64; 2]) -> Vec<Logged> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (logged, target, truth) = ([0.8, 0.2], [0.1, 0.9], [0.3, 0.8]);
        (0..n)
            .map(|_| {
                let arm = usize::from(random.random_bool(logged[1]));
                Logged {
                    reward: f64::from(u8::from(random.random_bool(truth[arm]))),
                    action_prob: logged[arm],
                    target_prob: target[arm],
                    expected: model[arm],
                    expected_target: target[0] * model[0] + target[1] * model[1],
                }
            })
            .collect()
    }

    #[test]
    fn all_estimates_find_the_true_mean() {
        let truth = 0.1 * 0.3 + 0.9 * 0.8;
        let estimates = estimate(&rows(1, 200_000, [0.0, 0.0])).unwrap();
        for value in [estimates.ips, estimates.clipped_ips, estimates.snips, estimates.dr] {
            assert!((value - truth).abs() < 0.01, "{estimates:?}");
        }
        assert!((estimates.snips - truth).abs() < 4.0 * estimates.snips_error);
        // The mean weight is 1 and the mean square 0.1^2/0.8 + 0.9^2/0.2.
        assert!((estimates.effective_n / 200_000.0 - 1.0 / 4.0625).abs() < 0.01, "{estimates:?}");
        assert!(estimates.decisive && !estimate(&rows(1, 200, [0.0, 0.0])).unwrap().decisive);
    }

    #[test]
    fn a_model_makes_dr_steadier_and_a_wrong_one_does_not_mislead_it() {
        let truth = 0.1 * 0.3 + 0.9 * 0.8;
        let error = |model: [f64; 2], pick: fn(&Estimates) -> f64| {
            let squares =
                (0..300).map(|seed| (pick(&estimate(&rows(seed, 300, model)).unwrap()) - truth).powi(2));
            (squares.sum::<f64>() / 300.0).sqrt()
        };
        let (right, without) = (error([0.3, 0.8], |all| all.dr), error([0.0, 0.0], |all| all.ips));
        assert!(right < 0.7 * without, "{right}, {without}");
        let wrong = estimate(&rows(2, 200_000, [0.9, 0.1])).unwrap().dr;
        assert!((wrong - truth).abs() < 0.01, "{wrong}");
    }

    #[test]
    fn means_of_the_other_half_make_dr_steadier_than_ips() {
        let (truth, policy) =
            (0.1 * 0.3 + 0.9 * 0.8, BTreeMap::from([("a".to_owned(), 0.1), ("b".to_owned(), 0.9)]));
        let (mut dr, mut ips) = (0.0, 0.0);
        for seed in 0..300 {
            let rows = rows(seed, 300, [0.0, 0.0]);
            let name = |row: &Logged| if row.action_prob == 0.8 { "a" } else { "b" };
            let taken: Vec<Taken<'_>> = rows
                .iter()
                .map(|row| Taken { action: name(row), action_prob: row.action_prob, reward: row.reward })
                .collect();
            let found = estimate(&under_policy(&taken, &policy).unwrap()).unwrap();
            assert_eq!(found.ips, estimate(&rows).unwrap().ips, "the model changes DR alone");
            dr += (found.dr - truth).powi(2);
            ips += (found.ips - truth).powi(2);
        }
        assert!(dr < 0.6 * ips, "{dr}, {ips}");
        let never = [Taken { action: "c", action_prob: 0.5, reward: 1.0 }];
        assert!(
            estimate(&under_policy(&never, &policy).unwrap()).is_err(),
            "nothing was chosen that it would choose"
        );
        assert!(under_policy(&never, &BTreeMap::from([("a".to_owned(), 0.4)])).is_err());
    }

    #[test]
    fn numbers_off_the_scale_are_refused() {
        let good =
            Logged { reward: 1.0, action_prob: 0.5, target_prob: 0.5, expected: 0.0, expected_target: 0.0 };
        assert!(estimate(&[good]).is_ok() && estimate(&[]).is_err());
        for bad in [
            Logged { action_prob: 0.0, ..good },
            Logged { action_prob: f64::NAN, ..good },
            Logged { target_prob: 1.5, ..good },
            Logged { reward: f64::INFINITY, ..good },
            Logged { target_prob: 0.0, ..good },
        ] {
            assert!(estimate(&[bad]).is_err(), "{bad:?}");
        }
    }
}
