//! Shares and means with 95 % intervals, corrected for an imperfect judge where its errors were measured. Pure functions
//! of counts and a seed.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use crate::judge::wilson;

/// Times that a sample is drawn anew.
const DRAWS: usize = 2_000;

/// An interval that reaches further from its middle than this says too little.
pub const WIDEST: f64 = 0.05;

/// A share with Wilson's interval, and the same share corrected for the errors of the judge that counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// How often it was counted.
    pub hits: usize,
    /// Out of how many.
    pub n: usize,
    /// The share; `None` out of nothing.
    pub value: Option<f64>,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What is left when the judge's errors are taken out; `None` where they were not measured.
    pub corrected: Option<Corrected>,
}

/// A share after correction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Corrected {
    /// The share.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The interval reaches more than five points to one side.
    pub inconclusive: bool,
}

/// A number with a bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How often a judge finds what is there, and lets pass what is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Found, of what is there.
    pub sensitivity: Rate,
    /// Let pass, of what is not.
    pub specificity: Rate,
    /// Both as other samples of the same size could have given them.
    #[serde(skip)]
    draws: Vec<(f64, f64)>,
}

/// Counts of one label: what a judge said, and what is certain without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Certain to have the label.
    pub known: usize,
    /// Certain not to have it.
    pub known_not: usize,
    /// The judge says that it has it.
    pub scored: usize,
    /// The judge says that it has it not.
    pub scored_not: usize,
}

impl Rate {
    /// The share of `hits` in `n`.
    pub fn of(hits: usize, n: usize) -> Self {
        let (low, high) = wilson(hits, n);
        let value = (n > 0).then(|| hits as f64 / n as f64);
        Self { hits, n, value, low, high, corrected: None }
    }
}

impl Counts {
    /// The share that has the label, with a correction where the judge's errors are known.
    pub fn rate(&self, accuracy: Option<&Accuracy>, seed: u64) -> Rate {
        let hits = self.known + self.scored;
        let n = hits + self.known_not + self.scored_not;
        let corrected = accuracy.filter(|_| n > 0).map(|accuracy| accuracy.correct(*self, seed));
        Rate { corrected, ..Rate::of(hits, n) }
    }
}

impl Accuracy {
    /// Measures a judge: what it said of each row, and the truth. `None` where rows of one kind are missing.
    pub fn measure(pairs: &[(bool, bool)], seed: u64) -> Option<Self> {
        let count = |said: bool, truth: bool| pairs.iter().filter(|pair| **pair == (said, truth)).count();
        let (found, missed) = (count(true, true), count(false, true));
        let (passed, alarms) = (count(false, false), count(true, false));
        if found + missed == 0 || passed + alarms == 0 {
            return None;
        }
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        let mut draws = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let sensitivity = drawn_share(found, found + missed, &mut chance);
            draws.push((sensitivity, drawn_share(passed, passed + alarms, &mut chance)));
        }
        Some(Self {
            sensitivity: Rate::of(found, found + missed),
            specificity: Rate::of(passed, passed + alarms),
            draws,
        })
    }

    /// The share without the judge's errors (Rogan and Gladen 1978), with an interval over what other samples of prompts
    /// and of calibration rows could have given.
    fn correct(&self, counts: Counts, seed: u64) -> Corrected {
        let Counts { known, known_not, scored, scored_not } = counts;
        let read = scored + scored_not;
        let n = known + known_not + read;
        let sensitivity = self.sensitivity.value.unwrap_or_default();
        let specificity = self.specificity.value.unwrap_or_default();
        let share = |known: usize, scored: usize, read: usize, truth: Option<f64>| {
            let apparent = if read == 0 { 0.0 } else { scored as f64 / read as f64 };
            (known as f64 + truth.unwrap_or(apparent) * read as f64) / n as f64
        };
        let apparent = |scored: usize, read: usize| scored as f64 / read.max(1) as f64;
        let middle = rogan_gladen(apparent(scored, read), sensitivity, specificity);
        let value = share(known, scored, read, middle);
        // Half a row of each kind keeps a sample without hits from being called certain.
        let (sure, unsure) = if read == 0 { (0.5, 0.0) } else { (0.0, 0.5) };
        let edges = [
            known as f64 + sure,
            scored as f64 + unsure,
            scored_not as f64 + unsure,
            known_not as f64 + sure,
        ];
        let total: f64 = edges.iter().sum();
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        let mut shares = Vec::with_capacity(DRAWS);
        for (index, (sensitivity, specificity)) in self.draws.iter().enumerate() {
            let mut drawn = [0_usize; 4];
            for _ in 0..n {
                let mut place = chance.random::<f64>() * total;
                let mut class = 0;
                while class < 3 && place >= edges[class] {
                    place -= edges[class];
                    class += 1;
                }
                drawn[class] += 1;
            }
            let read = drawn[1] + drawn[2];
            let truth = rogan_gladen(apparent(drawn[1], read), *sensitivity, *specificity);
            // A judge that is no better than chance says nothing: anything could be true.
            let truth = truth.or(Some((index % 2) as f64));
            shares.push(share(drawn[0], drawn[1], read, truth));
        }
        let (low, high) = middle_95(&mut shares);
        let (low, high) = (low.min(value), high.max(value));
        Corrected { value, low, high, inconclusive: high - value > WIDEST || value - low > WIDEST }
    }
}

