//! Weights of a linear layer, and its product with a batch of inputs.
//!
//! Rows lie in panels of 16 (see `int8.rs` and `float.rs`); a panel is read once from memory and used
//! for the whole batch. The number of rows is rounded up to whole panels with zeros.

use std::ops::Range;
use std::sync::Arc;

use super::float::{Inputs, MOST_ROWS, Steps, add_products};
use super::instructions::Instructions;
use super::int8::{self, BLOCK, Block, PANEL_BLOCK, PANEL_SCALES};
use super::{LANES, Threads};
use crate::map::MappedFile;

/// How weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixKind {
    /// As 4-byte floats: exact and slow.
    F32,
    /// As bytes with one scale per 32 (Q8_0): what serves.
    Q8,
}

/// A matrix of weights (rows, columns): it turns inputs of `columns` numbers into outputs of `rows`.
#[derive(Debug)]
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    weights: Weights,
}

#[derive(Debug)]
enum Weights {
    /// (panels, columns, 16).
    F32(Vec<f32>),
    /// Scales as f16 (panels, blocks, 16) and bytes (panels, blocks, 8, 16, 4).
    Q8 { scales: Bytes, quants: Bytes },
}

/// Bytes in memory, in the program or in a mapped file.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// A part of the program.
    Embedded(&'static [u8]),
    /// In memory.
    Owned(Vec<u8>),
    /// A part of a file.
    Mapped(Arc<MappedFile>, Range<usize>),
}

/// What becomes of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// They replace what was there.
    Replace,
    /// They are added to what was there.
    Add,
}

impl Bytes {
    /// The bytes themselves.
    pub(crate) fn slice(&self) -> &[u8] {
        match self {
            Self::Embedded(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Mapped(file, range) => &file[range.clone()],
        }
    }
}

impl Matrix {
    /// Builds a matrix from its rows, one after the other. `columns` is a multiple of 32 for Q8.
    pub(crate) fn from_rows(kind: MatrixKind, columns: usize, values: &[f32]) -> Self {
        let rows = values.len() / columns;
        let panels = rows.div_ceil(LANES);
        let weights = match kind {
            MatrixKind::F32 => {
                let mut packed = vec![0.0; panels * LANES * columns];
                for (row, values) in values.chunks_exact(columns).enumerate() {
                    let panel = &mut packed[row / LANES * LANES * columns..][..LANES * columns];
                    for (column, value) in values.iter().enumerate() {
                        panel[column * LANES + row % LANES] = *value;
                    }
                }
                Weights::F32(packed)
            }
            MatrixKind::Q8 => {
                let blocks = columns / BLOCK;
                let mut scales = vec![0; panels * blocks * PANEL_SCALES];
                let mut quants = vec![128; panels * blocks * PANEL_BLOCK];
                for (row, values) in values.chunks_exact(columns).enumerate() {
                    for (block, values) in values.chunks_exact(BLOCK).enumerate() {
                        let (scale, bytes) = crate::quant::quantise(values);
                        let place = row / LANES * blocks + block;
                        scales[place * PANEL_SCALES + row % LANES * 2..][..2]
                            .copy_from_slice(&scale.to_le_bytes());
                        for (column, byte) in bytes.into_iter().enumerate() {
                            let at = place * PANEL_BLOCK + column / 4 * 64 + row % LANES * 4 + column % 4;
                            quants[at] = byte.wrapping_add(-128_i8) as u8;
                        }
                    }
                }
                Weights::Q8 { scales: Bytes::Owned(scales), quants: Bytes::Owned(quants) }
            }
        };
        Self { rows, columns, weights }
    }

    /// A Q8 matrix whose scales and bytes are laid out already, as [`Self::parts_q8`] gives them. Nothing
    /// if they are not exactly as long as the sizes need.
    pub(crate) fn from_parts_q8(rows: usize, columns: usize, scales: Bytes, quants: Bytes) -> Option<Self> {
        let sizes = Self::sizes_q8(rows, columns);
        let sound = sizes == (scales.slice().len(), quants.slice().len());
        sound.then_some(Self { rows, columns, weights: Weights::Q8 { scales, quants } })
    }

