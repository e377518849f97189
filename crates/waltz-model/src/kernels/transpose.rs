//! Rows laid out as columns, for the panels of products.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

use super::instructions::{Instructions, Level};

/// Rows and columns that vector instructions turn at once.
const SIDE: usize = 8;

/// Some rows of a matrix, `stride` apart.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    /// The numbers.
    pub values: &'a [T],
    /// How far rows are apart.
    pub stride: usize,
    /// How many rows there are.
    pub rows: usize,
    /// How many numbers of a row are meant.
    pub columns: usize,
}

/// Writes number `column` of row `row` to `output[column * width + row]`.
pub(super) fn transpose(instructions: Instructions, from: Rows<'_, f32>, output: &mut [f32], width: usize) {
    let whole = match instructions.level() {
        Level::Scalar => 0,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => {
            let Rows { rows, columns, .. } = from;
            let (rows, columns) = (rows / SIDE * SIDE, columns / SIDE * SIDE);
            for row in (0..rows).step_by(SIDE) {
                for column in (0..columns).step_by(SIDE) {
                    let values = &from.values[row * from.stride + column..];
                    let output = &mut output[column * width + row..];
                    assert!(values.len() >= (SIDE - 1) * from.stride + SIDE, "rows hold every column");
                    assert!(output.len() >= (SIDE - 1) * width + SIDE, "the output holds every column");
                    // SAFETY: the level proves that the CPU has the instructions, and the lengths are asserted.
                    unsafe { avx::transpose(values, from.stride, output, width) };
                }
            }
            // What is left: the last columns of these rows, and then the last rows.
            let rest =
                Rows { values: &from.values[columns..], rows, columns: from.columns - columns, ..from };
            if rows > 0 && rest.columns > 0 {
                plain(rest, &mut output[columns * width..], width);
            }
            rows
        }
    };
    if whole < from.rows && from.columns > 0 {
        let rest = Rows { values: &from.values[whole * from.stride..], rows: from.rows - whole, ..from };
        plain(rest, &mut output[whole..], width);
    }
}

/// In plain code.
pub(super) fn plain<T: Copy>(from: Rows<'_, T>, output: &mut [T], width: usize) {
    for row in 0..from.rows {
        let values = &from.values[row * from.stride..][..from.columns];
        for (column, value) in values.iter().enumerate() {
            output[column * width + row] = *value;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
        _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };

    use super::SIDE;

    /// # Safety
    /// `from` holds 8 rows of 8 numbers, `stride` apart, and `output` as many, `width` apart.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn transpose(from: &[f32], stride: usize, output: &mut [f32], width: usize) {
        let mut rows = [_mm256_setzero_ps(); SIDE];
        for (index, row) in rows.iter_mut().enumerate() {
            // SAFETY: as promised to this function.
            *row = unsafe { _mm256_loadu_ps(from.as_ptr().add(index * stride)) };
        }
        // Neighbours of two rows, then of four rows within each half, then of all eight.
        let mut pairs = rows;
        let mut fours = rows;
        for index in 0..4 {
            pairs[2 * index] = _mm256_unpacklo_ps(rows[2 * index], rows[2 * index + 1]);
            pairs[2 * index + 1] = _mm256_unpackhi_ps(rows[2 * index], rows[2 * index + 1]);
        }
        for index in [0, 4] {
            fours[index] = _mm256_shuffle_ps::<0x44>(pairs[index], pairs[index + 2]);
            fours[index + 1] = _mm256_shuffle_ps::<0xEE>(pairs[index], pairs[index + 2]);
            fours[index + 2] = _mm256_shuffle_ps::<0x44>(pairs[index + 1], pairs[index + 3]);
            fours[index + 3] = _mm256_shuffle_ps::<0xEE>(pairs[index + 1], pairs[index + 3]);
        }
        for index in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[index], fours[index + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[index], fours[index + 4]);
            // SAFETY: as promised to this function.
            unsafe {
                _mm256_storeu_ps(output.as_mut_ptr().add(index * width), low);
                _mm256_storeu_ps(output.as_mut_ptr().add((index + 4) * width), high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lands_where_it_belongs_and_nothing_else_is_touched() {
        for (rows, columns) in
            [(0, 3), (3, 0), (1, 1), (8, 8), (16, 24), (9, 17), (48, 192), (5, 40), (40, 5)]
        {
            let (stride, width) = (columns + 3, rows + 2);
            // Exactly as long as needed.
            let length = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
            let values: Vec<f32> = (0..length).map(|index| index as f32).collect();
            for instructions in Instructions::all() {
                let mut output = vec![-1.0; if columns == 0 { 0 } else { (columns - 1) * width + rows }];
                transpose(instructions, Rows { values: &values, stride, rows, columns }, &mut output, width);
                for (index, found) in output.iter().enumerate() {
                    let (column, row) = (index / width, index % width);
                    let expected = if row < rows { (row * stride + column) as f32 } else { -1.0 };
                    assert_eq!(
                        *found, expected,
                        "{instructions:?}, {rows} x {columns}, row {row}, column {column}"
                    );
                }
            }
        }
    }
}