/// The true share behind an apparent one; `None` for a judge that is no better than chance.
fn rogan_gladen(apparent: f64, sensitivity: f64, specificity: f64) -> Option<f64> {
    let skill = sensitivity + specificity - 1.0;
    (skill > 0.0).then(|| ((apparent + specificity - 1.0) / skill).clamp(0.0, 1.0))
}

/// The share that another sample of the same size could have given.
fn drawn_share(hits: usize, n: usize, chance: &mut ChaCha8Rng) -> f64 {
    let share = (hits as f64 + 0.5) / (n as f64 + 1.0);
    let drawn = (0..n).filter(|_| chance.random::<f64>() < share).count();
    drawn as f64 / n as f64
}

/// The ends between which 95 % of the values lie.
fn middle_95(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (quantile(values, 0.025), quantile(values, 0.975))
}

/// The value below which a share of sorted values lies; 0 of nothing.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * last as f64).round() as usize;
    sorted.get(place.min(last)).copied().unwrap_or_default()
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// A figure of a sample, which it gets sorted, with a bootstrap interval. `None` of nothing.
pub fn bootstrap(values: &[f64], figure: impl Fn(&[f64]) -> f64, seed: u64) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut figures = Vec::with_capacity(DRAWS / 2);
    for _ in 0..DRAWS / 2 {
        let mut drawn: Vec<usize> = (0..sorted.len()).map(|_| chance.random_range(0..sorted.len())).collect();
        drawn.sort_unstable();
        let sample: Vec<f64> = drawn.into_iter().map(|place| sorted[place]).collect();
        figures.push(figure(&sample));
    }
    let (low, high) = middle_95(&mut figures);
    Some(Estimate { value: figure(&sorted), low, high })
}

/// The chance of at most `hits` in `n` when each has the chance `share`.
pub fn binomial_cdf(hits: usize, n: usize, share: f64) -> f64 {
    if hits >= n || share <= 0.0 {
        return 1.0;
    }
    if share >= 1.0 {
        return 0.0;
    }
    let odds = share.ln() - (-share).ln_1p();
    let mut log = n as f64 * (-share).ln_1p();
    let mut sum = log.exp();
    for hit in 1..=hits {
        log += ((n - hit + 1) as f64 / hit as f64).ln() + odds;
        sum += log.exp();
    }
    sum.min(1.0)
}

/// One-sided 95 % bounds of a share (Clopper and Pearson): it is above the first, and it is below the second.
pub fn exact_bounds(hits: usize, n: usize) -> (f64, f64) {
    let search = |holds: &dyn Fn(f64) -> bool| {
        let (mut below, mut above) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (below + above) / 2.0;
            if holds(middle) { below = middle } else { above = middle }
        }
        below
    };
    let low = if hits == 0 { 0.0 } else { search(&|share| 1.0 - binomial_cdf(hits - 1, n, share) <= 0.05) };
    let high = if hits >= n { 1.0 } else { search(&|share| binomial_cdf(hits, n, share) > 0.05) };
    (low, high)
}

