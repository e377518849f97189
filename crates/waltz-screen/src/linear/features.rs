//! What the linear judge sees of a text: hashed words, pairs of words and pieces of words.
//!
//! Words are those of level 0 over the normalised text, so that disguises are undone before anything
//! is hashed. The trainer and the forward pass both call [`read`]; there is no second reading. A text of
//! more than [`CHUNK_WORDS`] words is read in chunks, so that padding cannot thin out what it hides.

use std::borrow::Cow;

use super::known::Key;
use super::pieces::Pieces;
use crate::normalise::{boundary_before, normalise};
use crate::words::{self, Words};

/// The most words that are read together.
pub const CHUNK_WORDS: usize = 512;
/// Of a longer text this many bytes are read at either end, so that a hostile megabyte takes no longer; the
/// rules read all of it.
const END_BYTES: usize = 64 << 10;
/// Longer words are cut for hashing: no language needs more, and encoded data would fill the table.
pub(super) const LONGEST_WORD: usize = 24;
/// A piece of a word counts less than a word, because a word has many pieces.
pub(super) const PIECE_VALUE: f32 = 0.5;
/// Words at the start whose pairs are also hashed apart: an answer shows early whether it refuses.
const OPENING_WORDS: usize = 12;

/// Words that differ and could have been learned, of the shortest text of which the judge may be sure.
const ENOUGH_WORDS: usize = 4;
/// Added to the square of a text's length: a few words are thin evidence, so that they weigh less. A text that says
/// each word several times gets so many times as much: repeating a text adds nothing to what it says.
const THIN: f32 = 16.0;

const WORD_SEED: u64 = 0x9ae1_6a3b_2f90_404f;
const PAIR_SEED: u64 = 0xc3a5_c85c_97cb_3127;
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
        let plain = words::plain(&normalised);
        let respelt = if plain.odd { words::respelt(&normalised, &plain).into_iter().next() } else { None };
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

    /// Whether it has hardly any words that differ and could have been learned: too few to be sure of anything. What is
    /// hashed always meets some weight, so that a word of letters that training hardly had says as much as chance does.
    pub fn is_thin(&self) -> bool {
        let mut distinct: [&[u8]; ENOUGH_WORDS - 1] = [&[]; ENOUGH_WORDS - 1];
        let mut count = 0;
        for index in 0..self.words.words.len() {
            let word = self.word(index);
            if !is_learnable(word) || distinct[..count].contains(&word) {
                continue;
            }
            let Some(free) = distinct.get_mut(count) else { return false };
            *free = word;
            count += 1;
        }
        true
    }

    /// The hash of a word.
    pub(super) fn hash(&self, index: usize) -> u64 {
        hashed(WORD_SEED, self.word(index))
    }

    /// A word, cut where it is too long.
    fn word(&self, index: usize) -> &[u8] {
        let marked = self.marked_word(index);
        &marked[1..marked.len().min(LONGEST_WORD + 2) - 1]
    }

    /// What a word is known by.
    #[inline]
    pub(super) fn key(&self, index: usize) -> Key {
        let view = &self.words;
        let start = view.words[index].at as usize;
        let end = view.words.get(index + 1).map_or(view.text.len(), |next| next.at as usize);
        Key::new(&view.text[start..], end - 1 - start)
    }

    /// The whole word with the blanks at either side of it.
    pub(super) fn marked_word(&self, index: usize) -> &[u8] {
        let view = &self.words;
        let start = view.words[index].at as usize - 1;
        let end = view.words.get(index + 1).map_or(view.text.len(), |next| next.at as usize);
        &view.text[start..end]
    }
}

/// Whether a word is of the kind that the judge learned from: Latin letters, and more than one.
fn is_learnable(word: &[u8]) -> bool {
    word.len() > 1 && word.iter().all(u8::is_ascii_alphabetic)
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
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    count: u32,
    /// The word whose pieces belong to it; [`NONE`] for a pair.
    word: u32,
}

/// No word.
const NONE: u32 = u32::MAX;

/// What takes the features of a chunk as they are read. The value of a feature grows with the root of its count, so
/// that a word that comes often among others gains little.
pub(super) trait Reader {
    /// The hash of a word.
    fn hash(&mut self, text: &Text, index: usize) -> u64;
    /// A pair of words, or an opening.
    fn pair(&mut self, row: usize, count: u32);
    /// A word and its pieces, which count [`PIECE_VALUE`] each; `index` is a place where it stands. Returns the number
    /// of pieces.
    fn word(&mut self, text: &Text, index: usize, row: usize, count: u32) -> usize;
}

/// The row of a table with 2 to the `bits` rows.
pub(super) fn row(hash: u64, bits: u32) -> usize {
    ((hash ^ (hash >> 29)).wrapping_mul(MIX) >> (64 - bits)) as usize
}

