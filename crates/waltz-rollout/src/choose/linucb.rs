//! The best upper bound for the request at hand: LinUCB with disjoint models (Li, Chu, Langford, Schapire 2010).

use serde::{Deserialize, Serialize};
use waltz_exchange::id::sha256;
use waltz_exchange::variant::{Complexity, RequestContext};

use super::{Arm, highest};

/// Languages fall into so many classes by their hash.
const LANGUAGES: usize = 4;
const FEATURES: usize = 4 + LANGUAGES;
/// Longer requests look as long as this.
const LONGEST: f64 = 100_000.0;

/// What was learned of one arm by the kind of request: A^-1 as (features, features) and b as (features).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    inverse: Vec<f64>,
    rewards: Vec<f64>,
}

impl Default for Linear {
    fn default() -> Self {
        let mut inverse = vec![0.0; FEATURES * FEATURES];
        for position in 0..FEATURES {
            inverse[position * FEATURES + position] = 1.0;
        }
        Self { inverse, rewards: vec![0.0; FEATURES] }
    }
}

impl Linear {
    /// Takes one outcome; A^-1 is kept up by Sherman and Morrison's formula.
    pub fn observe(&mut self, context: &RequestContext, reward: f64) {
        let x = features(context);
        let shifted = self.times(&x);
        let scale = 1.0 + dot(&x, &shifted);
        for row in 0..FEATURES {
            for column in 0..FEATURES {
                self.inverse[row * FEATURES + column] -= shifted[row] * shifted[column] / scale;
            }
        }
        for (sum, x) in self.rewards.iter_mut().zip(x) {
            *sum += reward * x;
        }
    }

    /// The expected reward and how far it may be off.
    fn estimate(&self, x: &[f64; FEATURES]) -> (f64, f64) {
        let weighted = self.times(x);
        (dot(&weighted, &self.rewards), dot(x, &weighted).max(0.0).sqrt())
    }

    fn times(&self, x: &[f64; FEATURES]) -> [f64; FEATURES] {
        std::array::from_fn(|row| dot(&self.inverse[row * FEATURES..(row + 1) * FEATURES], x))
    }
}

/// Arms without a model look like one that knows nothing.
pub(super) fn probabilities(arms: &[Arm<'_>], alpha: f64, context: &RequestContext) -> Vec<f64> {
    let x = features(context);
    let unknown = Linear::default();
    let bounds: Vec<f64> = arms
        .iter()
        .map(|arm| {
            let (mean, doubt) = arm.linear.unwrap_or(&unknown).estimate(&x);
            mean + alpha * doubt
        })
        .collect();
    highest(&bounds)
}

fn features(context: &RequestContext) -> [f64; FEATURES] {
    let RequestContext { complexity, urgency, language, length } = context;
    let mut x = [0.0; FEATURES];
    x[0] = 1.0;
    x[1] = match complexity {
        Complexity::Low => 0.0,
        Complexity::Medium => 0.5,
        Complexity::High => 1.0,
    };
    x[2] = if urgency.is_finite() { urgency.clamp(0.0, 1.0) } else { 0.0 };
    x[3] = (*length as f64).min(LONGEST).ln_1p() / LONGEST.ln_1p();
    if !language.is_empty() {
        let class = usize::from(sha256(language.as_bytes())[0]) % LANGUAGES;
        x[4 + class] = 1.0;
    }
    x
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
