//! Benchmark gates with a stated size: how many prompts are needed to tell a good system from a bad one, and what
//! a count of failures says. Whoever promotes on a benchmark calls [`judge`].

use serde::{Deserialize, Serialize};

use crate::special::{beta_quantile, binomial_cdf};

/// The chance of passing a bad system that a gate accepts, and of holding a good one on the failing side.
pub const FALSE_PASS: f64 = 0.05;
/// The chance of passing a good system that a design must reach.
const TRUE_PASS: f64 = 0.9;

/// The smallest gate that tells `good` from `bad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// Prompts that are needed.
    pub n: u64,
    /// Failures that still pass.
    pub accept: u64,
}

/// What a benchmark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The rate is below the bad one.
    Pass,
    /// The rate is above the good one.
    Fail,
    /// More prompts are needed; nothing is promoted.
    Inconclusive,
}

/// A verdict with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateResult {
    /// Prompts.
    pub n: u64,
    /// Failures among them.
    pub failures: u64,
    /// Their share.
    pub rate: f64,
    /// One-sided 95 % Clopper-Pearson bound below.
    pub lower: f64,
    /// And above.
    pub upper: f64,
    /// The gate that was applied.
    pub design: Design,
    /// What it says.
    pub verdict: GateVerdict,
}

/// The smallest gate, in steps of five prompts, that passes a system of rate `bad` in at most 5 % and one of rate
/// `good` in at least 90 % of runs; none if there is no such gate below 20,000 prompts.
pub fn design(good: f64, bad: f64) -> Option<Design> {
    (4..4000).map(|fives| fives * 5).find_map(|n| {
        let accept = acceptable(n, bad)?;
        (binomial_cdf(accept, n, good) >= TRUE_PASS).then_some(Design { n, accept })
    })
}

/// What `failures` among `n` prompts say, where `good` is the rate hoped for and `bad` the one to be kept out.
/// Below the design's size nothing passes. None where `good` and `bad` cannot be told apart.
pub fn judge(failures: u64, n: u64, good: f64, bad: f64) -> Option<GateResult> {
    let design = design(good, bad)?;
    let passes = n >= design.n && acceptable(n, bad).is_some_and(|accept| failures <= accept);
    let worse_than_good = failures > 0 && 1.0 - binomial_cdf(failures - 1, n, good) <= FALSE_PASS;
    let verdict = if passes {
        GateVerdict::Pass
    } else if worse_than_good {
        GateVerdict::Fail
    } else {
        GateVerdict::Inconclusive
    };
    let rate = if n == 0 { 0.0 } else { failures as f64 / n as f64 };
    let (lower, upper) =
        (lower_bound(failures as f64, n as f64, 0.05), upper_bound(failures as f64, n as f64, 0.05));
    Some(GateResult { n, failures, rate, lower, upper, design, verdict })
}

/// The one-sided Clopper-Pearson bound below a rate; `alpha` is the chance that the rate is lower still. Sums of
/// rewards may stand in for counts: values between 0 and 1 vary less than yes and no.
pub fn lower_bound(hits: f64, n: f64, alpha: f64) -> f64 {
    if hits <= 0.0 { 0.0 } else { beta_quantile(alpha, hits, n - hits + 1.0) }
}

/// The one-sided Clopper-Pearson bound above a rate; `alpha` is the chance that the rate is higher still.
pub fn upper_bound(hits: f64, n: f64, alpha: f64) -> f64 {
    if hits >= n { 1.0 } else { beta_quantile(1.0 - alpha, hits + 1.0, n - hits) }
}

/// The most failures that a system of rate `bad` stays within in at most 5 % of runs of `n`.
fn acceptable(n: u64, bad: f64) -> Option<u64> {
    if binomial_cdf(0, n, bad) > FALSE_PASS {
        return None;
    }
    let (mut low, mut high) = (0, n);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if binomial_cdf(middle, n, bad) <= FALSE_PASS {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn designs_have_the_known_sizes() {
        for (good, bad, n, accept) in [
            (0.046, 0.10, 205, 13),
            (0.046, 0.08, 450, 26),
            (0.046, 0.06, 2230, 115),
            (0.099, 0.15, 380, 45),
            (0.099, 0.20, 120, 16),
        ] {
            assert_eq!(design(good, bad), Some(Design { n, accept }), "{good} against {bad}");
        }
        assert_eq!(design(0.10, 0.10), None);
    }

    #[test]
    fn bounds_have_the_known_values() {
        for (n, upper) in [(20.0, 0.139), (30.0, 0.095), (60.0, 0.049), (100.0, 0.030), (300.0, 0.010)] {
            assert!((upper_bound(0.0, n, 0.05) - upper).abs() < 6e-4, "{n}");
        }
        for (n, upper) in [(500.0, 0.065), (1000.0, 0.058), (2000.0, 0.055), (5000.0, 0.051)] {
            assert!((upper_bound(0.046 * n, n, 0.05) - upper).abs() < 6e-4, "{n}");
        }
    }

    #[test]
    #[expect(non_snake_case, reason = "the fault's number")]
    fn fault_F71_few_prompts_are_inconclusive() {
        for failures in 0..=2 {
            let result = judge(failures, 50, 0.046, 0.10).unwrap();
            assert_eq!(result.verdict, GateVerdict::Inconclusive, "{failures} of 50");
        }
        assert_eq!(judge(0, 0, 0.046, 0.10).unwrap().verdict, GateVerdict::Inconclusive);
        assert_eq!(judge(12, 50, 0.046, 0.10).unwrap().verdict, GateVerdict::Fail);
        assert_eq!(judge(13, 205, 0.046, 0.10).unwrap().verdict, GateVerdict::Pass);
        assert_eq!(judge(14, 205, 0.046, 0.10).unwrap().verdict, GateVerdict::Inconclusive);
    }

    proptest! {
        #[test]
        fn more_failures_never_help(n in 0_u64..600, failures in 0_u64..100) {
            let rank = |result: GateResult| match result.verdict {
                GateVerdict::Pass => 0,
                GateVerdict::Inconclusive => 1,
                GateVerdict::Fail => 2,
            };
            let failures = failures.min(n);
            let here = judge(failures, n, 0.099, 0.20).unwrap();
            prop_assert!(here.lower <= here.rate && here.rate <= here.upper);
            if failures < n {
                prop_assert!(rank(judge(failures + 1, n, 0.099, 0.20).unwrap()) >= rank(here));
            }
        }
    }
}
