//! Attention within each sequence of a packed batch, and its way back.
//!
//! A piece of work is one sequence and one head of keys, with all heads that ask it. It goes through the sequence in
//! blocks of tokens, whose scores are the only ones that exist. The way back computes them again.

use std::ops::Range;

use super::Cpu;
use super::product::{Factors, Packed, fill};
use crate::kernels::{Number, Tile, rotate, rotations, softmax, softmax_back};
use crate::train::device::{AttentionShape, Form, Grid, Sight, Starts};

/// Tokens whose scores exist at once.
const BLOCK: usize = 64;

/// What a token sees, and the cosines and sines of every position there and back: none where it sees all.
struct Turns<T> {
    sight: Sight,
    there: Vec<T>,
    back: Vec<T>,
}

/// One sequence and one head of keys.
struct Piece<'a, T> {
    cpu: &'a Cpu<T>,
    shape: AttentionShape,
    turns: &'a Turns<T>,
    /// Queries, keys and values of the whole batch.
    rows: &'a [T],
    /// The rows of this sequence.
    range: Range<usize>,
    kv_head: usize,
}

/// Room for one piece, kept for the next one. A row of the first four is one token of a block and one head of the group.
#[derive(Debug, Default)]
pub(super) struct Scratch<T> {
    /// Turned queries (tokens x group, head).
    queries: Vec<T>,
    /// What each looks at (tokens x group, positions up to the last token).
    chances: Vec<T>,
    /// What it finds there, or the gradient of that (tokens x group, head).
    mixed: Vec<T>,
    /// Gradients of the chances, then of the scores.
    slopes: Vec<T>,
    /// Turned keys of the whole sequence (tokens, head).
    keys: Vec<T>,
    /// Their gradient.
    to_keys: Vec<T>,
    /// The values' gradient.
    to_values: Vec<T>,
    /// For products.
    pub(super) packed: Packed<T>,
}

pub(super) fn attend<T: Number>(
    cpu: &Cpu<T>,
    shape: AttentionShape,
    sight: Sight,
    starts: &Starts,
    rows: &[T],
    output: &mut [T],
) {
    let AttentionShape { heads, kv_heads, head } = shape;
    let turns = Turns::new(shape, sight, starts);
    let mut pieces = pieces(cpu, shape, &turns, starts, rows);
    let mut outputs: Vec<Vec<&mut [T]>> =
        pieces.iter().map(|piece| Vec::with_capacity(piece.range.len())).collect();
    let mut lines = output.chunks_exact_mut(heads * head);
    for (pieces, outputs) in pieces.chunks_exact_mut(kv_heads).zip(outputs.chunks_exact_mut(kv_heads)) {
        for line in lines.by_ref().take(pieces[0].range.len()) {
            for (output, part) in outputs.iter_mut().zip(line.chunks_exact_mut(heads / kv_heads * head)) {
                output.push(part);
            }
        }
    }
    cpu.threads.each(pieces.iter().zip(outputs), |(piece, mut output)| {
        cpu.with_room(|room| piece.attend(room, &mut output));
    });
}

pub(super) fn attend_back<T: Number>(
    cpu: &Cpu<T>,
    shape: AttentionShape,
    sight: Sight,
    starts: &Starts,
    rows: &[T],
    gradient: &[T],
    to_rows: &mut [T],
) {
    let AttentionShape { heads, kv_heads, head } = shape;
    let turns = Turns::new(shape, sight, starts);
    let pieces = pieces(cpu, shape, &turns, starts, rows);
    let mut outputs: Vec<Vec<[&mut [T]; 3]>> =
        pieces.iter().map(|piece| Vec::with_capacity(piece.range.len())).collect();
    let mut lines = to_rows.chunks_exact_mut((heads + 2 * kv_heads) * head);
    for (pieces, outputs) in pieces.chunks_exact(kv_heads).zip(outputs.chunks_exact_mut(kv_heads)) {
        for line in lines.by_ref().take(pieces[0].range.len()) {
            let (queries, line) = line.split_at_mut(heads * head);
            let (keys, values) = line.split_at_mut(kv_heads * head);
            let queries = queries.chunks_exact_mut(heads / kv_heads * head);
            let pairs = keys.chunks_exact_mut(head).zip(values.chunks_exact_mut(head));
            for (output, (queries, (keys, values))) in outputs.iter_mut().zip(queries.zip(pairs)) {
                output.push([queries, keys, values]);
            }
        }
    }
    cpu.threads.each(pieces.iter().zip(outputs), |(piece, mut output)| {
        cpu.with_room(|room| piece.attend_back(gradient, room, &mut output));
    });
}

