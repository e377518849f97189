//! Thompson sampling without sampling: each arm gets its chance of being the best under Beta(1 + sum, 1 + n - sum)
//! posteriors. The chance is the integral of its density times the other arms' distributions, by the midpoint rule
//! on a grid over all that any posterior reaches; the same counts give the same chances on every machine.

use super::Arm;

const POINTS: usize = 192;
/// Beyond so many standard deviations a posterior holds nothing that counts.
const REACH: f64 = 6.0;

pub(super) fn probabilities(arms: &[Arm<'_>]) -> Vec<f64> {
    let posteriors: Vec<(f64, f64)> = arms
        .iter()
        .map(|arm| {
            let (sum, n) = arm.value.believed();
            (1.0 + sum, 1.0 + (n - sum).max(0.0))
        })
        .collect();
    let (low, high) = reach(&posteriors);
    let width = (high - low) / POINTS as f64;
    let logarithms: Vec<(f64, f64)> =
        (0..POINTS).map(|point| low + (point as f64 + 0.5) * width).map(|x| (x.ln(), (-x).ln_1p())).collect();
    let densities: Vec<Vec<f64>> =
        posteriors.iter().map(|posterior| density(*posterior, &logarithms)).collect();
    let below: Vec<Vec<f64>> = densities.iter().map(|density| distribution(density)).collect();
    let mut chances: Vec<f64> = (0..arms.len())
        .map(|own| {
            (0..POINTS)
                .map(|point| {
                    let others = below.iter().enumerate().filter(|(other, _)| *other != own);
                    densities[own][point] * others.map(|(_, below)| below[point]).product::<f64>()
                })
                .sum()
        })
        .collect();
    let total: f64 = chances.iter().sum();
    for chance in &mut chances {
        *chance /= total;
    }
    chances
}

/// The range in which the posteriors lie.
fn reach(posteriors: &[(f64, f64)]) -> (f64, f64) {
    let mut range = (1.0_f64, 0.0_f64);
    for (a, b) in posteriors {
        let mean = a / (a + b);
        let deviation = (mean * (1.0 - mean) / (a + b + 1.0)).sqrt();
        range = (range.0.min(mean - REACH * deviation), range.1.max(mean + REACH * deviation));
    }
    (range.0.max(0.0), range.1.min(1.0))
}

/// The density at each point, scaled to sum to 1.
fn density((a, b): (f64, f64), logarithms: &[(f64, f64)]) -> Vec<f64> {
    let mut density: Vec<f64> = logarithms.iter().map(|(x, rest)| (a - 1.0) * x + (b - 1.0) * rest).collect();
    let largest = density.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for value in &mut density {
        *value = (*value - largest).exp();
        total += *value;
    }
    for value in &mut density {
        *value /= total;
    }
    density
}

/// The chance of lying below each point; a point's own mass counts half.
fn distribution(density: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    density
        .iter()
        .map(|mass| {
            sum += mass;
            sum - 0.5 * mass
        })
        .collect()
}
