//! What a generated text must look like: a constraint says before each token which tokens may come.
//! The sampler asks it; `constrain.rs` implements it for JSON objects.

/// Decides which tokens may come next in one sequence.
pub trait Constraint: Send {
    /// Leaves in `mask` only tokens that may come next, given that at most `tokens_left` tokens
    /// (this one included) may still be written. `mask` comes in full.
    fn mask(&mut self, tokens_left: usize, mask: &mut TokenMask);
    /// Takes note of the token that was chosen.
    fn accept(&mut self, token: u32);
    /// Whether the text is complete, so that generation ends.
    fn is_complete(&self) -> bool;
}

/// A set of tokens: one bit per token of the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u64>,
    tokens: usize,
}

impl TokenMask {
    /// The empty set over a vocabulary of `tokens` tokens.
    pub fn new(tokens: usize) -> Self {
        Self { words: vec![0; tokens.div_ceil(64)], tokens }
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.tokens
    }

    /// Puts every token into the set.
    pub fn fill(&mut self) {
        self.words.fill(u64::MAX);
        let rest = self.tokens % 64;
        if rest != 0
            && let Some(last) = self.words.last_mut()
        {
            *last = (1 << rest) - 1;
        }
    }

    /// Takes every token out of the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts one token into the set; a token outside the vocabulary is ignored.
    pub fn allow(&mut self, token: u32) {
        if let Some((word, bit)) = self.place(token) {
            self.words[word] |= bit;
        }
    }

    /// Takes one token out of the set.
    pub fn forbid(&mut self, token: u32) {
        if let Some((word, bit)) = self.place(token) {
            self.words[word] &= !bit;
        }
    }

    /// Whether the token is in the set.
    pub fn allows(&self, token: u32) -> bool {
        self.place(token).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    /// How many tokens are in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps only tokens that are in `other` too.
    pub fn intersect(&mut self, other: &Self) {
        for (place, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(place).copied().unwrap_or(0);
        }
    }

    /// The set as words of 64 tokens, lowest bit first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    fn place(&self, token: u32) -> Option<(usize, u64)> {
        let token = token as usize;
        (token < self.tokens).then_some((token / 64, 1 << (token % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mask_holds_the_vocabulary_and_nothing_more() {
        for tokens in [1, 63, 64, 65, 130] {
            let mut mask = TokenMask::new(tokens);
            assert_eq!(mask.count(), 0);
            mask.fill();
            assert_eq!(mask.count(), tokens);
            assert!(mask.allows(tokens as u32 - 1));
            assert!(!mask.allows(tokens as u32));
            mask.allow(tokens as u32);
            assert_eq!(mask.count(), tokens);
            mask.forbid(0);
            assert!(!mask.allows(0));
            let mut other = TokenMask::new(tokens);
            other.allow(0);
            mask.intersect(&other);
            assert_eq!(mask.count(), 0);
            // Tokens beyond a smaller vocabulary are in no set of it.
            mask.fill();
            mask.intersect(&TokenMask::new(1));
            assert_eq!(mask.count(), 0);
        }
    }
}