/// The value of a feature that stands so often in a chunk; almost every one stands there once.
pub(super) fn value_of(count: u32) -> f32 {
    if count == 1 { 1.0 } else { (count as f32).sqrt() }
}

/// Hands every feature of a chunk to `emit`, as a row of a table with 2 to the `bits` rows and a value.
/// Returns the length by which a sum over the rows is to be divided; 0 where nothing was read.
pub fn read(text: &Text, chunk: usize, bits: u32, emit: impl FnMut(usize, f32)) -> f32 {
    read_with(text, chunk, bits, &mut Counts::default(), &mut OneByOne { emit, bits, pieces: Pieces::new() })
}

/// Hands on every feature by itself.
struct OneByOne<E> {
    emit: E,
    bits: u32,
    pieces: Pieces,
}

impl<E: FnMut(usize, f32)> Reader for OneByOne<E> {
    fn hash(&mut self, text: &Text, index: usize) -> u64 {
        text.hash(index)
    }

    fn pair(&mut self, row: usize, count: u32) {
        (self.emit)(row, value_of(count));
    }

    fn word(&mut self, text: &Text, index: usize, word_row: usize, count: u32) -> usize {
        let value = value_of(count);
        (self.emit)(word_row, value);
        let hashes = self.pieces.read(text.marked_word(index));
        hashes.iter().for_each(|hash| (self.emit)(row(*hash, self.bits), value * PIECE_VALUE));
        hashes.len()
    }
}

/// The same for any reader. `counts` may be used again for other chunks.
pub(super) fn read_with(
    text: &Text,
    chunk: usize,
    bits: u32,
    counts: &mut Counts,
    reader: &mut impl Reader,
) -> f32 {
    let first = chunk * CHUNK_WORDS;
    let last = (first + CHUNK_WORDS).min(text.words.words.len());
    if first >= last {
        return 0.0;
    }
    let mut squares = 0.0_f32;
    counts.clear(2 * (last - first) + 1);
    let mut before = PAIR_SEED;
    for index in first..last {
        let hash = reader.hash(text, index);
        counts.add(hash, index as u32);
        let pair = before.wrapping_mul(STEP).rotate_left(23) ^ hash;
        counts.add(pair ^ PAIR_SEED, NONE);
        if index < OPENING_WORDS {
            reader.pair(row(pair ^ OPENING_SEED, bits), 1);
            squares += 1.0;
        }
        before = hash;
    }
    let mut distinct = 0_u32;
    for Entry { hash, count, word } in counts.entries[..counts.count].iter().copied() {
        let value = value_of(count);
        squares += value * value;
        if word == NONE {
            reader.pair(row(hash, bits), count);
            continue;
        }
        distinct += 1;
        let pieces = reader.word(text, word as usize, row(hash, bits), count);
        let value = value * PIECE_VALUE;
        squares += value * value * pieces as f32;
    }
    let repeats = (last - first) as f32 / distinct as f32;
    (squares + THIN * repeats).sqrt()
}

pub(super) fn hashed(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| step(hash, *byte))
}

pub(super) fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(STEP)
}

/// Counts hashes in the order in which they first come, so that sums have one order everywhere.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The entries so far, and room for more.
    entries: Vec<Entry>,
    count: usize,
    /// Places in `entries` plus one, 0 where free; open addressing, never more than a quarter full. A chunk has fewer
    /// than 65,536 entries.
    slots: Vec<u16>,
}

impl Counts {
    /// Forgets all, and makes room for so many.
    fn clear(&mut self, entries: usize) {
        if self.entries.len() < entries {
            self.entries.resize(entries, Entry { hash: 0, count: 0, word: NONE });
        }
        self.count = 0;
        self.slots.clear();
        self.slots.resize((4 * entries).next_power_of_two(), 0);
    }

    /// Counts a hash. Whether it came before can hardly be foretold, so that a new entry is written in any case and kept
    /// where it is needed.
    #[inline]
    fn add(&mut self, hash: u64, word: u32) {
        let Self { entries, count, slots } = self;
        let mask = slots.len() - 1;
        entries[*count] = Entry { hash, count: 0, word };
        let mut slot = (hash.wrapping_mul(MIX) >> 32) as usize & mask;
        loop {
            let taken = usize::from(slots[slot]);
            let place = if taken == 0 { *count } else { taken - 1 };
            let entry = &mut entries[place];
            if entry.hash == hash {
                entry.count += 1;
                slots[slot] = place as u16 + 1;
                *count += usize::from(taken == 0);
                return;
            }
            slot = (slot + 1) & mask;
        }
    }
}
