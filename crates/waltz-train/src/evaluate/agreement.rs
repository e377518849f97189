//! How far readers agree, beyond chance, and which threshold a scorer needs for few false alarms. Pure functions of labels.

use serde::Serialize;

/// The specificity for which a threshold is looked for.
const STRICT: f64 = 0.97;

/// A threshold for few false alarms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Strict {
    /// From here on a score decides.
    pub threshold: f32,
    /// What is let pass of what is not there.
    pub specificity: f64,
    /// What is found of what is there.
    pub sensitivity: f64,
}

/// Readers' labels of an answer as one number, so that answers can be drawn anew: a digit each, 0 for none.
pub(super) fn packed(labels: &[Option<bool>]) -> f64 {
    let digit = |label: &Option<bool>| label.map_or(0.0, |label| 1.0 + f64::from(u8::from(label)));
    labels.iter().rev().fold(0.0, |number, label| number * 3.0 + digit(label))
}

/// Pairs of readers over all answers: both say yes, only the first, only the second, neither.
pub(super) fn counted(said: &[f64]) -> [usize; 4] {
    let mut counts = [0; 4];
    for number in said {
        let mut labels = Vec::new();
        let mut left = *number;
        while left >= 1.0 {
            let digit = left % 3.0;
            left = ((left - digit) / 3.0).round();
            if digit >= 1.0 {
                labels.push(digit >= 2.0);
            }
        }
        for (place, first) in labels.iter().enumerate() {
            for second in &labels[place + 1..] {
                counts[match (first, second) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, true) => 2,
                    (false, false) => 3,
                }] += 1;
            }
        }
    }
    counts
}

/// Agreement beyond chance (Cohen 1960); not a number where every label is the same.
pub(super) fn kappa(said: &[f64]) -> f64 {
    let [both, first, second, neither] = counted(said).map(|count| count as f64);
    let all = both + first + second + neither;
    let observed = (both + neither) / all;
    let (by_first, by_second) = ((both + first) / all, (both + second) / all);
    let expected = by_first * by_second + (1.0 - by_first) * (1.0 - by_second);
    (observed - expected) / (1.0 - expected)
}

/// The lowest threshold with a specificity of 97 %.
pub(super) fn strict(judged: &[(f32, bool)]) -> Option<Strict> {
    let mut negatives: Vec<f32> =
        judged.iter().filter(|(_, truth)| !truth).map(|(score, _)| *score).collect();
    let positives: Vec<f32> = judged.iter().filter(|(_, truth)| *truth).map(|(score, _)| *score).collect();
    negatives.sort_by(f32::total_cmp);
    let passed = (STRICT * negatives.len() as f64).ceil() as usize;
    let highest = *negatives.get(passed.checked_sub(1)?)?;
    let threshold = highest.next_up();
    let share = |scores: &[f32], is: &dyn Fn(f32) -> bool| {
        scores.iter().filter(|score| is(**score)).count() as f64 / scores.len().max(1) as f64
    };
    Some(Strict {
        threshold,
        specificity: share(&negatives, &|score| score < threshold),
        sensitivity: share(&positives, &|score| score >= threshold),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_threshold_lets_97_of_100_pass() {
        let mut judged: Vec<(f32, bool)> = (0..100).map(|score| (score as f32 / 100.0, false)).collect();
        judged.extend((0..10).map(|score| (0.905 + score as f32 / 100.0, true)));
        let Strict { threshold, specificity, sensitivity } = strict(&judged).unwrap();
        assert!(threshold > 0.96 && threshold < 0.961, "{threshold}");
        assert_eq!((specificity, sensitivity), (0.97, 0.4));
        assert_eq!(strict(&[(0.5, true)]), None);
    }

    #[test]
    fn three_readers_make_three_pairs_and_a_gap_makes_fewer() {
        assert_eq!(counted(&[packed(&[Some(true), Some(true), Some(false)])]), [1, 2, 0, 0]);
        assert_eq!(counted(&[packed(&[Some(false), None, Some(true)])]), [0, 0, 1, 0]);
        assert_eq!(counted(&[packed(&[None, Some(false), Some(false)])]), [0, 0, 0, 1]);
        assert!(kappa(&[packed(&[Some(true), Some(true)])]).is_nan());
    }
}
