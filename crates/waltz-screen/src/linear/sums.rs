//! The sums over the rows of a table of weights. Almost every feature stands once in a text, so that its value is 1, or
//! a half where it is a piece of a word: those are added up as whole numbers of halves, exactly and in any order. The
//! few others are added to them at the end, in the order in which they were read.

use std::hint::black_box;

use super::COLUMNS;
use super::features::{PIECE_VALUE, Reader, Text, row, value_of};
use super::known::{KnownWords, WordRead};
use super::pieces::Pieces;

/// Rows that are summed together: so many weights of a byte fit sixteen bits, whatever they are.
const BATCH: usize = 256;

/// Sums what a text has of a table.
pub(super) struct Sums<'a> {
    rows: &'a [[u8; COLUMNS]],
    bits: u32,
    known: &'a mut KnownWords,
    pieces: Pieces,
    /// Rows of features that stand once. They wait until there are many: most lie in memory that is far away, and a
    /// short loop fetches several at a time.
    waiting: [u32; BATCH],
    count: usize,
    halves: [i32; COLUMNS],
    /// The sums of all that stands there more than once.
    others: [f32; COLUMNS],
}

impl<'a> Sums<'a> {
    /// Of nothing so far.
    pub(super) fn new(table: &'a [u8], bits: u32, known: &'a mut KnownWords) -> Self {
        let (rows, _) = table.as_chunks();
        let (halves, others) = ([0; COLUMNS], [0.0; COLUMNS]);
        Self { rows, bits, known, pieces: Pieces::new(), waiting: [0; BATCH], count: 0, halves, others }
    }

    /// The sums by column.
    pub(super) fn total(mut self) -> [f32; COLUMNS] {
        self.close_batch();
        std::array::from_fn(|column| self.halves[column] as f32 * PIECE_VALUE + self.others[column])
    }

    #[inline]
    fn known(&mut self, text: &Text, index: usize) -> &WordRead {
        let Self { rows, bits, known, pieces, .. } = self;
        known.get(text.key(index), || read_word(rows, *bits, pieces, text, index))
    }

    #[inline(never)]
    fn close_batch(&mut self) {
        let Self { rows, waiting, count, .. } = self;
        let numbers = waiting[..*count].iter().map(|number| *number as usize);
        // Nothing depends on these bytes, so that the processor fetches many rows at once.
        black_box(numbers.clone().filter_map(|number| rows.get(number)).fold(0, |any, row| any | row[0]));
        let sums = summed(rows, numbers);
        self.halves.iter_mut().zip(sums).for_each(|(half, sum)| *half += 2 * i32::from(sum));
        self.count = 0;
    }
}

impl Reader for Sums<'_> {
    #[inline]
    fn pair(&mut self, row: usize, count: u32) {
        if count > 1 {
            let value = value_of(count);
            let weights = self.rows.get(row).copied().unwrap_or_default();
            for (sum, weight) in self.others.iter_mut().zip(weights) {
                *sum += f32::from(weight.cast_signed()) * value;
            }
            return;
        }
        if self.count == BATCH {
            self.close_batch();
        }
        self.waiting[self.count] = row as u32;
        self.count += 1;
    }

    #[inline]
    fn hash(&mut self, text: &Text, index: usize) -> u64 {
        self.known(text, index).hash
    }

    #[inline]
    fn word(&mut self, text: &Text, index: usize, _row: usize, count: u32) -> usize {
        let WordRead { halves, pieces, .. } = *self.known(text, index);
        if count == 1 {
            self.halves.iter_mut().zip(halves).for_each(|(sum, half)| *sum += i32::from(half));
        } else {
            let value = value_of(count) * PIECE_VALUE;
            self.others.iter_mut().zip(halves).for_each(|(sum, half)| *sum += f32::from(half) * value);
        }
        usize::from(pieces)
    }
}

/// Reads a word that is not known.
#[inline(never)]
fn read_word(rows: &[[u8; COLUMNS]], bits: u32, pieces: &mut Pieces, text: &Text, index: usize) -> WordRead {
    let hash = text.hash(index);
    let hashes = pieces.read(text.marked_word(index));
    let mut halves = summed(rows, hashes.iter().map(|hash| row(*hash, bits)));
    // A word counts as much as two of its pieces.
    let own = summed(rows, std::iter::once(row(hash, bits)));
    halves.iter_mut().zip(own).for_each(|(half, own)| *half += 2 * own);
    WordRead { hash, halves, pieces: hashes.len() as u8 }
}

/// The sums of at most [`BATCH`] rows.
#[inline]
fn summed(rows: &[[u8; COLUMNS]], numbers: impl Iterator<Item = usize>) -> [i16; COLUMNS] {
    let mut sums = [0_i16; COLUMNS];
    for number in numbers {
        let Some(row) = rows.get(number) else { continue };
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum = sum.wrapping_add(i16::from(weight.cast_signed()));
        }
    }
    sums
}
