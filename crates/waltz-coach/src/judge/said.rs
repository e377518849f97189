//! What a level that reads meaning says about a text, and what it said before.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest, Sha256};

/// So many texts are remembered: rounds and choices share their prompt, and clients send a conversation again with every
/// turn.
const MOST_KNOWN: usize = 4_096;

/// Probabilities, and how much of the text they are about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    /// The prompt asks for harm.
    pub(super) prompt: f32,
    /// The answer is harmful.
    pub(super) harm: f32,
    /// The answer refuses.
    pub(super) refusal: f32,
    /// The text carries an instruction that does not come from the user.
    pub(super) injection: f32,
    /// All of the text was read.
    pub(super) is_whole: bool,
}

impl Said {
    /// From the logits of the four heads; nothing where there are others.
    pub(super) fn from_logits(logits: &[f32], is_whole: bool) -> Option<Self> {
        let &[prompt, harm, refusal, injection] = logits else { return None };
        let [prompt, harm, refusal, injection] = [prompt, harm, refusal, injection].map(chance);
        Some(Self { prompt, harm, refusal, injection, is_whole })
    }

    /// What two readers say together: the mean of their logits.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            prompt: together(self.prompt, other.prompt),
            harm: together(self.harm, other.harm),
            refusal: together(self.refusal, other.refusal),
            injection: together(self.injection, other.injection),
            is_whole: self.is_whole && other.is_whole,
        }
    }
}

fn together(left: f32, right: f32) -> f32 {
    chance((logit(left) + logit(right)) / 2.0)
}

/// 1 / (1 + e^-logit).
pub(super) fn chance(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// The logit of a probability, finite at both ends.
pub(super) fn logit(chance: f32) -> f32 {
    let chance = chance.clamp(1e-6, 1.0 - 1e-6);
    (chance / (1.0 - chance)).ln()
}

/// What was said about the texts of late; the oldest is forgotten first.
#[derive(Debug, Default)]
pub(super) struct Known {
    said: HashMap<[u8; 32], Said>,
    order: VecDeque<[u8; 32]>,
}

impl Known {
    pub(super) fn get(&self, key: &[u8; 32]) -> Option<Said> {
        self.said.get(key).copied()
    }

    pub(super) fn insert(&mut self, key: [u8; 32], said: Said) {
        if self.said.insert(key, said).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.said.remove(&oldest);
        }
    }
}

/// The key of a prompt alone, or of a prompt and its answer.
pub(super) fn fingerprint(prompt: &str, answer: Option<&str>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update((prompt.len() as u64).to_le_bytes());
    hasher.update(prompt);
    // An empty answer is not the same as none.
    hasher.update([u8::from(answer.is_some())]);
    hasher.update(answer.unwrap_or_default());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_stays_bounded() {
        let mut known = Known::default();
        let said = Said { prompt: 0.0, harm: 0.0, refusal: 0.0, injection: 0.0, is_whole: true };
        for number in 0..2 * MOST_KNOWN {
            known.insert(fingerprint(&number.to_string(), None), said);
        }
        assert_eq!((known.said.len(), known.order.len()), (MOST_KNOWN, MOST_KNOWN));
        assert_ne!(fingerprint("a", None), fingerprint("a", Some("")));
        assert_ne!(fingerprint("ab", Some("c")), fingerprint("a", Some("bc")));
    }

    #[test]
    fn two_readers_meet_in_the_middle() {
        let one = Said::from_logits(&[2.0, 0.0, -1.0, 0.0], true).unwrap();
        let other = Said::from_logits(&[0.0, 0.0, 1.0, 0.0], false).unwrap();
        let both = one.and(other);
        assert!((both.prompt - chance(1.0)).abs() < 1e-5 && (both.refusal - 0.5).abs() < 1e-5);
        assert!(!both.is_whole && Said::from_logits(&[0.0; 3], true).is_none());
        assert!(logit(0.0).is_finite() && logit(1.0).is_finite());
    }
}
