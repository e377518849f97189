//! The way forward of an encoder that serves: tokens become one row of numbers each.

use super::{Layer, Norm, Weights, first_text};
use crate::Shape;
use crate::kernels::{
    BLOCK, Bytes, Instructions, LANES, Matrix, Norm as Row, Number, PANEL_COLUMNS, PANEL_ROWS, Panel,
    Strided, Threads, Tile, Write, exponentials, gelu, layer_norm,
};
use crate::quant::quantise;

/// Rows whose norm or GELU is one piece of work.
const ROWS_TOGETHER: usize = 8;
/// Rows that go through the feed-forward part together: what lies between its two products stays in the cache.
const ROWS_RAISED: usize = 64;

/// The weights as they serve.
pub(crate) type Serving = Weights<Matrix, Table, Vec<f32>>;

/// Embeddings by row.
#[derive(Debug)]
pub(crate) enum Table {
    /// As floats.
    F32(Vec<f32>),
    /// As bytes: each row is the scales of its blocks of 32, as f16, and then its bytes.
    Q8(Bytes),
}

impl Table {
    /// Bytes of a row of so many numbers.
    pub(crate) fn row_bytes(width: usize) -> usize {
        width / BLOCK * 2 + width
    }

    /// Rows of `width` numbers as bytes.
    pub(crate) fn pack(values: &[f32], width: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() / width * Self::row_bytes(width));
        for row in values.chunks_exact(width) {
            let blocks: Vec<_> = row.chunks_exact(BLOCK).map(quantise).collect();
            bytes.extend(blocks.iter().flat_map(|(scale, _)| scale.to_le_bytes()));
            bytes.extend(blocks.iter().flat_map(|(_, quants)| quants.map(i8::cast_unsigned)));
        }
        bytes
    }

    /// Adds a row to `output`. A row that is not there adds nothing.
    fn add_row(&self, row: usize, output: &mut [f32]) {
        let width = output.len();
        match self {
            Self::F32(values) => {
                let Some(values) = values.get(row * width..(row + 1) * width) else { return };
                output.iter_mut().zip(values).for_each(|(output, value)| *output += value);
            }
            Self::Q8(bytes) => {
                let length = Self::row_bytes(width);
                let Some(row) = bytes.slice().get(row * length..(row + 1) * length) else { return };
                let (scales, quants) = row.split_at(width / BLOCK * 2);
                let blocks = scales.chunks_exact(2).zip(quants.chunks_exact(BLOCK));
                for (output, (scale, quants)) in output.chunks_exact_mut(BLOCK).zip(blocks) {
                    let scale = half::f16::from_le_bytes([scale[0], scale[1]]).to_f32();
                    for (output, quant) in output.iter_mut().zip(quants) {
                        *output += f32::from(quant.cast_signed()) * scale;
                    }
                }
            }
        }
    }
}

/// The states of all tokens after the last layer (tokens, width). What follows the first separator is a second text.
pub(crate) fn forward(
    shape: &Shape,
    weights: &Serving,
    threads: &Threads,
    tokens: &[u32],
    separator: u32,
) -> Vec<f32> {
    let Shape { width, hidden, epsilon, .. } = *shape;
    let first = first_text(tokens, separator);
    let mut state = vec![0.0; tokens.len() * width];
    for (at, (token, row)) in tokens.iter().zip(state.chunks_exact_mut(width)).enumerate() {
        weights.words.add_row(*token as usize, row);
        weights.positions.add_row(at, row);
        weights.kinds.add_row(usize::from(at >= first), row);
    }
    let instructions = Instructions::best();
    let normalise = |state: &mut [f32], before: &[f32], norm: &Norm<Vec<f32>>| {
        let norm = Row { before, gain: &norm.gain, bias: &norm.bias };
        for_rows(threads, state, width, |row| layer_norm(instructions, row, norm, epsilon));
    };
    normalise(&mut state, &[], &weights.norm);
    let mut blocks = Vec::new();
    let mut attention = vec![0.0; tokens.len() * 3 * width];
    let mut mixed = vec![0.0; tokens.len() * width];
    let mut room = vec![0.0; tokens.len().min(ROWS_RAISED) * hidden];
    for Layer { query_key_value, mixed: mix, attention_norm, up, down, feed_norm } in &weights.layers {
        query_key_value.weights.multiply(threads, &state, &mut blocks, &mut attention, Write::Replace);
        attend(threads, shape, &attention, &query_key_value.bias, &mut mixed);
        mix.weights.multiply(threads, &mixed, &mut blocks, &mut state, Write::Add);
        normalise(&mut state, &mix.bias, attention_norm);
        for state in state.chunks_mut(ROWS_RAISED * width) {
            let raised = &mut room[..state.len() / width * hidden];
            up.weights.multiply(threads, state, &mut blocks, raised, Write::Replace);
            for_rows(threads, raised, hidden, |row| gelu(instructions, row, &up.bias));
            down.weights.multiply(threads, raised, &mut blocks, state, Write::Add);
            normalise(state, &down.bias, feed_norm);
        }
    }
    state
}

