//! Where terms begin: at few words of a text a walk over the trie of all terms is worth its time. Half of all words
//! begin some term of several words, but most of those terms go on with another word than the text; most terms that a
//! text has are single words, which are found without a walk.
//!
//! Built by `matching.rs` at start and asked for every view. Words that may begin a term are picked first, in steps that
//! are the same for every word: where a text's words part from the terms can hardly be foretold.

use std::collections::HashSet;

use crate::trie::{NONE, Trie};
use crate::words::Words;

/// Bytes of a first word that it is looked up by.
const KEY: usize = 8;
/// Bytes behind the first word of a term that are looked at before a walk.
const SECOND: usize = 3;
/// Bytes of a term without a blank, the beginning of a word, that it is looked for by.
const STEM: usize = 4;
/// Words that are looked at before those that were picked are walked from.
const BLOCK: usize = 64;
/// Tells longer words from those of [`KEY`] bytes.
const LONGER: u64 = 0xc3a5_c85c_97cb_3127;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The terms, and what they begin with.
#[derive(Debug)]
pub(crate) struct Starts {
    trie: Trie,
    /// First words of at most [`KEY`] bytes; open addressing, at most half full.
    words: Vec<Start>,
    /// Those with which a term may end before [`SECOND`] further bytes, and the beginnings of [`LONGER`] ones.
    alone: Bits<512>,
    /// First words together with the bytes behind them, zeros where a term has fewer.
    seconds: Bits<1024>,
    /// Terms that are the beginning of a word.
    stems: Bits<512>,
    /// Whether one of those is so short that any word may begin with it.
    any_word: bool,
}

/// A first word.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// The word; 0 where the place is free.
    key: u64,
    /// The node behind it and its blank.
    node: u32,
    /// The term that it is, or [`NONE`].
    term: u32,
}

/// What is looked at of a word.
struct Look {
    /// Its first bytes.
    eight: u64,
    length: usize,
    /// The bytes behind its blank.
    second: u64,
}

impl Look {
    /// `None` at the end of a view.
    #[inline]
    fn new(view: &[u8], at: usize, next: usize) -> Option<Self> {
        let eight = u64::from_le_bytes(*view.get(at..)?.first_chunk()?);
        let second = u64::from(u32::from_le_bytes(*view.get(next..)?.first_chunk()?));
        Some(Self { eight, length: next - 1 - at, second })
    }

    /// The word, or its beginning where it is longer.
    #[inline]
    fn key(&self) -> u64 {
        self.eight & mask(self.length)
    }
}

impl Starts {
    /// Of terms without the blank before them, sorted and all different.
    pub(crate) fn new(terms: &[&[u8]]) -> Self {
        let first_word = |term: &[u8]| term.iter().position(|byte| *byte == b' ').map(|blank| blank + 1);
        let firsts: HashSet<&[u8]> =
            terms.iter().filter_map(|term| Some(&term[..first_word(term)?])).collect();
        let mut starts = Self {
            trie: Trie::new(terms),
            words: vec![Start { key: 0, node: NONE, term: NONE }; (2 * firsts.len() + 1).next_power_of_two()],
            alone: Bits::new(),
            seconds: Bits::new(),
            stems: Bits::new(),
            any_word: false,
        };
        for term in terms {
            match first_word(term) {
                Some(behind) => starts.add_word(&term[..behind], &term[behind..]),
                None => starts.add_stem(term),
            }
        }
        starts
    }

    /// Adds a first word, which has its blank behind it, and what follows.
    fn add_word(&mut self, word: &[u8], second: &[u8]) {
        let length = word.len() - 1;
        let key = first_eight(word) & mask(length);
        if length > KEY {
            self.alone.add(key ^ LONGER);
            return;
        }
        let place = self.place(key);
        let node = self.trie.behind_word(word).unwrap_or(NONE);
        self.words[place] = Start { key, node, term: self.trie.end(node) };
        if second.len() < SECOND {
            self.alone.add(key);
        }
        if !second.is_empty() {
            let looked_at = if second.len() < SECOND { 0 } else { first_eight(second) };
            self.seconds.add(with_second(key, looked_at));
        }
    }

    fn add_stem(&mut self, stem: &[u8]) {
        match stem.len() {
            STEM.. => self.stems.add(first_eight(stem) & mask(STEM)),
            // With every byte that may stand behind it, so that one look is enough for all.
            3 => (0..256).for_each(|last| self.stems.add(first_eight(stem) | last << 24)),
            _ => self.any_word = true,
        }
    }

    /// Calls `found` with every term of a view and the index of its first word: word by word, the shortest first.
    pub(crate) fn find(&self, view: &Words, mut found: impl FnMut(u32, u32)) {
        let Words { text, words, .. } = view;
        let next = |index: usize| words.get(index + 1).map_or(text.len(), |next| next.at as usize);
        for start in (0..words.len()).step_by(BLOCK) {
            let mut picked = [0; BLOCK];
            let mut count = 0;
            let inside = &words[start..words.len().min(start + BLOCK + 1)];
            for (index, pair) in (start..).zip(inside.windows(2)) {
                let look = Look::new(text, pair[0].at as usize, pair[1].at as usize);
                picked[count] = index;
                count += usize::from(look.is_none_or(|look| self.may_begin(&look)));
            }
            let last = if inside.len() > BLOCK { None } else { Some(start + inside.len() - 1) };
            for index in picked[..count].iter().copied().chain(last) {
                self.walk(text, words[index].at as usize, next(index), |term| found(term, index as u32));
            }
        }
    }

