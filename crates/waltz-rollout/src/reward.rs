//! The reward of an outcome, from 0 to 1.

use serde::{Deserialize, Serialize};
use waltz_exchange::variant::{Complexity, OutcomeClass, VariantOutcome};

use crate::Error;

/// What the reward of an outcome is made of; the parts sum to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardParts {
    /// 0.5 for a task that was done.
    pub success: f64,
    /// Up to 0.1875 for quality; half of it when nobody said.
    pub quality: f64,
    /// Up to 0.25 for speed.
    pub speed: f64,
    /// 0.0625 without errors.
    pub correctness: f64,
}

impl RewardParts {
    /// The reward, from 0 to 1.
    pub fn total(&self) -> f64 {
        (self.success + self.quality + self.speed + self.correctness).clamp(0.0, 1.0)
    }
}

/// The reward of an outcome: `(R + 0.7) / 1.6` with `R = 0.4 (+1 success, -1 failure) + 0.3 quality (0.5 when nobody
/// said) + 0.2 speed - 0.1 errors`, where speed is `1 - duration / usual duration` within -1 and 1, and any number of
/// errors counts as one. None for a failure of the infrastructure, which is nobody's merit or fault.
pub fn reward(outcome: &VariantOutcome) -> Result<Option<f64>, Error> {
    Ok(reward_parts(outcome)?.map(|parts| parts.total()))
}

/// The reward with its parts, each lifted so that its least is 0.
pub fn reward_parts(outcome: &VariantOutcome) -> Result<Option<RewardParts>, Error> {
    const SCALE: f64 = 1.6;
    let VariantOutcome { class, quality, duration_ms, errors, context, .. } = outcome;
    let quality = match *quality {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            return Err(Error::Outcome { field: "quality", value, allowed: "0 to 1" });
        }
        Some(value) => value,
        None => 0.5,
    };
    if !duration_ms.is_finite() || *duration_ms < 0.0 {
        return Err(Error::Outcome { field: "duration_ms", value: *duration_ms, allowed: "0 or more" });
    }
    if !(0.0..=1.0).contains(&context.urgency) {
        return Err(Error::Outcome { field: "urgency", value: context.urgency, allowed: "0 to 1" });
    }
    let success = match class {
        OutcomeClass::Success => 1.0,
        OutcomeClass::Failure => -1.0,
        OutcomeClass::Infrastructure => return Ok(None),
    };
    let speed = (1.0 - duration_ms / usual_ms(context.complexity)).clamp(-1.0, 1.0);
    Ok(Some(RewardParts {
        success: 0.4 * (success + 1.0) / SCALE,
        quality: 0.3 * quality / SCALE,
        speed: 0.2 * (speed + 1.0) / SCALE,
        correctness: 0.1 * f64::from(u8::from(*errors == 0)) / SCALE,
    }))
}

/// How long a task usually takes.
fn usual_ms(complexity: Complexity) -> f64 {
    match complexity {
        Complexity::Low => 60_000.0,
        Complexity::Medium => 300_000.0,
        Complexity::High => 900_000.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome(class: OutcomeClass, quality: Option<f64>, duration_ms: f64, errors: u32) -> VariantOutcome {
        VariantOutcome {
            variant: "default".into(),
            class,
            quality,
            duration_ms,
            errors,
            subject: None,
            context: Default::default(),
            safety: None,
        }
    }

    #[test]
    fn the_ends_of_the_scale_can_be_reached() {
        let best = outcome(OutcomeClass::Success, Some(1.0), 0.0, 0);
        let worst = outcome(OutcomeClass::Failure, Some(0.0), 1e9, 7);
        let plain = outcome(OutcomeClass::Success, None, 300_000.0, 0);
        assert!((reward(&best).unwrap().unwrap() - 1.0).abs() < 1e-12);
        assert!(reward(&worst).unwrap().unwrap().abs() < 1e-12);
        assert!((reward(&plain).unwrap().unwrap() - 0.781_25).abs() < 1e-12);
        let infrastructure = outcome(OutcomeClass::Infrastructure, None, 10.0, 1);
        assert_eq!(reward(&infrastructure), Ok(None));
    }

    #[test]
    #[expect(non_snake_case, reason = "the fault's number")]
    fn fault_F74_numbers_that_are_none_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
            assert!(reward(&outcome(OutcomeClass::Success, Some(bad), 1.0, 0)).is_err(), "quality {bad}");
            assert!(reward(&outcome(OutcomeClass::Failure, None, bad, 0)).is_err(), "duration {bad}");
            let mut hurried = outcome(OutcomeClass::Success, None, 1.0, 0);
            hurried.context.urgency = bad;
            assert!(reward(&hurried).is_err(), "urgency {bad}");
        }
        assert!(reward(&outcome(OutcomeClass::Success, Some(1.1), 1.0, 0)).is_err());
    }

    proptest! {
        #[test]
        fn rewards_stay_on_the_scale_and_success_helps(quality in 0.0_f64..=1.0, duration in 0.0_f64..1e8, errors in 0_u32..9) {
            let won = reward(&outcome(OutcomeClass::Success, Some(quality), duration, errors)).unwrap().unwrap();
            let lost = reward(&outcome(OutcomeClass::Failure, Some(quality), duration, errors)).unwrap().unwrap();
            prop_assert!((0.0..=1.0).contains(&won) && (0.0..=1.0).contains(&lost) && won > lost);
        }
    }
}
