//! Evidence that a rate lies above a floor.

use crate::special::{beta_cdf, ln_beta};

/// The logarithm of the e-value against "the rate is at most `floor`", mixed evenly over all rates above it:
/// the integral of q^s (1-q)^(n-s) over (floor, 1], divided by its length and by floor^s (1-floor)^(n-s).
///
/// `sum` may be a sum of rewards in [0, 1] instead of a count of successes: each factor is convex in the reward, so
/// that it is largest in the mean for rewards of 0 and 1 alone, and the bound holds for all others.
pub fn ln_e_above(sum: f64, n: f64, floor: f64) -> f64 {
    let (hits, misses) = (sum, n - sum);
    // The upper tail is taken from the other side, where a tiny value keeps its precision.
    let tail = beta_cdf(1.0 - floor, misses + 1.0, hits + 1.0);
    ln_beta(hits + 1.0, misses + 1.0) + tail.ln()
        - (1.0 - floor).ln()
        - hits * floor.ln()
        - misses * (1.0 - floor).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values() {
        for (sum, n, value) in
            [(10.0, 10.0, 10.5156), (9.0, 10.0, 2.2203), (18.0, 20.0, 5.5457), (27.0, 30.0, 14.8204)]
        {
            assert!((ln_e_above(sum, n, 0.7).exp() - value).abs() < 1e-4, "{sum} of {n}");
        }
        let first_to_pass = |threshold: f64| {
            (1..40).find(|n| ln_e_above(f64::from(*n), f64::from(*n), 0.7) >= threshold.ln())
        };
        assert_eq!([10.0, 20.0, 100.0].map(first_to_pass), [Some(10), Some(13), Some(18)]);
    }

    #[test]
    fn no_evidence_where_the_rate_is_far_below() {
        assert!(ln_e_above(0.0, 0.0, 0.7).abs() < 1e-12);
        let hopeless = ln_e_above(10.0, 100_000.0, 0.7);
        assert!(hopeless < -8.0 && !hopeless.is_nan(), "{hopeless}");
    }
}