    /// Whether a term may begin with a word.
    #[inline]
    fn may_begin(&self, look: &Look) -> bool {
        let key = look.key();
        let longer = if look.length > KEY { LONGER } else { 0 };
        self.is_stem(look) | self.alone.has(key ^ longer) | self.seconds.has(with_second(key, look.second))
    }

    #[inline]
    fn is_stem(&self, look: &Look) -> bool {
        self.any_word | self.stems.has(look.eight & mask(STEM))
    }

    /// Calls `found` with every term that a view has from a word on. The word stands at `at`, and behind its blank the
    /// view goes on at `next`.
    fn walk(&self, view: &[u8], at: usize, next: usize, mut found: impl FnMut(u32)) {
        let look = match Look::new(view, at, next) {
            Some(look) if look.length <= KEY && !self.is_stem(&look) => look,
            _ => return self.trie.walk(&view[at..], found),
        };
        let key = look.key();
        let Start { node, term, .. } = self.words[self.place(key)];
        if term != NONE {
            found(term);
        }
        if self.seconds.has(with_second(key, look.second)) || self.seconds.has(with_second(key, 0)) {
            self.trie.walk_behind(node, &view[next..], found);
        }
    }

    /// The place of a key: its own, or the free one where it would stand.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let last = self.words.len() - 1;
        let mut place = (key.wrapping_mul(MIX) >> 40) as usize & last;
        while self.words[place].key != key && self.words[place].key != 0 {
            place = (place + 1) & last;
        }
        place
    }
}

/// Numbers that may be there: one that was added always is, and hardly any other as long as there are many more bits
/// than numbers. The size is a power of two.
#[derive(Debug)]
struct Bits<const WORDS: usize>(Box<[u64; WORDS]>);

impl<const WORDS: usize> Bits<WORDS> {
    fn new() -> Self {
        Self(Box::new([0; WORDS]))
    }

    fn add(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.0[word] |= 1 << bit;
    }

    #[inline]
    fn has(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.0[word] >> bit & 1 != 0
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        let mixed = number.wrapping_mul(MIX);
        ((mixed >> (64 - WORDS.ilog2())) as usize % WORDS, mixed >> 32 & 63)
    }
}

/// A number for a first word and [`SECOND`] bytes behind it.
#[inline]
fn with_second(key: u64, second: u64) -> u64 {
    key ^ second << (64 - 8 * SECOND)
}

/// The first eight bytes, with zeros behind a shorter word.
fn first_eight(word: &[u8]) -> u64 {
    word.iter().take(KEY).rev().fold(0, |eight, byte| eight << 8 | u64::from(*byte))
}

/// The bits of as many bytes, at most [`KEY`].
#[inline]
fn mask(bytes: usize) -> u64 {
    const MASKS: [u64; KEY + 1] = [
        0,
        0xff,
        0xffff,
        0xff_ffff,
        u32::MAX as u64,
        u64::MAX >> 24,
        u64::MAX >> 16,
        u64::MAX >> 8,
        u64::MAX,
    ];
    MASKS[bytes.min(KEY)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::words::split;

    /// Words that are often the beginning of each other, on either side of [`KEY`] bytes.
    fn word() -> impl Strategy<Value = String> {
        let long =
            (0..14_usize, "[ab]{0,1}").prop_map(|(length, end)| format!("{}{end}", "a".repeat(length)));
        prop_oneof!["[ab]{1,3}", "[aé]{1,4}", long.prop_filter("a word", |word| !word.is_empty())]
    }

    fn words(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(word(), count).prop_map(|words| format!("{} ", words.join(" ")).into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_term_is_found_where_it_begins(
            whole in prop::collection::btree_set(words(1..4), 0..20),
            parts in prop::collection::btree_set(words(1..3), 0..6),
            view in words(1..90),
        ) {
            let mut terms = whole;
            terms.extend(parts.into_iter().map(|part| part[..part.len() - 1].to_vec()));
            let terms: Vec<&[u8]> = terms.iter().map(Vec::as_slice).collect();
            let view = split(&String::from_utf8(view).unwrap(), false);
            let mut found = Vec::new();
            Starts::new(&terms).find(&view, |term, index| found.push((index, terms[term as usize])));
            let mut expected: Vec<(u32, &[u8])> = Vec::new();
            for (index, word) in (0..).zip(&view.words) {
                let begins = |term: &&[u8]| view.text[word.at as usize..].starts_with(term);
                expected.extend(terms.iter().copied().filter(begins).map(|term| (index, term)));
            }
            expected.sort_by_key(|(index, term)| (*index, term.len()));
            prop_assert_eq!(found, expected);
        }
    }
}
