//! Words that were read before, with what their pieces add up to: a word has a dozen pieces, each in another place of a
//! large table, and most words of a text are those of the texts before it.
//!
//! Owned by the judge. Whoever reads a text takes a memory for that time, so that there are never more than texts read
//! at once. What a memory says of a word is what the weights say of it: it changes no score.

use std::sync::{Mutex, PoisonError};

use super::COLUMNS;
use super::features::{Counts, LONGEST_WORD};

/// Words that are kept; each has one place.
const PLACES: usize = 4096;

/// The memories that nobody uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<Vec<Memory>>);

impl Memories {
    /// One for the caller alone; give it [back](Self::keep).
    pub(super) fn take(&self) -> Memory {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_default()
    }

    /// Keeps a memory for the next text.
    pub(super) fn keep(&self, memory: Memory) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

/// What is kept from one text to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) words: KnownWords,
    /// Kept for its room alone.
    pub(super) counts: Counts,
}

/// Words that were read before; a quarter of a megabyte.
#[derive(Debug)]
pub(super) struct KnownWords {
    places: Vec<Known>,
}

/// A word that was read; an empty one where none was.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Known {
    word: Key,
    sums: WordSums,
}

/// What a word and its pieces add up to, and how many pieces there are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WordSums {
    /// The weights of the pieces and twice those of the word, by column.
    pub(super) halves: [i16; COLUMNS],
    /// The number of pieces.
    pub(super) pieces: u8,
}

/// The bytes of a word, all of them: nobody can make two words look alike.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Key {
    bytes: [u64; LONGEST_WORD / 8],
    length: u8,
}

impl Default for KnownWords {
    fn default() -> Self {
        Self { places: vec![Known::default(); PLACES] }
    }
}

impl KnownWords {
    /// What is known of a word, or what `read` says of it. Any `number` will do that is always the same for the word.
    #[inline]
    pub(super) fn get(&mut self, word: Key, number: usize, read: impl FnOnce() -> WordSums) -> WordSums {
        let place = &mut self.places[number % PLACES];
        if place.word != word {
            *place = Known { word, sums: read() };
        }
        place.sums
    }
}

impl Key {
    /// The key of a word at the start of `text`, cut where it is too long.
    #[inline]
    pub(super) fn new(text: &[u8], length: usize) -> Self {
        let length = length.min(LONGEST_WORD);
        let mut padded = [b' '; LONGEST_WORD];
        match text.first_chunk() {
            Some(whole) => padded = *whole,
            None => padded[..text.len()].copy_from_slice(text),
        }
        let (eights, _) = padded.as_chunks();
        let masks = &MASKS[length];
        let bytes = std::array::from_fn(|index| u64::from_le_bytes(eights[index]) & masks[index]);
        Self { bytes, length: length as u8 }
    }
}

/// What is kept of the bytes at the place of a word, by its length.
static MASKS: [[u64; LONGEST_WORD / 8]; LONGEST_WORD + 1] = masks();

const fn masks() -> [[u64; LONGEST_WORD / 8]; LONGEST_WORD + 1] {
    let mut masks = [[0; LONGEST_WORD / 8]; LONGEST_WORD + 1];
    let mut length = 1;
    while length <= LONGEST_WORD {
        masks[length] = masks[length - 1];
        masks[length][(length - 1) / 8] |= 0xff << ((length - 1) % 8 * 8);
        length += 1;
    }
    masks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_equal_where_words_are(
            left in "[ab]{0,24}", right in "[ab]{0,24}", behind in "[ab ]{0,30}", other in "[ab ]{0,30}",
        ) {
            let key = |word: &str, behind: &str| Key::new(format!("{word}{behind}").as_bytes(), word.len());
            prop_assert_eq!(key(&left, &behind) == key(&right, &other), left == right);
            prop_assert_eq!(key(&left, &behind), key(&left, &other));
        }

        /// All words share one place here, so that each takes it from the one before.
        #[test]
        fn a_memory_says_of_a_word_what_was_read_of_it(words in prop::collection::vec("[ab]{1,3}", 0..40)) {
            let mut memory = KnownWords::default();
            for word in words {
                let length = word.len() as u8;
                let sums = WordSums { halves: [word.bytes().map(i16::from).sum(); COLUMNS], pieces: length };
                let said = memory.get(Key::new(word.as_bytes(), word.len()), 7 + 3 * PLACES, || sums);
                prop_assert_eq!(said, sums);
            }
        }
    }
}