    /// Bytes of scales and of quants of a Q8 matrix.
    pub(crate) fn sizes_q8(rows: usize, columns: usize) -> (usize, usize) {
        let blocks = rows.div_ceil(LANES) * (columns / BLOCK);
        (blocks * PANEL_SCALES, blocks * PANEL_BLOCK)
    }

    /// Scales and bytes, if it is a Q8 matrix.
    pub(crate) fn parts_q8(&self) -> Option<(&[u8], &[u8])> {
        match &self.weights {
            Weights::F32(_) => None,
            Weights::Q8 { scales, quants } => Some((scales.slice(), quants.slice())),
        }
    }

    /// Outputs.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Writes one row of the matrix to `output`: how a token's embedding is read.
    pub(crate) fn read_row(&self, row: usize, output: &mut [f32]) {
        let (panel, lane) = (row / LANES, row % LANES);
        match &self.weights {
            Weights::F32(packed) => {
                let panel = &packed[panel * LANES * self.columns..];
                for (column, value) in output.iter_mut().enumerate() {
                    *value = panel[column * LANES + lane];
                }
            }
            Weights::Q8 { scales, quants } => {
                let blocks = self.columns / BLOCK;
                for (block, values) in output.chunks_exact_mut(BLOCK).enumerate() {
                    let place = panel * blocks + block;
                    let at = place * PANEL_SCALES + lane * 2;
                    let scale =
                        half::f16::from_le_bytes([scales.slice()[at], scales.slice()[at + 1]]).to_f32();
                    for (column, value) in values.iter_mut().enumerate() {
                        let stored =
                            quants.slice()[place * PANEL_BLOCK + column / 4 * 64 + lane * 4 + column % 4];
                        *value = f32::from(i16::from(stored) - 128) * scale;
                    }
                }
            }
        }
    }

