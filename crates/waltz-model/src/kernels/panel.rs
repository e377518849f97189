//! The innermost loop of matrix products: a few rows of one matrix times a panel of columns of another.
//!
//! A panel is `steps` times `width` neighbouring numbers, one per column; `width` is 16, 32 or 48. Every sum is one
//! chain of fused multiplications and additions, step by step, so that all instruction sets give the same bits.

use super::LANES;
use super::instructions::Instructions;
use super::number::Number;

/// Most rows that one call takes.
pub(crate) const PANEL_ROWS: usize = 8;
/// Most columns of a panel: with [`PANEL_ROWS`] rows the sums fill 24 of AVX-512's 32 registers.
pub(crate) const PANEL_COLUMNS: usize = 3 * LANES;

/// Sums of some rows; only the panel's columns count.
pub(crate) type Sums<T> = [[T; PANEL_COLUMNS]];

/// Rows of the left factor: number `step` of row `row` is `values[row * by_row + step * by_step]`.
#[derive(Clone, Copy)]
pub struct Strided<'a, T> {
    /// The numbers.
    pub values: &'a [T],
    /// How far rows are apart.
    pub by_row: usize,
    /// How far steps are apart.
    pub by_step: usize,
}

/// Columns of the right factor, packed: (steps, width).
#[derive(Clone, Copy)]
pub struct Panel<'a, T> {
    /// The numbers.
    pub values: &'a [T],
    /// Columns: a multiple of 16 up to [`PANEL_COLUMNS`].
    pub width: usize,
}

/// Adds to each of `sums` (at most [`PANEL_ROWS`] rows) the products of its row of `left` with the panel.
pub(super) fn add_panel(
    instructions: Instructions,
    left: Strided<'_, f32>,
    panel: Panel<'_, f32>,
    sums: &mut Sums<f32>,
) {
    instructions.compiled(
        #[inline(always)]
        || plain(left, panel, sums),
    );
}

/// In plain code: what the other kernels are tested against, and what computes f64.
#[inline(always)]
pub(super) fn plain<T: Number>(left: Strided<'_, T>, panel: Panel<'_, T>, sums: &mut Sums<T>) {
    for (step, weights) in panel.values.chunks_exact(panel.width).enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            let value = left.values[row * left.by_row + step * left.by_step];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = value.fused(*weight, *sum);
            }
        }
    }
}
