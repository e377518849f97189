//! Chooses a token out of logits. Every sequence has its own seeded source of randomness and draws once per
//! token, so that the same seed gives the same tokens whatever else is computed with it.

use std::collections::HashSet;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::TokenMask;
use crate::kernels::{Instructions, LANES, softmax};

/// How tokens are chosen. The steps are taken in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Tokens that were there before count less by this factor, 1 (no change) to 2.
    pub repetition_penalty: f32,
    /// Evens out the chances: 0 takes the likeliest token, 1 leaves them as they are, at most 2.
    pub temperature: f32,
    /// Only so many of the likeliest tokens; 0 means all.
    pub top_k: u32,
    /// Only the likeliest tokens that together have this chance, above 0 to 1.
    pub top_p: f32,
    /// Only tokens with at least this share of the likeliest token's chance, 0 to 1.
    pub min_p: f32,
    /// The same seed gives the same tokens.
    pub seed: u64,
}

/// A token's chance as a logarithm, before any step of [`Sampling`].
#[derive(Clone, Debug, PartialEq)]
pub struct TokenChance {
    /// The token that was chosen.
    pub token: u32,
    /// The logarithm of its chance.
    pub logprob: f32,
    /// The likeliest tokens and theirs, likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// The state of choosing for one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
    seen: HashSet<u32>,
}

impl Default for Sampling {
    /// The model's own chances.
    fn default() -> Self {
        Self { repetition_penalty: 1.0, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl Sampling {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Says which value is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ranges = [
            ("repetition_penalty", self.repetition_penalty, 1.0..=2.0),
            ("temperature", self.temperature, 0.0..=2.0),
            ("top_p", self.top_p, f32::MIN_POSITIVE..=1.0),
            ("min_p", self.min_p, 0.0..=1.0),
        ];
        for (name, value, range) in ranges {
            if !range.contains(&value) {
                return Err(format!("{name} is {value}; allowed is {} to {}", range.start(), range.end()));
            }
        }
        Ok(())
    }
}

impl Sampler {
    /// Begins a sequence after its prompt.
    pub(crate) fn new(sampling: Sampling, prompt: &[u32]) -> Self {
        let seen = if sampling.repetition_penalty == 1.0 {
            HashSet::new()
        } else {
            prompt.iter().copied().collect()
        };
        Self { sampling, random: ChaCha8Rng::seed_from_u64(sampling.seed), seen }
    }

    /// Chooses among the tokens of `mask`, or all. Nothing if there is none, or if a logit is no
    /// finite number.
    /// Uses up the logits.
    pub(crate) fn choose(&mut self, logits: &mut [f32], mask: Option<&TokenMask>) -> Option<u32> {
        let Sampling { repetition_penalty, temperature, .. } = self.sampling;
        // Without an early end, so that the compiler makes vector instructions of it.
        if logits.iter().fold(false, |bad, logit| bad | !logit.is_finite()) {
            return None;
        }
        for token in &self.seen {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
            }
        }
        if let Some(mask) = mask {
            for (logits, word) in logits.chunks_mut(64).zip(mask.words()) {
                // Most words of a mask are all or nothing.
                match *word {
                    u64::MAX => {}
                    0 => logits.fill(f32::NEG_INFINITY),
                    word => {
                        for (bit, logit) in logits.iter_mut().enumerate() {
                            *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                        }
                    }
                }
            }
        }
        let likeliest = likeliest(logits)?;
        let token = if temperature == 0.0 { likeliest } else { self.draw(logits) };
        if repetition_penalty != 1.0 {
            self.seen.insert(token);
        }
        Some(token)
    }

    fn draw(&mut self, logits: &mut [f32]) -> u32 {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        for logit in logits.iter_mut() {
            *logit /= temperature;
        }
        softmax(Instructions::best(), logits);
        let chances = &*logits;
        let point: f64 = self.random.random();
        let highest = chances.iter().copied().fold(0.0, f32::max);
        let mut candidates: Vec<(f32, u32)> = chances
            .iter()
            .zip(0..)
            .filter(|(chance, _)| **chance > 0.0 && **chance >= min_p * highest)
            .map(|(chance, token)| (*chance, token))
            .collect();
        if top_k > 0 {
            likeliest_first(&mut candidates, top_k as usize);
            candidates.truncate(top_k as usize);
        }
        if top_p < 1.0 {
            keep_share(&mut candidates, top_p);
        }
        let total: f64 = candidates.iter().map(|(chance, _)| f64::from(*chance)).sum();
        let mut passed = 0.0;
        for (chance, token) in &candidates {
            passed += f64::from(*chance);
            if passed > point * total {
                return *token;
            }
        }
        candidates.last().map_or(0, |(_, token)| *token)
    }
}

/// The chosen token's chance and the `count` likeliest, out of logits as the model gave them.
pub(crate) fn token_chance(logits: &[f32], token: u32, count: usize) -> TokenChance {
    let mut chances = logits.to_vec();
    softmax(Instructions::best(), &mut chances);
    let highest = likeliest(logits).unwrap_or(0) as usize;
    // The chance of the likeliest token is one over the sum, relative to it.
    let sum = logits[highest] - chances[highest].ln();
    let mut candidates: Vec<(f32, u32)> =
        logits.iter().zip(0..).map(|(logit, token)| (*logit, token)).collect();
    likeliest_first(&mut candidates, count);
    let top = candidates.iter().take(count).map(|(logit, token)| (*token, logit - sum)).collect();
    TokenChance { token, logprob: logits[token as usize] - sum, top }
}

/// The highest logit; the lowest number where several are equal. Nothing if all are minus infinity.
fn likeliest(logits: &[f32]) -> Option<u32> {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for part in logits.chunks(LANES) {
        for (lane, logit) in lanes.iter_mut().zip(part) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    let highest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let found = logits.iter().zip(0..).find(|(logit, _)| **logit == highest && highest > f32::NEG_INFINITY);
    found.map(|(_, token)| token)
}

/// Puts the `count` likeliest candidates first, in order.
fn likeliest_first(candidates: &mut [(f32, u32)], count: usize) {
    let order = |one: &(f32, u32), other: &(f32, u32)| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1));
    let count = count.min(candidates.len());
    if count > 0 && count < candidates.len() {
        candidates.select_nth_unstable_by(count - 1, order);
    }
    candidates[..count].sort_unstable_by(order);
}