    /// Multiplies each row of `input` (batch, columns) and writes to `output` (batch, rows). `blocks` is
    /// room for the input as bytes, kept between calls.
    pub(crate) fn multiply(
        &self,
        threads: &Threads,
        input: &[f32],
        blocks: &mut Vec<Block>,
        output: &mut [f32],
        write: Write,
    ) {
        let instructions = Instructions::best();
        let panels = self.rows.div_ceil(LANES);
        // More tiles than threads, so that a slow thread is left fewer of them; bytes take panels two by two.
        let tile = panels.div_ceil(threads.count() * 8).next_multiple_of(2) * LANES;
        let height = output.len() / self.rows.max(1);
        match &self.weights {
            Weights::F32(packed) => {
                let length = LANES * self.columns;
                threads.tiles(output, self.rows, height, tile, |mut tile| {
                    let left = tile.columns().start;
                    for first in tile.columns().step_by(LANES) {
                        let panel = &packed[first / LANES * length..][..length];
                        let steps = Steps { weights: panel, stride: LANES, steps: self.columns };
                        for row in (0..height).step_by(MOST_ROWS) {
                            let mut sums = [[0.0; LANES]; MOST_ROWS];
                            let sums = &mut sums[..MOST_ROWS.min(height - row)];
                            let values = &input[row * self.columns..];
                            add_products(instructions, steps, Inputs { values, stride: self.columns }, sums);
                            for (offset, sums) in sums.iter().enumerate() {
                                put(tile.row(row + offset), first - left, sums, write);
                            }
                        }
                    }
                });
            }
            Weights::Q8 { scales, quants } => {
                let width = self.columns / BLOCK;
                blocks.resize(height * width, Block::default());
                quantise_rows(threads, instructions, input, width, blocks);
                let (scales, quants, blocks) = (scales.slice(), quants.slice(), &*blocks);
                threads.tiles(output, self.rows, height, tile, |mut tile| {
                    let left = tile.columns().start;
                    let most = if width <= NARROW { 2 } else { 1 };
                    for first in tile.columns().step_by(most * LANES) {
                        let count = (tile.columns().end - first).div_ceil(LANES).min(most);
                        let panel = first / LANES * width;
                        let scales = &scales[panel * PANEL_SCALES..][..count * width * PANEL_SCALES];
                        let quants = &quants[panel * PANEL_BLOCK..][..count * width * PANEL_BLOCK];
                        int8::panels(instructions, count, scales, quants, blocks, |row, panel, sums| {
                            put(tile.row(row), first - left + panel * LANES, sums, write);
                        });
                    }
                });
            }
        }
    }
}

/// Most blocks of a row with which two panels lie in the fastest cache together.
const NARROW: usize = 24;

/// Rows that are turned into bytes as one piece of work.
const QUANTISED_TOGETHER: usize = 8;

fn quantise_rows(
    threads: &Threads,
    instructions: Instructions,
    input: &[f32],
    width: usize,
    blocks: &mut [Block],
) {
    threads.tiles(blocks, width, QUANTISED_TOGETHER, width, |mut tile| {
        for row in tile.rows() {
            let values = &input[row * width * BLOCK..][..width * BLOCK];
            int8::quantise(instructions, values, tile.row(row));
        }
    });
}

/// Writes the 16 sums of a panel, less where the matrix ends within it.
fn put(row: &mut [f32], first: usize, sums: &[f32; LANES], write: Write) {
    let row = &mut row[first..];
    // Of known length: only then it is one register, and no call that copies.
    match (row.first_chunk_mut::<LANES>(), write) {
        (Some(outputs), Write::Replace) => *outputs = *sums,
        (Some(outputs), Write::Add) => outputs.iter_mut().zip(sums).for_each(|(output, sum)| *output += sum),
        (None, Write::Replace) => row.copy_from_slice(&sums[..row.len()]),
        (None, Write::Add) => row.iter_mut().zip(sums).for_each(|(output, sum)| *output += sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7919 + seed * 31) % 2003) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn products_are_right_in_both_kinds_and_do_not_depend_on_batch_or_threads() {
        for (rows, columns) in [(16, 32), (40, 64), (7, 96), (33, 576)] {
            let weights = values(rows * columns, 1);
            for (kind, tolerance) in [(MatrixKind::F32, 1e-5), (MatrixKind::Q8, 2e-2)] {
                let matrix = Matrix::from_rows(kind, columns, &weights);
                let mut read = vec![0.0; columns];
                for batch in [1, 3, 8, 17] {
                    let input = values(batch * columns, 2);
                    let mut output = vec![1.0; batch * rows];
                    matrix.multiply(&Threads::new(2), &input, &mut Vec::new(), &mut output, Write::Add);
                    for index in 0..batch {
                        let alone = &input[index * columns..][..columns];
                        let mut single = vec![0.0; rows];
                        matrix.multiply(
                            &Threads::new(1),
                            alone,
                            &mut Vec::new(),
                            &mut single,
                            Write::Replace,
                        );
                        for (row, single) in single.iter().enumerate() {
                            assert_eq!(output[index * rows + row], 1.0 + single);
                            let exact: f32 =
                                (0..columns).map(|at| weights[row * columns + at] * alone[at]).sum();
                            let size = (columns as f32).sqrt();
                            assert!(
                                (single - exact).abs() < tolerance * size,
                                "{kind:?}: {single} is not {exact}"
                            );
                        }
                    }
                }
                for row in 0..rows {
                    matrix.read_row(row, &mut read);
                    for (read, weight) in read.iter().zip(&weights[row * columns..]) {
                        assert!((read - weight).abs() < 0.005, "{kind:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_matrix_is_rebuilt_from_its_parts_only_if_they_fit() {
        let matrix = Matrix::from_rows(MatrixKind::Q8, 64, &values(64 * 20, 5));
        let (scales, quants) = matrix.parts_q8().unwrap();
        let owned = |bytes: &[u8]| Bytes::Owned(bytes.to_vec());
        let again = Matrix::from_parts_q8(20, 64, owned(scales), owned(quants)).unwrap();
        assert_eq!(again.parts_q8().unwrap(), (scales, quants));
        assert!(Matrix::from_parts_q8(20, 64, owned(&scales[1..]), owned(quants)).is_none());
        assert!(Matrix::from_parts_q8(20, 96, owned(scales), owned(quants)).is_none());
        assert!(Matrix::from_rows(MatrixKind::F32, 64, &[0.0; 64]).parts_q8().is_none());
    }
}
