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
pub fn estimate(rows: impl IntoIterator<Item = Logged>) -> Result<Estimates, Error> {
    let mut sums = Sums::default();
    for row in rows {
        sums.add(&row)?;
    }
    sums.estimates()
}

/// Sums over logged choices that all estimates are made of, so that a log of any length is read once.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: usize,
    weights: f64,
    squares: f64,
    rewards: f64,
    clipped: f64,
    dr: f64,
    /// Squared weights times rewards, and times squared rewards: what the error of SNIPS needs.
    square_rewards: (f64, f64),
}

impl Sums {
    fn add(&mut self, row: &Logged) -> Result<(), Error> {
        let Logged { reward, action_prob, target_prob, expected, expected_target } = *row;
        let chances = action_prob > 0.0 && action_prob <= 1.0 && (0.0..=1.0).contains(&target_prob);
        let rewards = [reward, expected, expected_target].iter().all(|reward| (0.0..=1.0).contains(reward));
        if !chances || !rewards {
            return Err(Error::Estimate(format!("a logged choice is off the scale: {row:?}")));
        }
        let weight = target_prob / action_prob;
        let square = weight * weight;
        self.n += 1;
        self.weights += weight;
        self.squares += square;
        self.rewards += weight * reward;
        self.clipped += weight.min(CLIP) * reward;
        self.dr += expected_target + weight * (reward - expected);
        self.square_rewards.0 += square * reward;
        self.square_rewards.1 += square * reward * reward;
        Ok(())
    }

    fn estimates(&self) -> Result<Estimates, Error> {
        let Self { n, weights, squares, rewards, clipped, dr, square_rewards } = *self;
        if weights == 0.0 {
            return Err(Error::Estimate("no logged choice is one that the other way makes".to_owned()));
        }
        let snips = rewards / weights;
        // The sum of (weight (reward - snips))^2; rounding may bring it below nothing.
        let spread = square_rewards.1 - 2.0 * snips * square_rewards.0 + snips * snips * squares;
        let effective_n = weights * weights / squares;
        Ok(Estimates {
            n,
            ips: rewards / n as f64,
            clipped_ips: clipped / n as f64,
            snips,
            snips_error: spread.max(0.0).sqrt() / weights,
            dr: dr / n as f64,
            effective_n,
            decisive: effective_n >= ENOUGH,
        })
    }
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

/// Choices beside a fixed policy, one after the other, with a model for DR: the mean reward of each action. Every choice
/// is modelled by the other half of the log, so that no reward predicts itself. It holds sums by action, and no choice.
#[derive(Clone, Debug)]
pub struct UnderPolicy {
    policy: BTreeMap<String, f64>,
    sums: Sums,
    /// Choices with even and with odd numbers.
    halves: [Half; 2],
}

impl UnderPolicy {
    /// Begins with actions and their chances, which add up to 1.
    pub fn new(policy: BTreeMap<String, f64>) -> Result<Self, Error> {
        let sum: f64 = policy.values().sum();
        if policy.values().any(|chance| !(0.0..=1.0).contains(chance)) || (sum - 1.0).abs() > 1e-6 {
            return Err(Error::Estimate(format!(
                "the chances of a policy are 0 to 1 and add up to 1, not to {sum}"
            )));
        }
        Ok(Self { policy, sums: Sums::default(), halves: Default::default() })
    }

    /// Takes in a choice.
    pub fn add(&mut self, choice: Taken<'_>) -> Result<(), Error> {
        let Taken { action, action_prob, reward } = choice;
        let target_prob = self.policy.get(action).copied().unwrap_or(0.0);
        let half = &mut self.halves[self.sums.n % 2];
        self.sums.add(&Logged { reward, action_prob, target_prob, expected: 0.0, expected_target: 0.0 })?;
        half.add(action, target_prob / action_prob, reward);
        Ok(())
    }

    /// The mean reward of all choices so far, as they were made; 0 without any.
    pub fn logged_mean(&self) -> f64 {
        let (n, rewards) = self
            .halves
            .iter()
            .fold((0.0, 0.0), |(n, rewards), half| (n + half.all.n, rewards + half.all.rewards));
        if n == 0.0 { 0.0 } else { rewards / n }
    }

    /// What the policy would have earned.
    pub fn estimates(&self) -> Result<Estimates, Error> {
        let [even, odd] = &self.halves;
        let dr = even.dr(odd, &self.policy) + odd.dr(even, &self.policy);
        Ok(Estimates { dr: dr / self.sums.n as f64, ..self.sums.estimates()? })
    }
}

/// Every second choice, by action.
#[derive(Clone, Debug, Default)]
struct Half {
    by_action: BTreeMap<String, OfAction>,
    all: OfAction,
}

/// Sums over choices of one action.
#[derive(Clone, Copy, Debug, Default)]
struct OfAction {
    n: f64,
    rewards: f64,
    weights: f64,
    weighted_rewards: f64,
}

impl Half {
    fn add(&mut self, action: &str, weight: f64, reward: f64) {
        if !self.by_action.contains_key(action) {
            self.by_action.insert(action.to_owned(), OfAction::default());
        }
        for sums in self.by_action.get_mut(action).into_iter().chain([&mut self.all]) {
            sums.n += 1.0;
            sums.rewards += reward;
            sums.weights += weight;
            sums.weighted_rewards += weight * reward;
        }
    }

