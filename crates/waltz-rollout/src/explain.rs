//! Why a variant has the value that it has: what its reward was made of, and how it moved.

use serde::{Deserialize, Serialize};
use waltz_exchange::variant::VariantOutcome;

use crate::gate::{lower_bound, upper_bound};
use crate::reward::{RewardParts, reward_parts};
use crate::{Error, Value};

/// An explained value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// The mean reward of the history.
    pub q_value: f64,
    /// Outcomes behind it.
    pub n_visits: u64,
    /// The 95 % bounds of the mean.
    pub lower: f64,
    /// See `lower`.
    pub upper: f64,
    /// What the mean is made of; the parts sum to it.
    pub parts: RewardParts,
    /// The mean of the older half.
    pub older_half: f64,
    /// The mean of the newer half.
    pub newer_half: f64,
    /// Outcomes that did not count, because the infrastructure failed.
    pub infrastructure: u64,
    /// The same in sentences.
    pub sentences: Vec<String>,
}

/// Explains the value of a variant from its outcomes, oldest first.
pub fn explain(history: &[VariantOutcome]) -> Result<Explanation, Error> {
    let mut rewards = Vec::new();
    let mut parts = RewardParts::default();
    let mut value = Value::default();
    for outcome in history {
        let Some(own) = reward_parts(outcome)? else {
            value.infrastructure += 1;
            continue;
        };
        parts.success += own.success;
        parts.quality += own.quality;
        parts.speed += own.speed;
        parts.correctness += own.correctness;
        value.add(own.total(), own.success > 0.0, own.correctness == 0.0);
        rewards.push(own.total());
    }
    let n = value.visits as f64;
    if value.visits == 0 {
        return Err(Error::Estimate("there is no outcome to explain".to_owned()));
    }
    let parts = RewardParts {
        success: parts.success / n,
        quality: parts.quality / n,
        speed: parts.speed / n,
        correctness: parts.correctness / n,
    };
    let (older, newer) = rewards.split_at(rewards.len() / 2);
    let mean =
        |half: &[f64]| if half.is_empty() { value.q() } else { half.iter().sum::<f64>() / half.len() as f64 };
    let (older_half, newer_half) = (mean(older), mean(newer));
    let (lower, upper) = (lower_bound(value.sum, n, 0.025), upper_bound(value.sum, n, 0.025));
    let sentences = sentences(&value, &parts, (lower, upper), (older_half, newer_half));
    Ok(Explanation {
        q_value: value.q(),
        n_visits: value.visits,
        lower,
        upper,
        parts,
        older_half,
        newer_half,
        infrastructure: value.infrastructure,
        sentences,
    })
}

fn sentences(value: &Value, parts: &RewardParts, bounds: (f64, f64), halves: (f64, f64)) -> Vec<String> {
    let (q, n) = (value.q(), value.visits);
    let lost = [
        ("failed tasks", 0.5 - parts.success),
        ("missing quality", 0.1875 - parts.quality),
        ("time", 0.25 - parts.speed),
        ("errors", 0.0625 - parts.correctness),
    ];
    let mut sentences = vec![format!(
        "Q is {q:.3}, the mean reward of {n} outcomes; the true mean lies between {:.3} and {:.3}.",
        bounds.0, bounds.1
    )];
    if let Some((name, loss)) = lost.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)) {
        sentences
            .push(format!("Most is lost by {name}: {loss:.3} of the {:.3} that are missing to 1.", 1.0 - q));
    }
    sentences.push(format!("The older half has {:.3}, the newer half {:.3}.", halves.0, halves.1));
    if value.infrastructure > 0 {
        let infrastructure = value.infrastructure;
        sentences.push(format!("{infrastructure} outcomes do not count: the infrastructure failed."));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use waltz_exchange::variant::{OutcomeClass, RequestContext};

    use super::*;

    #[test]
    fn the_parts_sum_to_the_value_and_the_largest_loss_is_named() {
        let outcome = |class, duration_ms| VariantOutcome {
            variant: "default".into(),
            class,
            quality: Some(1.0),
            duration_ms,
            errors: 0,
            subject: None,
            context: RequestContext::default(),
            safety: None,
        };
        let mut history = vec![outcome(OutcomeClass::Success, 600_000.0); 10];
        history.push(outcome(OutcomeClass::Infrastructure, 0.0));
        history.extend(vec![outcome(OutcomeClass::Success, 0.0); 10]);
        let explanation = explain(&history).unwrap();
        assert!((explanation.parts.total() - explanation.q_value).abs() < 1e-9);
        assert!((explanation.q_value - 0.875).abs() < 1e-9, "{explanation:?}");
        assert_eq!((explanation.n_visits, explanation.infrastructure), (20, 1));
        assert!((explanation.older_half - 0.75).abs() < 1e-9 && (explanation.newer_half - 1.0).abs() < 1e-9);
        assert!(explanation.lower < 0.875 && explanation.upper > 0.875);
        assert_eq!(
            explanation.sentences[1],
            "Most is lost by time: 0.125 of the 0.125 that are missing to 1."
        );
        assert!(explain(&[]).is_err());
    }
}
