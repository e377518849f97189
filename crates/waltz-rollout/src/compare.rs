//! Two variants head to head, for reports and for whether one is better than what serves. The interval is for one look:
//! what acts by itself asks for a gain beyond it, or uses e-values.

use serde::{Deserialize, Serialize};

use crate::{Error, Value};

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_964;
/// The fewest outcomes of each side for the normal approximation.
const LEAST: u64 = 30;

/// Two variants head to head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The mean reward of the first.
    pub first_q: f64,
    /// Its outcomes.
    pub first_visits: u64,
    /// The mean reward of the second.
    pub second_q: f64,
    /// Its outcomes.
    pub second_visits: u64,
    /// The first's mean less the second's.
    pub difference: f64,
    /// The 95 % interval of the difference, below.
    pub lower: f64,
    /// And above.
    pub upper: f64,
    /// The first's success rate less the second's.
    pub success_difference: f64,
    /// What the interval says.
    pub verdict: Better,
}

/// Which of two is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The first.
    First,
    /// The second.
    Second,
    /// The interval holds 0.
    Undecided,
}

/// Sets two variants side by side; refused below 30 outcomes each.
pub fn compare(first: &Value, second: &Value) -> Result<Comparison, Error> {
    let fewest = first.visits.min(second.visits);
    if fewest < LEAST {
        return Err(Error::Estimate(format!("{fewest} outcomes are too few; each side needs {LEAST}")));
    }
    let difference = first.q() - second.q();
    let reach = reach(first, second);
    let (lower, upper) = (difference - reach, difference + reach);
    let verdict = if lower > 0.0 {
        Better::First
    } else if upper < 0.0 {
        Better::Second
    } else {
        Better::Undecided
    };
    Ok(Comparison {
        first_q: first.q(),
        first_visits: first.visits,
        second_q: second.q(),
        second_visits: second.visits,
        difference,
        lower,
        upper,
        success_difference: first.success_rate() - second.success_rate(),
        verdict,
    })
}

/// How far the first is ahead at least: the lower end of the 95 % interval of the difference. Both need outcomes.
pub(crate) fn least_lead(first: &Value, second: &Value) -> f64 {
    first.q() - second.q() - reach(first, second)
}

/// Half of the length of the interval.
fn reach(first: &Value, second: &Value) -> f64 {
    // Equal rewards have no spread, yet the next one may differ: a pseudo-count keeps the interval open.
    let error = |value: &Value| (value.variance() + 0.25 / value.visits as f64) / value.visits as f64;
    Z * (error(first) + error(second)).sqrt()
}

#[cfg(test)]
mod tests {
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn value(random: &mut ChaCha8Rng, rate: f64, n: usize) -> Value {
        let mut value = Value::default();
        for _ in 0..n {
            let success = random.random_bool(rate);
            value.add(f64::from(u8::from(success)), success, !success);
        }
        value
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let covered = (0..2000)
            .filter(|_| {
                let (first, second) = (value(&mut random, 0.9, 200), value(&mut random, 0.8, 100));
                let comparison = compare(&first, &second).unwrap();
                (comparison.lower..=comparison.upper).contains(&0.1)
            })
            .count();
        assert!((1860..=1960).contains(&covered), "{covered} of 2000");
    }

    #[test]
    fn the_better_is_named_when_it_is_clear() {
        let mut random = ChaCha8Rng::seed_from_u64(4);
        let (good, poor) = (value(&mut random, 0.9, 300), value(&mut random, 0.6, 300));
        assert_eq!(compare(&good, &poor).unwrap().verdict, Better::First);
        assert_eq!(compare(&poor, &good).unwrap().verdict, Better::Second);
        assert_eq!(compare(&good, &good).unwrap().verdict, Better::Undecided);
        assert!(compare(&good, &value(&mut random, 0.9, 29)).is_err());
    }
}