    /// The sum of `expected_target + weight (reward - expected)` over this half, where the other one models it.
    fn dr(&self, model: &Self, policy: &BTreeMap<String, f64>) -> f64 {
        let expected_target: f64 =
            policy.iter().map(|(action, chance)| chance * model.expected(action)).sum();
        let corrections = self
            .by_action
            .iter()
            .map(|(action, of)| of.weighted_rewards - of.weights * model.expected(action));
        self.all.n * expected_target + corrections.sum::<f64>()
    }

    /// What is known of an action; of one that was never chosen, what is known of all.
    fn expected(&self, action: &str) -> f64 {
        let OfAction { n, rewards, .. } = self.by_action.get(action).copied().unwrap_or(self.all);
        if n == 0.0 { 0.0 } else { rewards / n }
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

    fn under<'a>(
        policy: &BTreeMap<String, f64>,
        taken: impl IntoIterator<Item = Taken<'a>>,
    ) -> Result<Estimates, Error> {
        let mut log = UnderPolicy::new(policy.clone())?;
        taken.into_iter().try_for_each(|choice| log.add(choice))?;
        log.estimates()
    }

    #[test]
    fn all_estimates_find_the_true_mean() {
        let truth = 0.1 * 0.3 + 0.9 * 0.8;
        let estimates = estimate(rows(1, 200_000, [0.0, 0.0])).unwrap();
        for value in [estimates.ips, estimates.clipped_ips, estimates.snips, estimates.dr] {
            assert!((value - truth).abs() < 0.01, "{estimates:?}");
        }
        assert!((estimates.snips - truth).abs() < 4.0 * estimates.snips_error);
        // The mean weight is 1 and the mean square 0.1^2/0.8 + 0.9^2/0.2.
        assert!((estimates.effective_n / 200_000.0 - 1.0 / 4.0625).abs() < 0.01, "{estimates:?}");
        assert!(estimates.decisive && !estimate(rows(1, 200, [0.0, 0.0])).unwrap().decisive);
    }

    #[test]
    fn a_model_makes_dr_steadier_and_a_wrong_one_does_not_mislead_it() {
        let truth = 0.1 * 0.3 + 0.9 * 0.8;
        let error = |model: [f64; 2], pick: fn(&Estimates) -> f64| {
            let squares =
                (0..300).map(|seed| (pick(&estimate(rows(seed, 300, model)).unwrap()) - truth).powi(2));
            (squares.sum::<f64>() / 300.0).sqrt()
        };
        let (right, without) = (error([0.3, 0.8], |all| all.dr), error([0.0, 0.0], |all| all.ips));
        assert!(right < 0.7 * without, "{right}, {without}");
        let wrong = estimate(rows(2, 200_000, [0.9, 0.1])).unwrap().dr;
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
            let taken = rows.iter().map(|row| Taken {
                action: name(row),
                action_prob: row.action_prob,
                reward: row.reward,
            });
            let found = under(&policy, taken).unwrap();
            let mut plain = estimate(rows.iter().copied()).unwrap();
            plain.dr = found.dr;
            assert_eq!(found, plain, "the model changes DR alone");
            dr += (found.dr - truth).powi(2);
            ips += (found.ips - truth).powi(2);
        }
        assert!(dr < 0.6 * ips, "{dr}, {ips}");
        let never = [Taken { action: "c", action_prob: 0.5, reward: 1.0 }];
        assert!(under(&policy, never).is_err(), "nothing was chosen that it would choose");
        assert!(UnderPolicy::new(BTreeMap::from([("a".to_owned(), 0.4)])).is_err());
    }

    /// By hand: always `a`, with weights of 20, 2, 0 and 1.
    #[test]
    fn every_choice_is_modelled_by_the_other_half() {
        let policy = BTreeMap::from([("a".to_owned(), 1.0)]);
        let taken = [("a", 0.05, 1.0), ("a", 0.5, 0.5), ("b", 0.5, 0.0), ("a", 1.0, 0.0)]
            .map(|(action, action_prob, reward)| Taken { action, action_prob, reward });
        let found = under(&policy, taken).unwrap();
        let near =
            |value: f64, expected: f64| assert!((value - expected).abs() < 1e-12, "{value}: {found:?}");
        near(found.ips, 21.0 / 4.0);
        near(found.clipped_ips, 11.0 / 4.0);
        let snips = 21.0 / 23.0;
        near(found.snips, snips);
        let spread = 400.0 * (1.0_f64 - snips).powi(2) + 4.0 * (0.5_f64 - snips).powi(2) + snips.powi(2);
        near(found.snips_error, spread.sqrt() / 23.0);
        // The first and third by what the others say of `a`, 0.25; the others by 1.
        near(found.dr, (2.0 * 0.25 + 20.0 * 0.75 + 2.0 - 2.0 * 0.5 - 1.0) / 4.0);
        near(found.effective_n, 529.0 / 405.0);
        assert_eq!((found.n, found.decisive), (4, false));
    }

    #[test]
    fn numbers_off_the_scale_are_refused() {
        let good =
            Logged { reward: 1.0, action_prob: 0.5, target_prob: 0.5, expected: 0.0, expected_target: 0.0 };
        assert!(estimate([good]).is_ok() && estimate([]).is_err());
        for bad in [
            Logged { action_prob: 0.0, ..good },
            Logged { action_prob: f64::NAN, ..good },
            Logged { target_prob: 1.5, ..good },
            Logged { reward: f64::INFINITY, ..good },
            Logged { target_prob: 0.0, ..good },
        ] {
            assert!(estimate([bad]).is_err(), "{bad:?}");
        }
    }
}
