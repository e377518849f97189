//! The best upper bound (Auer, Cesa-Bianchi, Fischer 2002): mean + c sqrt(ln t / n).

use super::{Arm, highest};

/// Arms that nobody tried come first.
pub(super) fn probabilities(arms: &[Arm<'_>], c: f64) -> Vec<f64> {
    let total: f64 = arms.iter().map(|arm| arm.value.believed().1).sum();
    let bounds: Vec<f64> = arms
        .iter()
        .map(|arm| {
            let (sum, n) = arm.value.believed();
            if n == 0.0 { f64::INFINITY } else { sum / n + c * (total.max(1.0).ln() / n).sqrt() }
        })
        .collect();
    highest(&bounds)
}
