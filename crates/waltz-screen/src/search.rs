//! Finds the first of several words in a text, wherever it stands. Called by `secret.rs` and `encoded.rs`.

use aho_corasick::packed::{self, Searcher};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use waltz_exchange::Span;

/// Looks at many bytes at a time where the processor can; the automaton is for those where it cannot.
pub(crate) enum Search {
    Packed(Searcher),
    Automaton(AhoCorasick),
}

impl Search {
    /// For these words; where two stand at one place, the first of the list is found.
    pub(crate) fn new(words: &[&str]) -> Option<Self> {
        let kind = packed::MatchKind::LeftmostFirst;
        let packed = packed::Config::new().match_kind(kind).builder().extend(words).build();
        let slow = || AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words).ok();
        packed.map(Self::Packed).or_else(|| slow().map(Self::Automaton))
    }

    /// The number and the place of the first word from a place on.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(usize, Span)> {
        let found = match self {
            Self::Packed(searcher) => searcher.find_in(text, (from..text.len()).into()),
            Self::Automaton(automaton) => automaton.find(Input::new(text).range(from..)),
        }?;
        Some((found.pattern().as_usize(), Span { start: found.start(), end: found.end() }))
    }
}