/// All pieces, sequence by sequence.
fn pieces<'a, T: Number>(
    cpu: &'a Cpu<T>,
    shape: AttentionShape,
    turns: &'a Turns<T>,
    starts: &Starts,
    rows: &'a [T],
) -> Vec<Piece<'a, T>> {
    let stride = (shape.heads + 2 * shape.kv_heads) * shape.head;
    assert_eq!(starts.last().copied().unwrap_or(0) * stride, rows.len(), "the sequences are all rows");
    let ranges = starts.windows(2).map(|pair| pair[0]..pair[1]);
    let piece = |range: Range<usize>, kv_head| Piece { cpu, shape, turns, rows, range, kv_head };
    ranges.flat_map(|range| (0..shape.kv_heads).map(move |kv_head| piece(range.clone(), kv_head))).collect()
}

impl<T: Number> Turns<T> {
    fn new(shape: AttentionShape, sight: Sight, starts: &Starts) -> Self {
        let Sight::Past { rope_base } = sight else {
            return Self { sight, there: Vec::new(), back: Vec::new() };
        };
        let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let tables = (0..longest).flat_map(|position| rotations(position, shape.head, rope_base));
        let there: Vec<T> = tables.map(|turn| T::of(f64::from(turn))).collect();
        let back = there.chunks_exact(2).flat_map(|turn| [turn[0], -turn[1]]).collect();
        Self { sight, there, back }
    }
}

