//! What the linear judge sees of a text: hashed words, pairs of words and pieces of words.
//!
//! Words are those of level 0 over the normalised text, so that disguises are undone before anything
//! is hashed. The trainer and the forward pass both call [`read`]; there is no second reading. A text of
//! more than [`CHUNK_WORDS`] words is read in chunks, so that padding cannot thin out what it hides.

use std::borrow::Cow;

use crate::normalise::{boundary_before, normalise};
use crate::words::{self, Words};

/// The most words that are read together.
pub const CHUNK_WORDS: usize = 512;
/// Of a longer text this many bytes are read at either end, so that a hostile megabyte takes no longer; the
/// rules read all of it.
const END_BYTES: usize = 64 << 10;
/// Longer words are cut for hashing: no language needs more, and encoded data would fill the table.
const LONGEST_WORD: usize = 24;
/// The pieces of such a word, three at each of its places.
const MOST_PIECES: usize = 3 * LONGEST_WORD;
/// A piece of a word counts less than a word, because a word has many pieces.
const PIECE_VALUE: f32 = 0.5;
/// Words at the start whose pairs are also hashed apart: an answer shows early whether it refuses.
const OPENING_WORDS: usize = 12;

/// Words that differ of the shortest text of which the judge may be sure.
const ENOUGH_WORDS: usize = 4;
/// Added to the square of a text's length: a few words are thin evidence, so that they weigh less. A text that says
/// each word several times gets so many times as much: repeating a text adds nothing to what it says.
const THIN: f32 = 16.0;

const WORD_SEED: u64 = 0x9ae1_6a3b_2f90_404f;
const PAIR_SEED: u64 = 0xc3a5_c85c_97cb_3127;
const PIECE_SEED: u64 = 0xb492_b66f_be98_f273;
const OPENING_SEED: u64 = 0x9fb2_1c65_1e98_df25;
const STEP: u64 = 0x0000_0100_0000_01b3;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// One text, split and ready to be read chunk by chunk.
#[derive(Debug)]
pub struct Text {
    words: Words,
}

impl Text {
    /// Normalises a text and splits it into words; letters that were spaced out or written as digits
    /// are put back.
    pub fn new(text: &str) -> Self {
        let text = ends(text);
        let normalised = normalise(&text);
        let plain = words::split(&normalised.text, false);
        let respelt =
            if plain.odd { words::respelt(&normalised.text, &plain).into_iter().next() } else { None };
        Self { words: respelt.unwrap_or(plain) }
    }

    /// The text of words that were split before; its source was [read whole](Self::is_read_whole).
    pub(crate) fn of(words: Words) -> Self {
        Self { words }
    }

    /// Whether a text is so short that all of it is read.
    pub(crate) fn is_read_whole(text: &str) -> bool {
        text.len() <= 2 * END_BYTES
    }

    /// The number of chunks; 0 for a text without words.
    pub fn chunks(&self) -> usize {
        self.words.words.len().div_ceil(CHUNK_WORDS)
    }

    /// Whether it has hardly any words that differ: too few to be sure of anything.
    pub fn is_thin(&self) -> bool {
        let mut distinct: [&[u8]; ENOUGH_WORDS - 1] = [&[]; ENOUGH_WORDS - 1];
        let mut count = 0;
        for index in 0..self.words.words.len() {
            let word = self.word(index);
            if distinct[..count].contains(&word) {
                continue;
            }
            let Some(free) = distinct.get_mut(count) else { return false };
            *free = word;
            count += 1;
        }
        true
    }

    fn word(&self, index: usize) -> &[u8] {
        let marked = self.marked_word(index);
        &marked[1..marked.len().min(LONGEST_WORD + 2) - 1]
    }

    /// The whole word with the blanks at either side of it.
    fn marked_word(&self, index: usize) -> &[u8] {
        let view = &self.words;
        let start = view.words[index].at as usize - 1;
        let end = view.words.get(index + 1).map_or(view.text.len(), |next| next.at as usize);
        &view.text.as_bytes()[start..end]
    }
}

fn ends(text: &str) -> Cow<'_, str> {
    if Text::is_read_whole(text) {
        return Cow::Borrowed(text);
    }
    let head = &text[..boundary_before(text, END_BYTES)];
    let tail = &text[boundary_before(text, text.len() - END_BYTES)..];
    Cow::Owned(format!("{head}\n{tail}"))
}

/// A word or a pair of words, and how often it stands in the chunk.
struct Entry {
    hash: u64,
    count: u32,
    /// The word whose pieces belong to it; [`NONE`] for a pair.
    word: u32,
}

/// No word.
const NONE: u32 = u32::MAX;

