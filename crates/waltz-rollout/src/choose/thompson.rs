//! Thompson sampling without sampling: each arm gets its chance of being the best under Beta(1 + sum, 1 + n - sum)
//! posteriors. The chance is the integral of its density times the other arms' distributions, by the midpoint rule
//! on a grid over all places where the best can lie; the same counts give the same chances on every machine.

use super::Arm;
use crate::special::beta_cdf;

const POINTS: usize = 32;
/// Beyond so many standard deviations a posterior holds nothing that counts.
const REACH: f64 = 5.0;

/// A posterior on the grid.
struct Curve {
    /// Its mass at each point.
    mass: [f64; POINTS],
    /// The chance of lying below each point; the point's own mass counts half.
    below: [f64; POINTS],
}

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
    let logarithms: [(f64, f64); POINTS] = std::array::from_fn(|point| {
        let x = low + (point as f64 + 0.5) * width;
        (x.ln(), (1.0 - x).ln())
    });
    let curves: Vec<Curve> = posteriors.iter().map(|posterior| curve(*posterior, low, &logarithms)).collect();
    let mut chances: Vec<f64> = (0..curves.len())
        .map(|own| {
            let mut products = curves[own].mass;
            for (_, other) in curves.iter().enumerate().filter(|(other, _)| *other != own) {
                for (product, below) in products.iter_mut().zip(&other.below) {
                    *product *= below;
                }
            }
            products.iter().sum()
        })
        .collect();
    let total: f64 = chances.iter().sum();
    for chance in &mut chances {
        *chance /= total;
    }
    chances
}

/// The range in which the best can lie: below the least that some arm surely reaches, nobody is the best.
fn reach(posteriors: &[(f64, f64)]) -> (f64, f64) {
    let mut range = (0.0_f64, 0.0_f64);
    for posterior in posteriors {
        let (low, high) = span(*posterior);
        range = (range.0.max(low), range.1.max(high));
    }
    (range.0, range.1.min(1.0))
}

/// Where a posterior lies.
fn span((a, b): (f64, f64)) -> (f64, f64) {
    let mean = a / (a + b);
    let deviation = (mean * (1.0 - mean) / (a + b + 1.0)).sqrt();
    (mean - REACH * deviation, mean + REACH * deviation)
}

/// The posterior's mass on the grid sums to what lies above `low`; a peak between two points is not lost.
fn curve((a, b): (f64, f64), low: f64, logarithms: &[(f64, f64); POINTS]) -> Curve {
    let mut mass = logarithms.map(|(x, rest)| (a - 1.0) * x + (b - 1.0) * rest);
    let largest = mass.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for value in &mut mass {
        *value = (*value - largest).exp();
    }
    let start = if span((a, b)).0 >= low { 0.0 } else { beta_cdf(low, a, b) };
    let scale = (1.0 - start) / mass.iter().sum::<f64>();
    let mut sum = start;
    let mut below = [0.0; POINTS];
    for (value, below) in mass.iter_mut().zip(&mut below) {
        *value *= scale;
        *below = sum + 0.5 * *value;
        sum += *value;
    }
    Curve { mass, below }
}