/// Keeps the fewest of the likeliest candidates that have at least `share` of all their chance. Sorts no
/// more of them than it must.
fn keep_share(candidates: &mut Vec<(f32, u32)>, share: f32) {
    let total: f64 = candidates.iter().map(|(chance, _)| f64::from(*chance)).sum();
    let mut passed = 0.0;
    let mut sorted = 0;
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let count = rest.len().min(sorted.max(64));
        likeliest_first(rest, count);
        for (index, (chance, _)) in rest.iter().take(count).enumerate() {
            passed += f64::from(*chance);
            if passed >= f64::from(share) * total {
                candidates.truncate(sorted + index + 1);
                return;
            }
        }
        sorted += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits() -> Vec<f32> {
        (0..200).map(|token| ((token * 37) % 200) as f32 / 25.0).collect()
    }

    fn draws(sampling: Sampling, count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling, &[]);
        (0..count).map(|_| sampler.choose(&mut logits(), None).unwrap()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens_and_another_gives_others() {
        let sampling = Sampling { seed: 7, ..Sampling::default() };
        assert_eq!(draws(sampling, 50), draws(sampling, 50));
        assert_ne!(draws(sampling, 50), draws(Sampling { seed: 8, ..sampling }, 50));
        // Fixed for good: recorded experience must stay repeatable.
        assert_eq!(draws(sampling, 6), [31, 32, 135, 140, 113, 70]);
    }

    #[test]
    fn tokens_come_as_often_as_their_chances_say() {
        let logits = [1.0_f32, 0.0, 2.0, -1.0];
        for temperature in [0.5_f32, 1.0, 1.7] {
            let mut sampler = Sampler::new(Sampling { temperature, ..Sampling::default() }, &[]);
            let mut counts = [0.0; 4];
            for _ in 0..20_000 {
                counts[sampler.choose(&mut logits.clone(), None).unwrap() as usize] += 1.0 / 20_000.0;
            }
            let sum: f32 = logits.iter().map(|logit| (logit / temperature).exp()).sum();
            for (count, logit) in counts.iter().zip(logits) {
                let chance = (logit / temperature).exp() / sum;
                assert!((count - chance).abs() < 0.015, "{count} is not {chance}");
            }
        }
    }

    /// The tokens that are ever drawn.
    fn drawn(sampling: Sampling) -> Vec<u32> {
        let mut tokens = draws(sampling, 3_000);
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    #[test]
    fn limits_leave_exactly_the_tokens_they_name() {
        // Token (token * 37) % 200 orders the logits; these are the likeliest, likeliest first.
        let mut order: Vec<u32> = (0..200).collect();
        order.sort_by_key(|token| 200 - (token * 37) % 200);
        let all = Sampling { temperature: 2.0, ..Sampling::default() };
        let expect = |count: usize| {
            let mut tokens = order[..count].to_vec();
            tokens.sort_unstable();
            tokens
        };
        assert_eq!(drawn(Sampling { top_k: 5, ..all }), expect(5));
        assert_eq!(drawn(Sampling { top_k: 1, ..all }), expect(1));
        assert_eq!(drawn(Sampling { temperature: 0.0, ..all }), expect(1));
        // Neighbours in order differ by 1/25 in logit, 1/50 at temperature 2.
        let chance = |rank: usize| (-(rank as f64) / 50.0).exp();
        let total: f64 = (0..200).map(chance).sum();
        let shared = (1..).find(|count| (0..*count).map(chance).sum::<f64>() >= 0.2 * total).unwrap();
        assert_eq!(drawn(Sampling { top_p: 0.2, ..all }), expect(shared));
        let near = (0..200).filter(|rank| chance(*rank) >= 0.7499).count();
        assert_eq!(drawn(Sampling { min_p: 0.75, ..all }), expect(near));
        assert!(draws(Sampling { top_p: 0.9, ..all }, 3_000).iter().any(|token| !expect(64).contains(token)));
    }

    #[test]
    fn only_tokens_of_the_mask_are_chosen() {
        let mut mask = TokenMask::new(200);
        let mut sampler = Sampler::new(Sampling::default(), &[]);
        assert_eq!(sampler.choose(&mut logits(), Some(&mask)), None, "no token is allowed");
        for token in [3, 64, 199] {
            mask.allow(token);
        }
        for _ in 0..200 {
            assert!(mask.allows(sampler.choose(&mut logits(), Some(&mask)).unwrap()));
        }
        let mut greedy = Sampler::new(Sampling::greedy(), &[]);
        let best = greedy.choose(&mut logits(), Some(&mask)).unwrap();
        assert_eq!(best, 64, "64 * 37 % 200 is 168; 3 and 199 give 111 and 163");
    }

    #[test]
    fn repeated_tokens_lose() {
        let mut sampler = Sampler::new(Sampling { repetition_penalty: 1.5, ..Sampling::greedy() }, &[2]);
        let logits = [2.9_f32, 2.5, 3.0, -5.0];
        let chosen: Vec<u32> = (0..4).map(|_| sampler.choose(&mut logits.clone(), None).unwrap()).collect();
        assert_eq!(chosen, [0, 1, 2, 2]);
    }

    #[test]
    fn what_is_no_number_is_never_chosen() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for sampling in [Sampling::default(), Sampling::greedy()] {
                assert_eq!(Sampler::new(sampling, &[]).choose(&mut [1.0, bad, 2.0], None), None);
            }
        }
        let equal = [1.0, 3.0, 3.0, 2.0, 3.0];
        assert_eq!(Sampler::new(Sampling::greedy(), &[]).choose(&mut equal.clone(), None), Some(1));
    }

    #[test]
    fn chances_are_logarithms_of_the_models_own() {
        let logits = [1.0_f32, 3.0, 2.0];
        let sum = logits.iter().map(|logit| logit.exp()).sum::<f32>().ln();
        let chance = token_chance(&logits, 0, 2);
        assert!((chance.logprob - (1.0 - sum)).abs() < 1e-5);
        assert_eq!(chance.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
        assert!((chance.top[0].1 - (3.0 - sum)).abs() < 1e-5);
        assert!(token_chance(&logits, 1, 0).top.is_empty());
        assert_eq!(token_chance(&logits, 1, 20).top.len(), 3);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let sound = Sampling::default();
        assert!(sound.check().is_ok() && Sampling::greedy().check().is_ok());
        for (bad, name) in [
            (Sampling { temperature: -0.1, ..sound }, "temperature"),
            (Sampling { temperature: f32::NAN, ..sound }, "temperature"),
            (Sampling { top_p: 0.0, ..sound }, "top_p"),
            (Sampling { min_p: 1.5, ..sound }, "min_p"),
            (Sampling { repetition_penalty: 0.0, ..sound }, "repetition_penalty"),
        ] {
            assert!(bad.check().unwrap_err().contains(name));
        }
    }
}