fn for_rows(threads: &Threads, matrix: &mut [f32], width: usize, work: impl Fn(&mut [f32]) + Sync) {
    threads.tiles(matrix, width, ROWS_TOGETHER, width, |mut tile| {
        for row in tile.rows() {
            work(tile.row(row));
        }
    });
}

/// Writes to `output` (tokens, width) what each token finds in all tokens. `attention` (tokens, 3 x width) holds
/// queries, keys and values without their `bias`.
fn attend(threads: &Threads, shape: &Shape, attention: &[f32], bias: &[f32], output: &mut [f32]) {
    let tokens = output.len() / shape.width;
    threads.tiles(output, shape.width, tokens, shape.head, |mut tile| {
        attend_head(shape, attention, bias, tokens, &mut tile);
    });
}

/// One head: keys lie in panels of up to 48 tokens, and so do the scores.
fn attend_head(shape: &Shape, attention: &[f32], bias: &[f32], tokens: usize, tile: &mut Tile<'_, f32>) {
    let Shape { width: all, head, .. } = *shape;
    let instructions = Instructions::best();
    let first = tile.columns().start;
    let part = |token: usize, which: usize| {
        let values = &attention[(token * 3 + which) * all + first..][..head];
        values.iter().zip(&bias[which * all + first..]).map(|(value, bias)| value + bias)
    };
    let width = tokens.next_multiple_of(LANES);
    // Where each panel begins, and how many tokens it has room for.
    let panels = || (0..width).step_by(PANEL_COLUMNS).map(|start| (start, PANEL_COLUMNS.min(width - start)));
    let mut keys = vec![0.0; width * head];
    let mut values = Vec::with_capacity(tokens * head);
    let mut queries = Vec::with_capacity(tokens * head);
    let scale = 1.0 / (head as f32).sqrt();
    for (start, columns) in panels() {
        let panel = &mut keys[start * head..][..columns * head];
        for token in start..tokens.min(start + columns) {
            for (at, key) in part(token, 1).enumerate() {
                panel[at * columns + token - start] = key;
            }
        }
    }
    for token in 0..tokens {
        queries.extend(part(token, 0).map(|value| value * scale));
        values.extend(part(token, 2));
    }
    let mut scores = vec![[[0.0; PANEL_COLUMNS]; PANEL_ROWS]; panels().count()];
    for start in (0..tokens).step_by(PANEL_ROWS) {
        let rows = PANEL_ROWS.min(tokens - start);
        let asked = Strided { values: &queries[start * head..], by_row: head, by_step: 1 };
        for ((at, columns), scores) in panels().zip(&mut scores) {
            *scores = [[0.0; PANEL_COLUMNS]; PANEL_ROWS];
            let panel = Panel { values: &keys[at * head..][..columns * head], width: columns };
            f32::add_panel(instructions, asked, panel, &mut scores[..rows]);
            // Nothing is found where no token is.
            for scores in scores.iter_mut().filter(|_| at + PANEL_COLUMNS > tokens) {
                scores[tokens - at..].fill(f32::NEG_INFINITY);
            }
        }
        let mut totals = [0.0; PANEL_ROWS];
        for (row, total) in totals[..rows].iter_mut().enumerate() {
            *total = exponentials(instructions, &mut scores, row);
        }
        let mut sums = [[0.0; PANEL_COLUMNS]; PANEL_ROWS];
        for ((at, columns), scores) in panels().zip(&scores) {
            let found = Panel { values: &values[at * head..(at + columns).min(tokens) * head], width: head };
            let left = Strided { values: scores.as_flattened(), by_row: PANEL_COLUMNS, by_step: 1 };
            f32::add_panel(instructions, left, found, &mut sums[..rows]);
        }
        for (row, (sums, total)) in sums.iter().zip(&totals[..rows]).enumerate() {
            let factor = 1.0 / total;
            tile.row(start + row).iter_mut().zip(sums).for_each(|(output, sum)| *output = sum * factor);
        }
    }
}
