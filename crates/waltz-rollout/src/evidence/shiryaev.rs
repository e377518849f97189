//! A detector of change for what serves alone: the Shiryaev-Roberts e-detector (Shin, Ramdas, Rinaldo,
//! arXiv 2203.03532). The mean time to a false alarm is at least the threshold, and the chance of one within T
//! outcomes is at most T / threshold.

use serde::{Deserialize, Serialize};

/// The rates that are looked for, as shares of the baseline.
const DROPS: [f64; 10] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.02];
/// A baseline of 1 would make a single failure impossible, and one of 0 leaves nothing to lose.
const BASELINE: std::ops::RangeInclusive<f64> = 0.01..=0.995;
/// Larger values say nothing more and could grow without end.
const LARGEST: f64 = 1e12;

/// The state of the detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shiryaev {
    baseline: f64,
    sums: [f64; DROPS.len()],
}

impl Shiryaev {
    /// Watches for a mean below `baseline`, which stays as it is from now on.
    pub fn new(baseline: f64) -> Self {
        Self { baseline: baseline.clamp(*BASELINE.start(), *BASELINE.end()), sums: [0.0; DROPS.len()] }
    }

    /// The mean that is defended.
    pub fn baseline(&self) -> f64 {
        self.baseline
    }

    /// Takes an outcome from 0 to 1 and returns the evidence for a drop. For 0 and 1 the factor is the likelihood
    /// ratio; between them it is the bet `1 + lambda (baseline - x)`, which is fair for any outcomes of that mean.
    pub fn observe(&mut self, x: f64) -> f64 {
        let Self { baseline, sums } = self;
        for (sum, drop) in sums.iter_mut().zip(DROPS) {
            let factor = x * drop + (1.0 - x) * (1.0 - *baseline * drop) / (1.0 - *baseline);
            *sum = ((1.0 + *sum) * factor).min(LARGEST);
        }
        self.evidence()
    }

    /// The evidence for a drop.
    pub fn evidence(&self) -> f64 {
        self.sums.iter().sum::<f64>() / DROPS.len() as f64
    }
}
