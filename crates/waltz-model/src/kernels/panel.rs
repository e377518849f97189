//! The innermost loop of matrix products: a few rows of one matrix times a panel of columns of another.
//!
//! A panel is `steps` times `width` neighbouring numbers, one per column; `width` is 16, 32 or 48. Every sum is one
//! chain of fused multiplications and additions, step by step, so that all instruction sets give the same bits.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

use super::LANES;
use super::instructions::{Instructions, Level};
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
    let (rows, steps) = (sums.len(), panel.steps());
    if rows == 0 || steps == 0 {
        return;
    }
    assert!(rows <= PANEL_ROWS, "too many rows at once");
    assert!(
        (rows - 1) * left.by_row + (steps - 1) * left.by_step < left.values.len(),
        "rows hold every step"
    );
    match instructions.level() {
        Level::Scalar => plain(left, panel, sums),
        // SAFETY: the level proves that the CPU has the instructions, and the lengths are asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::add_panel(left, panel, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            match rows {
                8 => avx512::add_panel::<8>(left, panel, sums),
                7 => avx512::add_panel::<7>(left, panel, sums),
                6 => avx512::add_panel::<6>(left, panel, sums),
                5 => avx512::add_panel::<5>(left, panel, sums),
                4 => avx512::add_panel::<4>(left, panel, sums),
                3 => avx512::add_panel::<3>(left, panel, sums),
                2 => avx512::add_panel::<2>(left, panel, sums),
                _ => avx512::add_panel::<1>(left, panel, sums),
            }
        },
    }
}

