//! Matrix products of all three forms, tile by tile.
//!
//! The right factor is packed into panels of 48 columns, so that the innermost loop reads it in order; the left one
//! is read where it lies, and packed only where it is transposed. Sums run over blocks of [`STEPS`], whatever the
//! tiles are, so that neither threads nor neighbours change a result.

use std::ops::Range;

use super::Cpu;
use crate::kernels::{Instructions, LANES, Number, PANEL_COLUMNS, PANEL_ROWS, Panel, Rows, Strided, Tile};
use crate::train::device::{Form, Grid};

/// Steps of a sum that are done before its tile's next panel: a panel of them fits into the second cache.
const STEPS: usize = 384;
/// Rows of a tile at most: the more, the less often a panel is packed.
const TILE_ROWS: usize = 512;
/// Rows of a tile at least, where there are as many: a panel is packed for each tile.
const FEWEST_ROWS: usize = 256;
/// Columns of a tile at most: the more, the less often a transposed left factor is packed.
const TILE_COLUMNS: usize = 8 * PANEL_COLUMNS;
/// Bytes of a cache line; loads across two of them are slow.
const LINE: usize = 64;

/// `keep * output + scale * left x right`, without the output.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a, T> {
    /// Which factor is transposed.
    pub(super) form: Form,
    /// What the product is multiplied by.
    pub(super) scale: T,
    /// The left factor.
    pub(super) left: (&'a [T], Grid),
    /// The right factor.
    pub(super) right: (&'a [T], Grid),
    /// Whether it is added to what was there.
    pub(super) keep: bool,
}

/// Room for packed factors, kept between products.
#[derive(Debug, Default)]
pub(super) struct Packed<T> {
    /// Of a transposed left factor.
    left: Vec<T>,
    /// One panel of the right one.
    right: Vec<T>,
}

impl<T> Factors<'_, T> {
    /// Rows, steps and columns of the product.
    fn sizes(&self) -> (usize, usize, usize) {
        let (left, right) = (self.left.1, self.right.1);
        let (rows, steps) = match self.form {
            Form::Plain | Form::RightTransposed => (left.rows, left.columns),
            Form::LeftTransposed => (left.columns, left.rows),
        };
        let (others, columns) = match self.form {
            Form::Plain | Form::LeftTransposed => (right.rows, right.columns),
            Form::RightTransposed => (right.columns, right.rows),
        };
        assert_eq!(steps, others, "the factors have as many steps");
        (rows, steps, columns)
    }
}

/// Computes a product on all threads.
pub(super) fn multiply<T: Number>(cpu: &Cpu<T>, factors: &Factors<'_, T>, output: Tile<'_, T>) {
    let Cpu { threads, instructions, .. } = cpu;
    let (rows, columns) = (output.rows().len(), output.columns().len());
    // More tiles than threads, so that a slow thread is left fewer of them; first of fewer rows, then of fewer columns.
    let wanted = threads.count() * 4;
    let across = columns.div_ceil(TILE_COLUMNS).max(1);
    let down = wanted.div_ceil(across).min(rows / FEWEST_ROWS).max(rows.div_ceil(TILE_ROWS)).max(1);
    let across = wanted.div_ceil(down).max(across);
    let rows = rows.div_ceil(down).next_multiple_of(PANEL_ROWS);
    let columns = columns.div_ceil(across).next_multiple_of(PANEL_COLUMNS);
    threads.tiles_of(output, rows, columns, |mut tile| {
        cpu.with_room(|room| fill(*instructions, factors, &mut room.packed, &mut tile));
    });
}

