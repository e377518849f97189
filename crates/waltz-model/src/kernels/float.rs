//! Products of f32 weights with f32 inputs.
//!
//! Weights lie as `columns` steps of 16 neighbouring numbers, one per output, `stride` apart. This is how a
//! panel of a matrix is stored (stride 16), and also how attention keeps keys and values.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

use super::LANES;
use super::instructions::{Instructions, Level};

/// Most rows that one call takes.
pub(crate) const MOST_ROWS: usize = 8;

/// Where weights lie: `steps` times 16 numbers, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a> {
    /// The numbers.
    pub(crate) weights: &'a [f32],
    /// How far the steps are apart.
    pub(crate) stride: usize,
    /// How many there are.
    pub(crate) steps: usize,
}

/// Where inputs lie: rows `stride` apart, of which `steps` numbers are used.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The numbers.
    pub(crate) values: &'a [f32],
    /// How far the rows are apart.
    pub(crate) stride: usize,
}

/// Adds to each of `sums` (at most [`MOST_ROWS`] rows) the products of its input row with the weights,
/// step by step.
pub(crate) fn add_products(
    instructions: Instructions,
    steps: Steps<'_>,
    inputs: Inputs<'_>,
    sums: &mut [[f32; LANES]],
) {
    let (rows, count) = (sums.len(), steps.steps);
    if rows == 0 || count == 0 {
        return;
    }
    assert!(rows <= MOST_ROWS, "too many rows at once");
    assert!((count - 1) * steps.stride + LANES <= steps.weights.len(), "weights hold every step");
    assert!((rows - 1) * inputs.stride + count <= inputs.values.len(), "inputs hold every row");
    match instructions.level() {
        Level::Scalar => plain(steps, inputs, sums),
        // SAFETY: the level proves that the CPU has the instructions, and the lengths are asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::add_products(steps, inputs, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            match rows {
                8 => avx512::add_products::<8>(steps, inputs, sums),
                7 => avx512::add_products::<7>(steps, inputs, sums),
                6 => avx512::add_products::<6>(steps, inputs, sums),
                5 => avx512::add_products::<5>(steps, inputs, sums),
                4 => avx512::add_products::<4>(steps, inputs, sums),
                3 => avx512::add_products::<3>(steps, inputs, sums),
                2 => avx512::add_products::<2>(steps, inputs, sums),
                _ => avx512::add_products::<1>(steps, inputs, sums),
            }
        },
    }
}

/// In plain code: what the other kernels are tested against.
fn plain(steps: Steps<'_>, inputs: Inputs<'_>, sums: &mut [[f32; LANES]]) {
    for (row, sums) in sums.iter_mut().enumerate() {
        let values = &inputs.values[row * inputs.stride..][..steps.steps];
        for (step, value) in values.iter().enumerate() {
            let weights = &steps.weights[step * steps.stride..][..LANES];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = value.mul_add(*weight, *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{Inputs, LANES, Steps};

    /// # Safety
    /// `sums` has `ROWS` rows, and weights and inputs are long enough, as `add_products` asserts.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_products<const ROWS: usize>(
        steps: Steps<'_>,
        inputs: Inputs<'_>,
        sums: &mut [[f32; LANES]],
    ) {
        let mut totals = [_mm512_setzero_ps(); ROWS];
        for (total, sums) in totals.iter_mut().zip(&*sums) {
            // SAFETY: 16 floats are one register.
            *total = unsafe { _mm512_loadu_ps(sums.as_ptr()) };
        }
        let (weights, values) = (steps.weights.as_ptr(), inputs.values.as_ptr());
        for step in 0..steps.steps {
            // SAFETY: both offsets are within the lengths that the caller promises.
            unsafe {
                let weights = _mm512_loadu_ps(weights.add(step * steps.stride));
                for (row, total) in totals.iter_mut().enumerate() {
                    let value = _mm512_set1_ps(*values.add(row * inputs.stride + step));
                    *total = _mm512_fmadd_ps(value, weights, *total);
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals) {
            // SAFETY: 16 floats are one register.
            unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), total) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    use super::{Inputs, LANES, Steps};

    /// # Safety
    /// Weights and inputs are long enough, as `add_products` asserts.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn add_products(steps: Steps<'_>, inputs: Inputs<'_>, sums: &mut [[f32; LANES]]) {
        let mut first = 0;
        while first < sums.len() {
            let rest = &mut sums[first..];
            let values = &inputs.values[first * inputs.stride..];
            let inputs = Inputs { values, ..inputs };
            // SAFETY: as promised to this function.
            unsafe {
                match rest.len() {
                    1 => few::<1>(steps, inputs, rest),
                    2 => few::<2>(steps, inputs, rest),
                    3 => few::<3>(steps, inputs, rest),
                    _ => few::<4>(steps, inputs, &mut rest[..4]),
                }
            }
            first += 4;
        }
    }

    /// # Safety
    /// `sums` has `ROWS` rows, and weights and inputs are long enough.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn few<const ROWS: usize>(steps: Steps<'_>, inputs: Inputs<'_>, sums: &mut [[f32; LANES]]) {
        let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
        for (total, sums) in totals.iter_mut().zip(&*sums) {
            // SAFETY: 16 floats are two registers.
            *total = unsafe { [_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(8))] };
        }
        let (weights, values) = (steps.weights.as_ptr(), inputs.values.as_ptr());
        for step in 0..steps.steps {
            // SAFETY: both offsets are within the lengths that the caller promises.
            unsafe {
                let low = _mm256_loadu_ps(weights.add(step * steps.stride));
                let high = _mm256_loadu_ps(weights.add(step * steps.stride + 8));
                for (row, total) in totals.iter_mut().enumerate() {
                    let value = _mm256_set1_ps(*values.add(row * inputs.stride + step));
                    total[0] = _mm256_fmadd_ps(value, low, total[0]);
                    total[1] = _mm256_fmadd_ps(value, high, total[1]);
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals) {
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
        for (count, stride, input_stride) in
            [(1, 16, 1), (5, 16, 9), (64, 16, 64), (16, 64, 31), (577, 17, 600)]
        {
            let weights: Vec<f32> = (0..(count - 1) * stride + LANES).map(|_| next()).collect();
            let values: Vec<f32> = (0..MOST_ROWS * input_stride + count).map(|_| next()).collect();
            let steps = Steps { weights: &weights, stride, steps: count };
            let inputs = Inputs { values: &values, stride: input_stride };
            for rows in 0..=MOST_ROWS {
                let start = [[0.5; LANES]; MOST_ROWS];
                let mut expected = start;
                plain(steps, inputs, &mut expected[..rows]);
                for instructions in Instructions::all() {
                    let mut sums = start;
                    add_products(instructions, steps, inputs, &mut sums[..rows]);
                    assert_eq!(sums, expected, "{instructions:?}, {count} steps, {rows} rows");
                }
            }
        }
    }

    #[test]
    fn a_product_is_what_exact_arithmetic_says() {
        let weights: Vec<f32> = (0..40 * LANES).map(|index| (index % 37) as f32 - 18.0).collect();
        let values: Vec<f32> = (0..40).map(|index| (index % 11) as f32 - 5.0).collect();
        let mut sums = [[0.0; LANES]];
        let steps = Steps { weights: &weights, stride: LANES, steps: 40 };
        add_products(Instructions::best(), steps, Inputs { values: &values, stride: 40 }, &mut sums);
        for (lane, sum) in sums[0].iter().enumerate() {
            let exact: f32 = (0..40).map(|step| values[step] * weights[step * LANES + lane]).sum();
            assert_eq!(*sum, exact);
        }
    }
}