impl<T> Panel<'_, T> {
    /// How many steps there are.
    fn steps(&self) -> usize {
        assert!(matches!(self.width, 16 | 32 | 48), "a panel has 16, 32 or 48 columns");
        self.values.len() / self.width
    }
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

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{LANES, Panel, Strided, Sums};

    /// # Safety
    /// `sums` has `ROWS` rows, and `left` holds every step of them.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_panel<const ROWS: usize>(
        left: Strided<'_, f32>,
        panel: Panel<'_, f32>,
        sums: &mut Sums<f32>,
    ) {
        // SAFETY: as promised to this function; the panel's width is as many registers.
        unsafe {
            match panel.width {
                16 => add::<ROWS, 1>(left, panel, sums),
                32 => add::<ROWS, 2>(left, panel, sums),
                _ => add::<ROWS, 3>(left, panel, sums),
            }
        }
    }

    /// # Safety
    /// As for `add_panel`, and the panel has `REGISTERS` times 16 columns.
    #[target_feature(enable = "avx512f")]
    unsafe fn add<const ROWS: usize, const REGISTERS: usize>(
        left: Strided<'_, f32>,
        panel: Panel<'_, f32>,
        sums: &mut Sums<f32>,
    ) {
        // Of known length: only then the compiler keeps the sums in registers.
        let Some(sums) = sums.first_chunk_mut::<ROWS>() else { return };
        let mut totals = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
        for (totals, sums) in totals.iter_mut().zip(sums.iter()) {
            for (total, sums) in totals.iter_mut().zip(sums.chunks_exact(LANES)) {
                // SAFETY: 16 floats are one register.
                *total = unsafe { _mm512_loadu_ps(sums.as_ptr()) };
            }
        }
        let (values, weights) = (left.values.as_ptr(), panel.values.as_ptr());
        for step in 0..panel.steps() {
            // SAFETY: the panel has that many steps, and the caller promises as many for each row.
            unsafe {
                let mut columns = [_mm512_setzero_ps(); REGISTERS];
                for (register, column) in columns.iter_mut().enumerate() {
                    *column = _mm512_loadu_ps(weights.add((step * REGISTERS + register) * LANES));
                }
                for (row, totals) in totals.iter_mut().enumerate() {
                    let value = _mm512_set1_ps(*values.add(row * left.by_row + step * left.by_step));
                    for (total, column) in totals.iter_mut().zip(columns) {
                        *total = _mm512_fmadd_ps(value, column, *total);
                    }
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            for (sums, total) in sums.chunks_exact_mut(LANES).zip(totals) {
                // SAFETY: 16 floats are one register.
                unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), total) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    use super::{LANES, Panel, Strided, Sums};

    /// # Safety
    /// `left` holds every step of as many rows as `sums` has.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn add_panel(left: Strided<'_, f32>, panel: Panel<'_, f32>, sums: &mut Sums<f32>) {
        for (index, sums) in sums.chunks_mut(4).enumerate() {
            let left = Strided { values: &left.values[index * 4 * left.by_row..], ..left };
            for column in (0..panel.width).step_by(LANES) {
                // SAFETY: as promised to this function; the columns are inside of the panel.
                unsafe {
                    match sums.len() {
                        1 => add::<1>(left, panel, column, sums),
                        2 => add::<2>(left, panel, column, sums),
                        3 => add::<3>(left, panel, column, sums),
                        _ => add::<4>(left, panel, column, sums),
                    }
                }
            }
        }
    }

    /// # Safety
    /// `sums` has `ROWS` rows, `left` holds every step of them, and the panel has 16 columns from `column` on.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add<const ROWS: usize>(
        left: Strided<'_, f32>,
        panel: Panel<'_, f32>,
        column: usize,
        sums: &mut Sums<f32>,
    ) {
        let Some(sums) = sums.first_chunk_mut::<ROWS>() else { return };
        let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
        for (total, sums) in totals.iter_mut().zip(sums.iter()) {
            let sums = &sums[column..column + LANES];
            // SAFETY: 16 floats are two registers.
            *total = unsafe { [_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(8))] };
        }
        let (values, weights) = (left.values.as_ptr(), panel.values.as_ptr());
        for step in 0..panel.steps() {
            // SAFETY: the panel has that many steps, and the caller promises as many for each row.
            unsafe {
                let low = _mm256_loadu_ps(weights.add(step * panel.width + column));
                let high = _mm256_loadu_ps(weights.add(step * panel.width + column + 8));
                for (row, total) in totals.iter_mut().enumerate() {
                    let value = _mm256_set1_ps(*values.add(row * left.by_row + step * left.by_step));
                    total[0] = _mm256_fmadd_ps(value, low, total[0]);
                    total[1] = _mm256_fmadd_ps(value, high, total[1]);
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals) {
            let sums = &mut sums[column..column + LANES];
            // SAFETY: 16 floats are two registers.
            unsafe {
                _mm256_storeu_ps(sums.as_mut_ptr(), total[0]);
                _mm256_storeu_ps(sums.as_mut_ptr().add(8), total[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instruction_sets_give_the_same_bits_for_any_number_of_rows() {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 29 {
                0 => 0.0,
                1 => 1e30,
                2 => -1e-30,
                _ => (state >> 8) as f32 / 8e6 - 1.0,
            }
        };
        for (steps, by_row, by_step) in
            [(0, 1, 1), (1, 3, 1), (5, 1, 8), (64, 64, 1), (193, 200, 1), (7, 11, 3)]
        {
            // Exactly as long as needed, so that a step too many would be seen.
            let most = (PANEL_ROWS - 1) * by_row + steps * by_step;
            let numbers: Vec<f32> = (0..most).map(|_| next()).collect();
            for width in [16, 32, 48] {
                let weights: Vec<f32> = (0..steps * width).map(|_| next()).collect();
                let panel = Panel { values: &weights, width };
                for rows in 0..=PANEL_ROWS {
                    let length = (rows.max(1) - 1) * by_row + (steps.max(1) - 1) * by_step + 1;
                    let left = Strided { values: &numbers[..length.min(most)], by_row, by_step };
                    let start = [[0.5; PANEL_COLUMNS]; PANEL_ROWS];
                    let mut expected = start;
                    for (row, sums) in expected[..rows].iter_mut().enumerate() {
                        for (column, sum) in sums[..width].iter_mut().enumerate() {
                            for step in 0..steps {
                                let value = numbers[row * by_row + step * by_step];
                                *sum = value.mul_add(weights[step * width + column], *sum);
                            }
                        }
                    }
                    for instructions in Instructions::all() {
                        let mut sums = start;
                        f32::add_panel(instructions, left, panel, &mut sums[..rows]);
                        assert_eq!(
                            sums, expected,
                            "{instructions:?}, {steps} steps, {rows} rows, {width} wide"
                        );
                    }
                }
            }
        }
    }
}