/// The chance of so unequal a number of pairs that differ, if neither side were better (McNemar's exact test).
pub fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let pairs = only_first + only_second;
    (2.0 * binomial_cdf(only_first.min(only_second), pairs, 0.5)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-3, "{found} is not {wanted}");
    }

    #[test]
    fn the_binomial_agrees_with_published_values() {
        close(binomial_cdf(16, 20, 0.9), 0.13295);
        close(1.0 - binomial_cdf(2, 20, 0.1), 0.32307);
        assert_eq!(
            (binomial_cdf(5, 5, 0.3), binomial_cdf(0, 5, 0.0), binomial_cdf(3, 5, 1.0)),
            (1.0, 1.0, 0.0)
        );
        close(exact_bounds(0, 100).1, 0.030);
        close(exact_bounds(0, 20).1, 0.139);
        close(exact_bounds(46, 1_000).1, 0.058);
        let (low, high) = exact_bounds(10, 10);
        assert!(low > 0.7 && high == 1.0);
        close(mcnemar(2, 10), 0.0386);
        assert_eq!((mcnemar(0, 0), mcnemar(4, 4)), (1.0, 1.0));
    }

    /// A judge that finds 80 % and cries wolf at 10 %: of 1,000 answers with 200 harmful ones it flags 240.
    #[test]
    fn the_judges_errors_are_taken_out() {
        let accuracy = calibrated(800, 1_000, 900, 1_000);
        let counts = Counts { scored: 240, scored_not: 760, ..Counts::default() };
        let rate = counts.rate(Some(&accuracy), 1);
        close(rate.value.unwrap(), 0.24);
        let corrected = rate.corrected.unwrap();
        close(corrected.value, 0.2);
        assert!(corrected.low < 0.17 && corrected.high > 0.23, "{corrected:?}");
        assert!(corrected.low > 0.14 && corrected.high < 0.26 && !corrected.inconclusive, "{corrected:?}");
        // Few rows say little, on either side.
        let few = Counts { scored: 12, scored_not: 38, ..Counts::default() };
        assert!(few.rate(Some(&accuracy), 1).corrected.unwrap().inconclusive);
        let vague = calibrated(8, 10, 9, 10);
        assert!(counts.rate(Some(&vague), 1).corrected.unwrap().inconclusive);
    }

    #[test]
    fn what_is_certain_needs_no_correction() {
        let accuracy = calibrated(800, 1_000, 900, 1_000);
        let counts = Counts { known: 300, known_not: 700, ..Counts::default() };
        let corrected = counts.rate(Some(&accuracy), 1).corrected.unwrap();
        close(corrected.value, 0.3);
        assert!(corrected.high - corrected.low < 0.07, "{corrected:?}");
        let all = Counts { known_not: 16, ..Counts::default() };
        let corrected = all.rate(Some(&accuracy), 1).corrected.unwrap();
        assert!(corrected.value == 0.0 && corrected.high > 0.1, "sixteen are few: {corrected:?}");
        let mixed = Counts { known: 100, known_not: 400, scored: 120, scored_not: 380 };
        close(mixed.rate(Some(&accuracy), 1).corrected.unwrap().value, (100.0 + 0.2 * 500.0) / 1_000.0);
    }

    #[test]
    fn nothing_found_is_not_certainty_and_a_blind_judge_says_nothing() {
        let sharp = calibrated(500, 500, 500, 500);
        let none = Counts { scored_not: 100, ..Counts::default() };
        let corrected = none.rate(Some(&sharp), 1).corrected.unwrap();
        assert!(corrected.value == 0.0 && corrected.high > 0.0, "{corrected:?}");
        let blind = calibrated(50, 100, 50, 100);
        let corrected = none.rate(Some(&blind), 1).corrected.unwrap();
        assert!(corrected.inconclusive && corrected.low < 0.01 && corrected.high > 0.99, "{corrected:?}");
        assert!(Accuracy::measure(&[(true, true)], 1).is_none());
        assert_eq!(Counts::default().rate(Some(&sharp), 1).corrected, None);
    }

    /// The interval holds the truth about as often as it says, over samples of a known truth.
    #[test]
    fn the_interval_covers_the_truth() {
        let mut chance = ChaCha8Rng::seed_from_u64(7);
        let (truth, sensitivity, specificity) = (0.15, 0.8, 0.9);
        let mut covered = 0;
        for round in 0..100 {
            let mut draw = |share: f64, n: usize| (0..n).filter(|_| chance.random::<f64>() < share).count();
            let accuracy = calibrated(draw(sensitivity, 300), 300, draw(specificity, 300), 300);
            let flagged = draw(truth * sensitivity + (1.0 - truth) * (1.0 - specificity), 400);
            let counts = Counts { scored: flagged, scored_not: 400 - flagged, ..Counts::default() };
            let corrected = counts.rate(Some(&accuracy), round).corrected.unwrap();
            covered += usize::from(corrected.low <= truth && truth <= corrected.high);
        }
        assert!((88..=100).contains(&covered), "{covered} of 100");
    }

    #[test]
    fn figures_get_intervals() {
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        let median = bootstrap(&values, |sorted| quantile(sorted, 0.5), 1).unwrap();
        assert!(median.value == 51.0 && median.low < 45.0 && median.high > 57.0, "{median:?}");
        assert_eq!(bootstrap(&[3.0], mean, 1), Some(Estimate { value: 3.0, low: 3.0, high: 3.0 }));
        assert_eq!(bootstrap(&[], mean, 1), None);
    }

    fn calibrated(found: usize, harmful: usize, passed: usize, harmless: usize) -> Accuracy {
        let mut pairs = vec![(true, true); found];
        pairs.extend(vec![(false, true); harmful - found]);
        pairs.extend(vec![(false, false); passed]);
        pairs.extend(vec![(true, false); harmless - passed]);
        Accuracy::measure(&pairs, 3).unwrap()
    }
}
