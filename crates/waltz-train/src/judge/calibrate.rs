//! Edges of scores, set on sources that training never saw.

use waltz_screen::linear::Edges;

/// A raw score of a row, the truth, and the source that the row comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) raw: f32,
    pub(super) truth: bool,
    pub(super) source: &'a str,
}

/// The share of positives that lies below the band: the judge may be sure and wrong so often.
const MISSED: f64 = 0.03;
/// The share of negatives that lies above the band.
const ALARMED: f64 = 0.0025;
/// Edges that lie closer are moved apart, so that no score jumps.
const CLOSEST: f32 = 0.05;

/// The edges for a score. The decision is where F1 is highest if a share `prior` of all rows were
/// positive; within a kind, every source counts alike, however many rows it has.
pub(super) fn edges(samples: &[Sample<'_>], prior: f64) -> Edges {
    let mut weighted: Vec<(f32, bool, f64)> = Vec::with_capacity(samples.len());
    for truth in [false, true] {
        let of_kind: Vec<&Sample<'_>> = samples.iter().filter(|sample| sample.truth == truth).collect();
        let mut sources: Vec<&str> = of_kind.iter().map(|sample| sample.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let share = if truth { prior } else { 1.0 - prior };
        for sample in &of_kind {
            let rows = of_kind.iter().filter(|other| other.source == sample.source).count();
            weighted.push((sample.raw, truth, share / (sources.len() * rows) as f64));
        }
    }
    weighted.sort_by(|left, right| right.0.total_cmp(&left.0));
    let decision = best_f1(&weighted, prior);
    let low = passed(weighted.iter().rev().filter(|sample| sample.1), MISSED * prior).min(decision - CLOSEST);
    let high =
        passed(weighted.iter().filter(|sample| !sample.1), ALARMED * (1.0 - prior)).max(decision + CLOSEST);
    Edges { low, decision, high }
}

fn best_f1(falling: &[(f32, bool, f64)], prior: f64) -> f32 {
    let (mut found, mut wrong) = (0.0, 0.0);
    let mut best = (0.0, 0.0);
    for (index, (raw, truth, weight)) in falling.iter().enumerate() {
        if *truth {
            found += weight;
        } else {
            wrong += weight;
        }
        let f1 = 2.0 * found / (found + wrong + prior);
        // Half way to the next row, which lies on the other side.
        let next = falling.get(index + 1).map_or(*raw, |next| next.0);
        if f1 > best.0 {
            best = (f1, raw / 2.0 + next / 2.0);
        }
    }
    best.1
}

/// The raw score at which more than `share` of the weight has passed.
fn passed<'a>(samples: impl Iterator<Item = &'a (f32, bool, f64)>, share: f64) -> f32 {
    let mut sum = 0.0;
    let mut last = 0.0;
    for (raw, _, weight) in samples {
        sum += weight;
        last = *raw;
        if sum > share {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(raw: f32, truth: bool, source: &str) -> Sample<'_> {
        Sample { raw, truth, source }
    }

    #[test]
    fn the_decision_parts_what_can_be_parted() {
        let mut samples: Vec<Sample<'_>> = (0..100).map(|n| sample(n as f32 / 100.0, false, "one")).collect();
        samples.extend((0..100).map(|n| sample(2.0 + n as f32 / 100.0, true, "one")));
        let edges = edges(&samples, 0.5);
        assert!(edges.decision > 0.99 && edges.decision < 2.0, "{edges:?}");
        assert!(edges.low < edges.decision && edges.decision < edges.high, "{edges:?}");
    }

    #[test]
    fn a_large_source_does_not_outvote_a_small_one() {
        let mut samples = vec![sample(0.0, false, "small"), sample(3.0, true, "small")];
        samples.extend((0..1000).map(|n| sample(1.0 + n as f32 / 1000.0, false, "large")));
        samples.extend((0..1000).map(|n| sample(2.5 + n as f32 / 1000.0, true, "large")));
        let alone = edges(&samples[..2], 0.5);
        let together = edges(&samples, 0.5);
        assert!(together.decision > alone.decision && together.decision < 2.6, "{together:?}");
    }
}
