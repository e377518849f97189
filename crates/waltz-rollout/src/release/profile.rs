//! The plans that a release can follow.

use waltz_exchange::release::{Approval, OnInconclusive, ReleaseStep};

const DAY: i64 = 86_400;
/// Enough answers to tell 4.6 % from 10 % of attacks that succeed; see [`crate::gate::design`].
const ENOUGH: u64 = 205;

/// The names of the plans: one day a step, the plan of a week, the plan of four weeks.
pub const PROFILES: [&str; 3] = ["standard", "7day", "4week"];

/// The steps of a plan.
pub fn profile(name: &str) -> Option<Vec<ReleaseStep>> {
    let steps: &[(u8, i64)] = match name {
        "standard" => &[(0, 1), (5, 1), (10, 1), (25, 1), (50, 1), (100, 0)],
        "7day" => &[(0, 2), (5, 2), (25, 1), (50, 1), (100, 0)],
        "4week" => &[(10, 7), (25, 7), (50, 7), (100, 0)],
        _ => return None,
    };
    let step = |(percent, days): &(u8, i64)| ReleaseStep {
        percent: *percent,
        min_seconds: days * DAY,
        min_samples: if *percent == 100 { 0 } else { ENOUGH },
        on_inconclusive: OnInconclusive::Hold,
        approval: Approval::Auto,
    };
    Some(steps.iter().map(step).collect())
}
