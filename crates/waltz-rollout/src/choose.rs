//! Shares traffic among the variants that compete. Each rule is a file and gives the chance of every arm; the chances
//! are logged, so that what another rule would have earned can be estimated later.

mod epsilon_greedy;
mod linucb;
mod thompson;
mod ucb1;

use waltz_exchange::variant::RequestContext;

pub use linucb::Linear;

use crate::settings::{ChooseRule, ChooseSettings};
use crate::value::Value;

/// What a rule sees of an arm.
#[derive(Clone, Copy, Debug)]
pub struct Arm<'a> {
    /// What was learned of it.
    pub value: &'a Value,
    /// What was learned of it by the kind of request, where that is kept.
    pub linear: Option<&'a Linear>,
}

/// The chance of every arm; they sum to 1, and none is below the floor where there is room for it.
pub fn probabilities(arms: &[Arm<'_>], settings: &ChooseSettings, context: &RequestContext) -> Vec<f64> {
    if arms.len() < 2 {
        return vec![1.0; arms.len()];
    }
    let chances = match settings.rule {
        ChooseRule::EpsilonGreedy => epsilon_greedy::probabilities(arms, settings.epsilon),
        ChooseRule::Ucb1 => ucb1::probabilities(arms, settings.ucb_c),
        ChooseRule::Thompson => thompson::probabilities(arms),
        ChooseRule::Linucb => linucb::probabilities(arms, settings.linucb_alpha, context),
    };
    with_floor(chances, settings.floor)
}

/// Lifts every chance to the floor and shares the rest as before. Without room for the floor, all are equal.
fn with_floor(chances: Vec<f64>, floor: f64) -> Vec<f64> {
    let n = chances.len() as f64;
    let floor = floor.clamp(0.0, 1.0 / n);
    chances.into_iter().map(|chance| floor + (1.0 - n * floor) * chance).collect()
}

/// All of the chance to the highest score, in equal parts where several are highest.
fn highest(scores: &[f64]) -> Vec<f64> {
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let winners = scores.iter().filter(|score| **score == best).count() as f64;
    scores.iter().map(|score| if *score == best { 1.0 / winners } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests;
