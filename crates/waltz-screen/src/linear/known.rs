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

/// A word that was read; an empty one where none was. One line of the processor's caches.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Known {
    word: Key,
    read: WordRead,
}

/// What was read of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WordRead {
    /// Its hash.
    pub(super) hash: u64,
    /// The weights of the pieces and twice those of the word, by column.
    pub(super) halves: [i16; COLUMNS],
    /// The number of pieces.
    pub(super) pieces: u8,
}

/// The bytes of a word, all of them: nobody can make two words look alike. Zeros follow a short one, and no word has a
/// zero among its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Key([u64; LONGEST_WORD / 8]);

impl Default for KnownWords {
    fn default() -> Self {
        Self { places: vec![Known::default(); PLACES] }
    }
}

impl KnownWords {
    /// What is known of a word, or what `read` says of it.
    #[inline]
    pub(super) fn get(&mut self, word: Key, read: impl FnOnce() -> WordRead) -> &WordRead {
        let place = &mut self.places[word.place()];
        if place.word != word {
            *place = Known { word, read: read() };
        }
        &place.read
    }
}

impl Key {
    /// The key of a word at the start of `text`, cut where it is too long.
    #[inline]
    pub(super) fn new(text: &[u8], length: usize) -> Self {
        match text.first_chunk() {
            Some(place) => Self::masked(place, length),
            None => Self::at_the_end(text, length),
        }
    }

    #[inline]
    fn masked(place: &[u8; LONGEST_WORD], length: usize) -> Self {
        let (eights, _) = place.as_chunks();
        let masks = &MASKS[length.min(LONGEST_WORD)];
        Self(std::array::from_fn(|index| u64::from_le_bytes(eights[index]) & masks[index]))
    }

    /// Apart, because copying so few bytes takes longer than all the rest.
    #[cold]
    #[inline(never)]
    fn at_the_end(text: &[u8], length: usize) -> Self {
        let mut place = [0; LONGEST_WORD];
        place[..text.len()].copy_from_slice(text);
        Self::masked(&place, length)
    }

    #[inline]
    fn place(self) -> usize {
        let Self([first, second, third]) = self;
        let mixed = first ^ second.rotate_left(21) ^ third.rotate_left(42);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
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

    #[test]
    fn a_word_takes_one_line() {
        assert_eq!(size_of::<Known>(), 64);
    }

    proptest! {
        #[test]
        fn keys_are_equal_where_words_are(
            left in "[ab]{0,24}", right in "[ab]{0,24}", behind in "[ab ]{0,30}", other in "[ab ]{0,30}",
        ) {
            let key = |word: &str, behind: &str| Key::new(format!("{word}{behind}").as_bytes(), word.len());
            prop_assert_eq!(key(&left, &behind) == key(&right, &other), left == right);
            prop_assert_eq!(key(&left, &behind), key(&left, &other));
        }

        /// More words than places, so that each takes one from another.
        #[test]
        fn what_is_known_of_a_word_is_what_was_read_of_it(words in prop::collection::vec("[a-z]{1,3}", 1..40)) {
            let mut known = KnownWords::default();
            let rest = (0..2 * PLACES).map(|number| format!("w{number}"));
            for word in words.iter().cloned().chain(rest).chain(words.clone()) {
                let sum = word.bytes().fold(0_u64, |sum, byte| sum * 31 + u64::from(byte));
                let read = WordRead { hash: sum, halves: [sum as i16; COLUMNS], pieces: word.len() as u8 };
                let key = Key::new(word.as_bytes(), word.len());
                prop_assert_eq!(*known.get(key, || read), read);
                prop_assert_eq!(*known.get(key, WordRead::default), read);
            }
        }
    }
}