/// Computes the part of a product that lies in `tile`, on this thread.
pub(super) fn fill<T: Number>(
    instructions: Instructions,
    factors: &Factors<'_, T>,
    packed: &mut Packed<T>,
    tile: &mut Tile<'_, T>,
) {
    let (rows, steps, columns) = factors.sizes();
    assert!(tile.rows().end <= rows && tile.columns().end <= columns, "the tile lies in the product");
    packed.right.resize(STEPS * PANEL_COLUMNS + LINE, T::default());
    let aligned = packed.right.as_ptr().align_offset(LINE).min(LINE);
    // A sum of no steps is zero and is written too.
    for first in (0..steps.max(1)).step_by(STEPS) {
        let steps = first..(first + STEPS).min(steps);
        let keep = factors.keep || first > 0;
        if factors.form == Form::LeftTransposed {
            pack_left(factors.left, steps.clone(), tile.rows(), &mut packed.left);
        }
        for column in tile.columns().step_by(PANEL_COLUMNS) {
            let count = PANEL_COLUMNS.min(tile.columns().end - column);
            let width = count.next_multiple_of(LANES);
            let right = &mut packed.right[aligned..][..steps.len() * width];
            pack_right(instructions, factors, steps.start, column, count, width, right);
            let panel = Panel { values: right, width };
            for row in tile.rows().step_by(PANEL_ROWS) {
                let mut sums = [[T::default(); PANEL_COLUMNS]; PANEL_ROWS];
                let sums = &mut sums[..PANEL_ROWS.min(tile.rows().end - row)];
                let left = match factors.form {
                    Form::LeftTransposed => Strided {
                        values: &packed.left[(row - tile.rows().start) * steps.len()..],
                        by_row: 1,
                        by_step: PANEL_ROWS,
                    },
                    Form::Plain | Form::RightTransposed => {
                        let (values, grid) = factors.left;
                        let values = &values[grid.first + row * grid.stride + steps.start..];
                        Strided { values, by_row: grid.stride, by_step: 1 }
                    }
                };
                T::add_panel(instructions, left, panel, sums);
                let from = column - tile.columns().start;
                instructions.compiled(
                    #[inline(always)]
                    || {
                        for (offset, sums) in sums.iter().enumerate() {
                            put(&mut tile.row(row + offset)[from..][..count], sums, factors.scale, keep);
                        }
                    },
                );
            }
        }
    }
}

#[inline(always)]
fn put<T: Number>(output: &mut [T], sums: &[T; PANEL_COLUMNS], scale: T, keep: bool) {
    for (output, sum) in output.iter_mut().zip(sums) {
        let sum = *sum * scale;
        *output = if keep { *output + sum } else { sum };
    }
}

/// Lays some rows of a transposed left factor out as (groups of 8 rows, steps, 8).
fn pack_left<T: Number>(
    (values, grid): (&[T], Grid),
    steps: Range<usize>,
    rows: Range<usize>,
    packed: &mut Vec<T>,
) {
    packed.resize(steps.len() * rows.len().next_multiple_of(PANEL_ROWS), T::default());
    // Some steps together, so that both sides are read and written in whole cache lines.
    for first in steps.clone().step_by(PANEL_ROWS) {
        for (group, packed) in packed.chunks_exact_mut(steps.len() * PANEL_ROWS).enumerate() {
            let row = rows.start + group * PANEL_ROWS;
            let count = PANEL_ROWS.min(rows.end - row);
            for step in first..(first + PANEL_ROWS).min(steps.end) {
                let values = &values[grid.first + step * grid.stride + row..];
                let packed = &mut packed[(step - steps.start) * PANEL_ROWS..];
                match (values.first_chunk::<PANEL_ROWS>(), packed.first_chunk_mut::<PANEL_ROWS>()) {
                    (Some(values), Some(packed)) if count == PANEL_ROWS => *packed = *values,
                    _ => packed[..count].copy_from_slice(&values[..count]),
                }
            }
        }
    }
}

/// Lays `count` columns of the right factor out as (steps, width), the rest zeros.
fn pack_right<T: Number>(
    instructions: Instructions,
    factors: &Factors<'_, T>,
    first: usize,
    column: usize,
    count: usize,
    width: usize,
    packed: &mut [T],
) {
    let (values, grid) = factors.right;
    if count < width {
        packed.fill(T::default());
    }
    match factors.form {
        Form::Plain | Form::LeftTransposed => {
            for (step, packed) in packed.chunks_exact_mut(width).enumerate() {
                let values = &values[grid.first + (first + step) * grid.stride + column..][..count];
                packed[..count].copy_from_slice(values);
            }
        }
        Form::RightTransposed => {
            let values = &values[grid.first + column * grid.stride + first..];
            let from = Rows { values, stride: grid.stride, rows: count, columns: packed.len() / width };
            T::transpose(instructions, from, packed, width);
        }
    }
}
