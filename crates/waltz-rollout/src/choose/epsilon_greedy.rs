//! The best mean gets all but a part that is spread evenly.

use super::{Arm, highest};

/// An arm that nobody tried counts as the best, so that it is tried.
pub(super) fn probabilities(arms: &[Arm<'_>], epsilon: f64) -> Vec<f64> {
    let means: Vec<f64> = arms
        .iter()
        .map(|arm| {
            let (sum, n) = arm.value.believed();
            if n == 0.0 { 1.0 } else { sum / n }
        })
        .collect();
    let even = epsilon / arms.len() as f64;
    highest(&means).into_iter().map(|chance| even + (1.0 - epsilon) * chance).collect()
}
