//! Calibration: a head's raw score becomes a probability, fitted on sources that training never saw.
//!
//! Platt scaling: <https://en.wikipedia.org/wiki/Platt_scaling>. The probability is for traffic of which a share `prior`
//! is positive. Within a kind every source counts alike, however many rows it has.

use waltz_screen::linear::sigmoid;

/// A raw score of a row, the truth, and the source that the row comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) raw: f32,
    pub(super) truth: bool,
    pub(super) source: &'a str,
}

/// The probability of a raw score is `sigmoid((raw - zero) / step)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// The raw score that decides.
    pub(super) zero: f64,
    /// The distance from it that is worth one logit.
    pub(super) step: f64,
}

/// Rounds of Newton's method; it settles after a few.
const ROUNDS: usize = 40;
/// A slope that would make the score a step, or point the wrong way, is held at these.
const SLOPES: (f64, f64) = (1e-2, 1e3);

/// Fits the curve to samples of both kinds.
pub(super) fn fit(samples: &[Sample<'_>], prior: f64) -> Fit {
    let weighted = weighted(samples, prior);
    // Centred and scaled, so that Newton's method starts near its end.
    let mean: f64 = weighted.iter().map(|(raw, _, weight)| raw * weight).sum();
    let spread: f64 = weighted.iter().map(|(raw, _, weight)| (raw - mean).powi(2) * weight).sum();
    let spread = spread.sqrt().max(1e-6);
    let (mut slope, mut offset) = (1.0, 0.0);
    for _ in 0..ROUNDS {
        // A trace of decay keeps the slope finite where the kinds can be parted without error.
        let (mut to_slope, mut to_offset) = (1e-4 * slope, 0.0);
        let (mut ss, mut so, mut oo) = (1e-4, 0.0, 1e-9);
        for (raw, truth, weight) in &weighted {
            let x = (raw - mean) / spread;
            let chance = sigmoid(slope * x + offset);
            let error = weight * (chance - f64::from(u8::from(*truth)));
            let curve = weight * chance * (1.0 - chance);
            to_slope += error * x;
            to_offset += error;
            ss += curve * x * x;
            so += curve * x;
            oo += curve;
        }
        let determinant = ss * oo - so * so;
        if determinant.abs() < 1e-12 {
            break;
        }
        let (by_slope, by_offset) =
            ((oo * to_slope - so * to_offset) / determinant, (ss * to_offset - so * to_slope) / determinant);
        slope -= by_slope.clamp(-2.0, 2.0);
        offset -= by_offset.clamp(-2.0, 2.0);
        if by_slope.abs() + by_offset.abs() < 1e-9 {
            break;
        }
    }
    let slope = slope.clamp(SLOPES.0, SLOPES.1);
    Fit { zero: mean - offset / slope * spread, step: spread / slope }
}

impl Fit {
    /// The probability of a raw score.
    pub(super) fn chance(self, raw: f32) -> f64 {
        sigmoid((f64::from(raw) - self.zero) / self.step)
    }
}

/// The highest probability below which at most a share `lost` of the positives lies.
pub(super) fn floor(samples: &[Sample<'_>], fit: Fit, lost: f64) -> f64 {
    let mut positives: Vec<(f64, f64)> = Vec::new();
    for (sample, (_, truth, weight)) in samples.iter().zip(weighted(samples, 0.5)) {
        if truth {
            positives.push((fit.chance(sample.raw), 2.0 * weight));
        }
    }
    positives.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut sum = 0.0;
    for (chance, weight) in positives {
        sum += weight;
        if sum > lost {
            return chance;
        }
    }
    0.0
}

/// Raw score, truth and weight of every sample; the weights of all sum to 1.
fn weighted(samples: &[Sample<'_>], prior: f64) -> Vec<(f64, bool, f64)> {
    let mut counts: std::collections::BTreeMap<(bool, &str), usize> = std::collections::BTreeMap::new();
    for sample in samples {
        *counts.entry((sample.truth, sample.source)).or_default() += 1;
    }
    let sources = |truth: bool| counts.keys().filter(|(kind, _)| *kind == truth).count().max(1);
    let (yes, no) = (sources(true), sources(false));
    let weight = |sample: &Sample<'_>| {
        let rows = counts.get(&(sample.truth, sample.source)).copied().unwrap_or(1);
        let (share, sources) = if sample.truth { (prior, yes) } else { (1.0 - prior, no) };
        share / (sources * rows) as f64
    };
    samples.iter().map(|sample| (f64::from(sample.raw), sample.truth, weight(sample))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(raw: f32, truth: bool, source: &str) -> Sample<'_> {
        Sample { raw, truth, source }
    }

    #[test]
    fn a_fitted_score_is_the_share_of_positives() {
        // Raw scores whose true probability is sigmoid(2 raw - 1).
        let mut samples = Vec::new();
        for step in -300..300_i32 {
            let raw = step as f32 / 100.0;
            let chance = sigmoid(2.0 * f64::from(raw) - 1.0);
            let yes = (chance * 50.0).round() as usize;
            samples.extend((0..50).map(|index| sample(raw, index < yes, "one")));
        }
        let share = samples.iter().filter(|sample| sample.truth).count() as f64 / samples.len() as f64;
        let found = fit(&samples, share);
        assert!((found.zero - 0.5).abs() < 0.02 && (found.step - 0.5).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn the_decision_parts_what_can_be_parted() {
        let mut samples: Vec<Sample<'_>> = (0..100).map(|n| sample(n as f32 / 100.0, false, "one")).collect();
        samples.extend((0..100).map(|n| sample(2.0 + n as f32 / 100.0, true, "one")));
        let found = fit(&samples, 0.5);
        assert!(found.zero > 0.99 && found.zero < 2.0, "{found:?}");
        assert!(found.chance(0.5) < 0.1 && found.chance(2.5) > 0.9, "{found:?}");
    }

    #[test]
    fn a_large_source_does_not_outvote_a_small_one() {
        let mut samples = vec![sample(0.0, false, "small"), sample(3.0, true, "small")];
        samples.extend((0..1000).map(|n| sample(1.0 + n as f32 / 1000.0, false, "large")));
        samples.extend((0..1000).map(|n| sample(2.5 + n as f32 / 1000.0, true, "large")));
        let alone = fit(&samples[2..], 0.5);
        let together = fit(&samples, 0.5);
        assert!(together.zero < alone.zero && together.zero > 1.0, "{together:?} {alone:?}");
    }

    #[test]
    fn the_floor_loses_what_it_may_and_no_more() {
        let samples: Vec<Sample<'_>> = (0..200).map(|n| sample(n as f32, n >= 100, "one")).collect();
        let found = fit(&samples, 0.5);
        let floor = floor(&samples, found, 0.05);
        let lost = samples.iter().filter(|one| one.truth && found.chance(one.raw) < floor).count();
        assert_eq!(lost, 5);
    }
}