/// Hands every feature of a chunk to `emit`, as a row of a table with 2 to the `bits` rows and a value.
/// Returns the length by which a sum over the rows is to be divided; 0 where nothing was read. Values grow with the
/// root of a count, so that a word that comes often among others gains little.
pub fn read(text: &Text, chunk: usize, bits: u32, mut emit: impl FnMut(usize, f32)) -> f32 {
    let first = chunk * CHUNK_WORDS;
    let last = (first + CHUNK_WORDS).min(text.words.words.len());
    if first >= last {
        return 0.0;
    }
    let shift = 64 - bits;
    let row = |hash: u64| ((hash ^ (hash >> 29)).wrapping_mul(MIX) >> shift) as usize;
    let mut squares = 0.0_f32;
    let mut counts = Counts::with_capacity(2 * (last - first));
    let mut before = PAIR_SEED;
    for index in first..last {
        let hash = hashed(WORD_SEED, text.word(index));
        counts.add(hash, index as u32);
        let pair = before.wrapping_mul(STEP).rotate_left(23) ^ hash;
        counts.add(pair ^ PAIR_SEED, NONE);
        if index < OPENING_WORDS {
            emit(row(pair ^ OPENING_SEED), 1.0);
            squares += 1.0;
        }
        before = hash;
    }
    let mut distinct = 0_u32;
    let mut pieces = Pieces::new();
    for Entry { hash, count, word } in counts.entries {
        let value = (count as f32).sqrt();
        emit(row(hash), value);
        squares += value * value;
        if word == NONE {
            continue;
        }
        distinct += 1;
        let value = value * PIECE_VALUE;
        let hashes = pieces.read(text.marked_word(word as usize));
        hashes.iter().for_each(|hash| emit(row(*hash), value));
        squares += value * value * hashes.len() as f32;
    }
    let repeats = (last - first) as f32 / distinct as f32;
    (squares + THIN * repeats).sqrt()
}

/// The pieces of one word.
struct Pieces {
    hashes: [u64; MOST_PIECES],
    count: usize,
    /// A bit for each run of three, so that hardly any has to be looked for. Longer runs that are equal begin with
    /// runs of three that are.
    maybe: u64,
}

impl Pieces {
    fn new() -> Self {
        Self { hashes: [0; MOST_PIECES], count: 0, maybe: 0 }
    }

    /// Every run of three to five bytes of a word with a mark at either end, each once: a letter that is held down
    /// makes the same few pieces again and again.
    fn read(&mut self, marked: &[u8]) -> &[u64] {
        let mut cut = [b' '; LONGEST_WORD + 2];
        let marked = if marked.len() > cut.len() {
            cut[..=LONGEST_WORD].copy_from_slice(&marked[..=LONGEST_WORD]);
            &cut
        } else {
            marked
        };
        (self.count, self.maybe) = (0, 0);
        let mut start = 0;
        while let Some(run) = marked[start..].first_chunk::<5>() {
            self.add(marked, start, run);
            start += 1;
        }
        if let Some(run) = marked.last_chunk::<4>() {
            self.add(marked, marked.len() - 4, run);
        }
        if let Some(run) = marked.last_chunk::<3>() {
            self.add(marked, marked.len() - 3, run);
        }
        &self.hashes[..self.count]
    }

    /// Adds the pieces that begin at a place, where the longest is `run`.
    #[inline]
    fn add<const N: usize>(&mut self, marked: &[u8], start: usize, run: &[u8; N]) {
        let mut hash = PIECE_SEED;
        let mut may_repeat = false;
        for (length, byte) in (1..).zip(run) {
            hash = step(hash, *byte);
            if length == 3 {
                let bit = 1 << (hash >> 40 & 63);
                may_repeat = self.maybe & bit != 0;
                self.maybe |= bit;
            }
            if length >= 3 && !(may_repeat && stands_before(marked, start, length)) {
                self.hashes[self.count] = hash ^ (length as u64 - 1) << 56;
                self.count += 1;
            }
        }
    }
}

/// Whether the run of bytes from `start` on also begins at an earlier place.
fn stands_before(bytes: &[u8], start: usize, length: usize) -> bool {
    let run = &bytes[start..start + length];
    (0..start).any(|earlier| &bytes[earlier..earlier + length] == run)
}

fn hashed(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| step(hash, *byte))
}

fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(STEP)
}

/// Counts hashes in the order in which they first come, so that sums have one order everywhere.
struct Counts {
    entries: Vec<Entry>,
    /// Places in `entries` plus one, 0 where free; open addressing, never more than a quarter full. A chunk has fewer
    /// than 65,536 entries.
    slots: Vec<u16>,
}

impl Counts {
    fn with_capacity(entries: usize) -> Self {
        let slots = (4 * entries).next_power_of_two();
        Self { entries: Vec::with_capacity(entries), slots: vec![0; slots] }
    }

    fn add(&mut self, hash: u64, word: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = (hash.wrapping_mul(MIX) >> 32) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => {
                    self.entries.push(Entry { hash, count: 1, word });
                    self.slots[slot] = self.entries.len() as u16;
                    return;
                }
                taken => {
                    let entry = &mut self.entries[taken as usize - 1];
                    if entry.hash == hash {
                        entry.count += 1;
                        return;
                    }
                }
            }
            slot = (slot + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_all_runs_of_three_to_five_bytes_each_once(word in "([ab]{1,30}|[a-z]{1,30})") {
            let marked = format!(" {} ", &word[..word.len().min(LONGEST_WORD)]);
            let mut expected: Vec<u64> = Vec::new();
            for start in 0..marked.len() {
                for length in 3..=5 {
                    let Some(run) = marked.as_bytes().get(start..start + length) else { continue };
                    let piece = hashed(PIECE_SEED, run) ^ (length as u64 - 1) << 56;
                    if !expected.contains(&piece) {
                        expected.push(piece);
                    }
                }
            }
            let mut pieces = Pieces::new();
            prop_assert_eq!(pieces.read(format!(" {word} ").as_bytes()), expected);
        }
    }
}