impl<T: Number> Piece<'_, T> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Numbers between rows of the batch.
    fn stride(&self) -> usize {
        (self.shape.heads + 2 * self.shape.kv_heads) * self.shape.head
    }

    /// Where the first token's keys of this head are, or where its values are.
    fn part(&self, part: usize) -> usize {
        let AttentionShape { heads, kv_heads, head } = self.shape;
        self.range.start * self.stride() + (heads + part * kv_heads + self.kv_head) * head
    }

    /// Values of the first tokens, where they lie.
    fn values(&self, tokens: usize) -> (&[T], Grid) {
        let (rows, columns) = (tokens, self.shape.head);
        (self.rows, Grid { first: self.part(1), rows, columns, stride: self.stride() })
    }

    fn turn(&self, heads: &mut [T], table: &[T], position: usize) {
        let head = self.shape.head;
        if self.turns.sight == Sight::All {
            return;
        }
        rotate(self.cpu.instructions, heads, &table[position * head..][..head]);
    }

    /// `output = keep * output + scale * left x right` for small matrices, whose output is a whole one.
    fn multiply(&self, factors: Factors<'_, T>, packed: &mut Packed<T>, columns: usize, output: &mut [T]) {
        let rows = output.len() / columns;
        fill(self.cpu.instructions, &factors, packed, &mut Tile::new(output, rows, columns, columns));
    }

    fn turn_keys(&self, keys: &mut Vec<T>) {
        let head = self.shape.head;
        keys.clear();
        for position in 0..self.range.len() {
            keys.extend_from_slice(&self.rows[self.part(0) + position * self.stride()..][..head]);
            self.turn(&mut keys[position * head..], &self.turns.there, position);
        }
    }

    /// How many tokens of the sequence some of them see.
    fn seen(&self, tokens: &Range<usize>) -> usize {
        match self.turns.sight {
            Sight::Past { .. } => tokens.end,
            Sight::All => self.range.len(),
        }
    }

    fn scale(&self) -> T {
        T::of(1.0 / (self.shape.head as f64).sqrt())
    }

    /// Asks the keys for some tokens.
    fn ask(&self, tokens: Range<usize>, room: &mut Scratch<T>) {
        let (head, group) = (self.shape.head, self.group());
        let Scratch { queries, chances, keys, packed, .. } = room;
        queries.clear();
        for position in tokens.clone() {
            let first = (self.range.start + position) * self.stride() + self.kv_head * group * head;
            let start = queries.len();
            queries.extend_from_slice(&self.rows[first..][..group * head]);
            self.turn(&mut queries[start..], &self.turns.there, position);
        }
        let (rows, seen) = (tokens.len() * group, self.seen(&tokens));
        chances.resize(rows * seen, T::default());
        let (left, right) =
            ((queries.as_slice(), Grid::whole(rows, head)), (keys.as_slice(), Grid::whole(seen, head)));
        let product = Factors { form: Form::RightTransposed, scale: self.scale(), left, right, keep: false };
        self.multiply(product, packed, seen, chances);
        for (index, chances) in chances.chunks_exact_mut(seen).enumerate() {
            let own = match self.turns.sight {
                Sight::Past { .. } => tokens.start + index / group + 1,
                Sight::All => seen,
            };
            let (past, future) = chances.split_at_mut(own);
            softmax(self.cpu.instructions, past);
            future.fill(T::default());
        }
    }

    fn attend(&self, room: &mut Scratch<T>, output: &mut [&mut [T]]) {
        let (head, group) = (self.shape.head, self.group());
        self.turn_keys(&mut room.keys);
        for first in (0..output.len()).step_by(BLOCK) {
            let tokens = first..(first + BLOCK).min(output.len());
            self.ask(tokens.clone(), room);
            let Scratch { chances, mixed, packed, .. } = room;
            let (rows, seen) = (tokens.len() * group, self.seen(&tokens));
            mixed.resize(rows * head, T::default());
            let left = (chances.as_slice(), Grid::whole(rows, seen));
            let (right, scale) = (self.values(seen), T::of(1.0));
            let product = Factors { form: Form::Plain, scale, left, right, keep: false };
            self.multiply(product, packed, head, mixed);
            for (output, mixed) in output[tokens].iter_mut().zip(mixed.chunks_exact(group * head)) {
                output.copy_from_slice(mixed);
            }
        }
    }

    /// Writes the gradients of queries, keys and values of every token.
    fn attend_back(&self, gradient: &[T], room: &mut Scratch<T>, output: &mut [[&mut [T]; 3]]) {
        let AttentionShape { heads, head, .. } = self.shape;
        let (group, scale) = (self.group(), T::of(1.0));
        self.turn_keys(&mut room.keys);
        for to in [&mut room.to_keys, &mut room.to_values] {
            to.clear();
            to.resize(output.len() * head, T::default());
        }
        for first in (0..output.len()).step_by(BLOCK) {
            let tokens = first..(first + BLOCK).min(output.len());
            self.ask(tokens.clone(), room);
            let Scratch { queries, chances, mixed, slopes, keys, to_keys, to_values, packed } = room;
            mixed.clear();
            for position in tokens.clone() {
                let first = ((self.range.start + position) * heads + self.kv_head * group) * head;
                mixed.extend_from_slice(&gradient[first..][..group * head]);
            }
            let (rows, seen) = (tokens.len() * group, self.seen(&tokens));
            let (wide, narrow) = (Grid::whole(rows, seen), Grid::whole(rows, head));
            // What comes back to the values, to the chances, and through the softmax to the scores.
            let (left, right) = ((chances.as_slice(), wide), (mixed.as_slice(), narrow));
            let product = Factors { form: Form::LeftTransposed, scale, left, right, keep: true };
            self.multiply(product, packed, head, &mut to_values[..seen * head]);
            slopes.resize(rows * seen, T::default());
            let (left, right) = (right, self.values(seen));
            let product = Factors { form: Form::RightTransposed, scale, left, right, keep: false };
            self.multiply(product, packed, seen, slopes);
            for (chances, slopes) in chances.chunks_exact(seen).zip(slopes.chunks_exact_mut(seen)) {
                softmax_back(self.cpu.instructions, chances, self.scale(), slopes);
            }
            // From the scores to keys and queries.
            let (left, right) = ((slopes.as_slice(), wide), (queries.as_slice(), narrow));
            let product = Factors { form: Form::LeftTransposed, scale, left, right, keep: true };
            self.multiply(product, packed, head, &mut to_keys[..seen * head]);
            let right = (keys.as_slice(), Grid::whole(seen, head));
            let product = Factors { form: Form::Plain, scale, left, right, keep: false };
            self.multiply(product, packed, head, mixed);
            for (position, from) in tokens.zip(mixed.chunks_exact_mut(group * head)) {
                self.turn(from, &self.turns.back, position);
                output[position][0].copy_from_slice(from);
            }
        }
        for (position, [_, to_key, to_value]) in output.iter_mut().enumerate() {
            let own = position * head..(position + 1) * head;
            self.turn(&mut room.to_keys[own.clone()], &self.turns.back, position);
            to_key.copy_from_slice(&room.to_keys[own.clone()]);
            to_value.copy_from_slice(&room.to_values[own]);
        }
    }
}
