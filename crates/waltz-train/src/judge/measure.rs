//! How good a score is on labelled rows: F1 at the threshold, AUC, false positives.

/// A raw or rescaled score and the truth.
pub type Scored = (f32, bool);

/// What is reported about one score on one set of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    /// Rows where it is there.
    pub positives: usize,
    /// Rows where it is not.
    pub negatives: usize,
    /// F1 at the threshold; `None` without positives.
    pub f1: Option<f64>,
    /// The chance that a positive row scores above a negative one.
    pub auc: Option<f64>,
    /// False positives where 95 % of the positives are found.
    pub fpr_at_95: Option<f64>,
    /// False positives at the threshold, with Wilson's 95 % interval.
    pub fpr: Option<(f64, f64, f64)>,
    /// Found at the threshold.
    pub recall: Option<f64>,
    /// F1 at the threshold that suits these rows best: what calibration could still win.
    pub best_f1: Option<f64>,
}

/// Measures scores against the truth at a threshold.
pub fn measure(scored: &[Scored], threshold: f32) -> Measures {
    let mut sorted = scored.to_vec();
    sorted.sort_by(|left, right| right.0.total_cmp(&left.0));
    let positives = sorted.iter().filter(|(_, truth)| *truth).count();
    let negatives = sorted.len() - positives;
    let above = |edge: f32, kind: bool| {
        sorted.iter().filter(|(score, truth)| *truth == kind && *score >= edge).count()
    };
    let (found, wrong) = (above(threshold, true), above(threshold, false));
    let alarms = |wrong: usize| {
        let (low, high) = wilson(wrong, negatives);
        (wrong as f64 / negatives as f64, low, high)
    };
    let both = positives > 0 && negatives > 0;
    Measures {
        positives,
        negatives,
        f1: (positives > 0).then(|| 2.0 * found as f64 / (found + wrong + positives) as f64),
        auc: both.then(|| area(&sorted, positives, negatives)),
        fpr_at_95: both.then(|| false_positives_at(&sorted, positives, negatives)),
        fpr: (negatives > 0).then(|| alarms(wrong)),
        recall: (positives > 0).then(|| found as f64 / positives as f64),
        best_f1: (positives > 0).then(|| best_f1(&sorted, positives)),
    }
}

fn best_f1(sorted: &[Scored], positives: usize) -> f64 {
    let (mut found, mut best) = (0, 0.0_f64);
    for (index, (score, truth)) in sorted.iter().enumerate() {
        found += usize::from(*truth);
        // Rows of one score are on one side.
        if sorted.get(index + 1).is_none_or(|next| next.0 != *score) {
            best = best.max(2.0 * found as f64 / (index + 1 + positives) as f64);
        }
    }
    best
}

/// The area under the curve; ties count half.
fn area(sorted: &[Scored], positives: usize, negatives: usize) -> f64 {
    let mut above = 0.0;
    let mut seen = 0.0;
    let mut rest = sorted;
    while let Some((score, _)) = rest.first() {
        let same = rest.iter().take_while(|other| other.0 == *score).count();
        let (tied, later) = rest.split_at(same);
        let hits = tied.iter().filter(|(_, truth)| *truth).count() as f64;
        let misses = same as f64 - hits;
        above += misses * (seen + hits / 2.0);
        seen += hits;
        rest = later;
    }
    above / (positives as f64 * negatives as f64)
}

fn false_positives_at(sorted: &[Scored], positives: usize, negatives: usize) -> f64 {
    let wanted = (0.95 * positives as f64).ceil() as usize;
    let (mut found, mut wrong) = (0, 0);
    for (_, truth) in sorted {
        if *truth {
            found += 1;
        } else {
            wrong += 1;
        }
        if found >= wanted {
            break;
        }
    }
    wrong as f64 / negatives as f64
}

/// Wilson's 95 % interval for a share.
pub(crate) fn wilson(hits: usize, rows: usize) -> (f64, f64) {
    if rows == 0 {
        return (0.0, 1.0);
    }
    let (count, z) = (rows as f64, 1.959_964_f64);
    let share = hits as f64 / count;
    let scale = 1.0 + z * z / count;
    let middle = (share + z * z / (2.0 * count)) / scale;
    let half = z * (share * (1.0 - share) / count + z * z / (4.0 * count * count)).sqrt() / scale;
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_and_a_blind_score() {
        let perfect = [(0.9, true), (0.8, true), (0.2, false), (0.1, false)];
        let measures = measure(&perfect, 0.85);
        assert_eq!((measures.best_f1, measures.auc, measures.fpr_at_95), (Some(1.0), Some(1.0), Some(0.0)));
        assert_eq!((measures.recall, measures.f1), (Some(0.5), Some(2.0 / 3.0)));
        let blind = [(0.5, true), (0.5, false), (0.5, true), (0.5, false)];
        let measures = measure(&blind, 0.5);
        assert_eq!((measures.auc, measures.recall), (Some(0.5), Some(1.0)));
        assert_eq!((measures.f1, measures.best_f1), (Some(2.0 * 2.0 / 6.0), Some(2.0 * 2.0 / 6.0)));
    }

    #[test]
    fn wilson_holds_the_share_and_shrinks_with_rows() {
        let (low, high) = wilson(5, 100);
        assert!(low < 0.05 && 0.05 < high && (low - 0.0215).abs() < 1e-3 && (high - 0.1118).abs() < 1e-3);
        let (closer, nearer) = wilson(500, 10_000);
        assert!(closer > low && nearer < high);
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }
}
