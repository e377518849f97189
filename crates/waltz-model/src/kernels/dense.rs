//! What BERT's family does to a row of numbers: layer norm and GELU.

use super::LANES;
use super::instructions::Instructions;
use super::number::Number;
use super::rows::{exponential, sum_of};

/// What a layer norm does to a row; all three are as long as the row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm<'a> {
    /// Added before it.
    pub(crate) before: &'a [f32],
    /// Multiplied after it.
    pub(crate) gain: &'a [f32],
    /// Added after it.
    pub(crate) bias: &'a [f32],
}

/// Layer norm in place, after `before` is added: `(row - mean) / sqrt(variance + epsilon) * gain + bias`.
pub(crate) fn layer_norm(instructions: Instructions, row: &mut [f32], norm: Norm<'_>, epsilon: f32) {
    instructions.compiled(
        #[inline(always)]
        || {
            for (value, before) in row.iter_mut().zip(norm.before) {
                *value += before;
            }
            let Spread { mean, factor } = spread(row, epsilon);
            for ((value, gain), bias) in row.iter_mut().zip(norm.gain).zip(norm.bias) {
                *value = (*value - mean) * factor * gain + bias;
            }
        },
    );
}

/// Layer norm of a row into another.
pub(crate) fn layer_norm_to<T: Number>(
    instructions: Instructions,
    row: &[T],
    (gain, bias): (&[T], &[T]),
    epsilon: f32,
    output: &mut [T],
) {
    instructions.compiled(
        #[inline(always)]
        || {
            let Spread { mean, factor } = spread(row, epsilon);
            for (((output, value), gain), bias) in output.iter_mut().zip(row).zip(gain).zip(bias) {
                *output = (*value - mean) * factor * *gain + *bias;
            }
        },
    );
}

/// What a layer norm takes off a row, and what it multiplies the rest by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread<T> {
    /// The mean.
    pub(crate) mean: T,
    /// One over the deviation.
    pub(crate) factor: T,
}

#[inline(always)]
fn spread<T: Number>(row: &[T], epsilon: f32) -> Spread<T> {
    let count = T::of(row.len() as f64);
    let mean = sum_of(
        row,
        #[inline(always)]
        |value| value,
    ) / count;
    let squares = sum_of(
        row,
        #[inline(always)]
        |value| (value - mean) * (value - mean),
    );
    Spread { mean, factor: T::of(1.0) / (squares / count + T::of(f64::from(epsilon))).root() }
}

/// The way back of [`layer_norm_to`]: overwrites the row's gradient. Returns what the gain's gradient is made of.
pub(crate) fn layer_norm_back<T: Number>(
    instructions: Instructions,
    row: &[T],
    gain: &[T],
    epsilon: f32,
    gradient: &[T],
    to_row: &mut [T],
) -> Spread<T> {
    instructions.compiled(
        #[inline(always)]
        || {
            let Spread { mean, factor } = spread(row, epsilon);
            let (mut sums, mut along) = ([T::default(); LANES], [T::default(); LANES]);
            let parts = row.chunks(LANES).zip(gain.chunks(LANES)).zip(gradient.chunks(LANES));
            for ((row, gain), gradient) in parts {
                let lanes = sums.iter_mut().zip(&mut along);
                for (((value, gain), gradient), (sum, along)) in row.iter().zip(gain).zip(gradient).zip(lanes)
                {
                    *sum += *gain * *gradient;
                    *along += *gain * *gradient * (*value - mean);
                }
            }
            let count = T::of(row.len() as f64);
            let sum = sums.into_iter().sum::<T>() / count;
            let along = along.into_iter().sum::<T>() * factor * factor / count;
            for (((to, value), gain), gradient) in to_row.iter_mut().zip(row).zip(gain).zip(gradient) {
                *to = factor * (*gain * *gradient - sum - (*value - mean) * along);
            }
            Spread { mean, factor }
        },
    )
}

/// GELU in place, after a bias is added: `x * (1 + erf(x / sqrt(2))) / 2`.
pub(crate) fn gelu(instructions: Instructions, row: &mut [f32], bias: &[f32]) {
    instructions.compiled(
        #[inline(always)]
        || {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value = bent(*value + bias);
            }
        },
    );
}

/// GELU of a row into another.
pub(crate) fn gelu_to<T: Number>(instructions: Instructions, row: &[T], output: &mut [T]) {
    instructions.compiled(
        #[inline(always)]
        || {
            for (output, value) in output.iter_mut().zip(row) {
                *output = bent(*value);
            }
        },
    );
}

#[inline(always)]
fn bent<T: Number>(x: T) -> T {
    T::of(0.5) * x * (T::of(1.0) + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).error_function())
}

/// The way back of [`gelu_to`]: overwrites the row's gradient.
pub(crate) fn gelu_back<T: Number>(instructions: Instructions, row: &[T], gradient: &[T], to_row: &mut [T]) {
    /// One over the root of two pi.
    const DENSITY: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    instructions.compiled(
        #[inline(always)]
        || {
            let half = T::of(0.5);
            for ((to, x), gradient) in to_row.iter_mut().zip(row).zip(gradient) {
                let share = half + half * (*x * T::of(std::f64::consts::FRAC_1_SQRT_2)).error_function();
                let density = T::of(DENSITY) * (-(*x * *x) * half).exponential();
                *to = *gradient * (share + *x * density);
            }
        },
    );
}

/// The error function to about 3e-7, by formula 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
pub(super) fn error_function(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / size.mul_add(0.327_591_1, 1.0);
    let mut sum = 1.061_405_4_f32;
    for factor in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        sum = sum.mul_add(t, factor);
    }
    (1.0 - sum * t * exponential(-size * size)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_right_to_a_millionth() {
        for instructions in Instructions::all() {
            for step in -400..=400 {
                let x = step as f32 / 100.0;
                let mut row = [x - 1.0];
                gelu(instructions, &mut row, &[1.0]);
                let wide = f64::from(x);
                let exact = 0.5 * wide * (1.0 + (wide / 2.0_f64.sqrt()).error_function());
                assert!(
                    (f64::from(row[0]) - exact).abs() < 1.5e-6,
                    "gelu({x}) is {} and not {exact}",
                    row[0]
                );
            }
            let mut far = [-100.0, 100.0, 0.0];
            gelu(instructions, &mut far, &[0.0; 3]);
            assert_eq!(far, [0.0, 100.0, 0.0]);
        }
    }

    #[test]
    fn layer_norm_is_what_the_formula_says() {
        for instructions in Instructions::all() {
            let row: Vec<f32> = (0..37).map(|index| (index * index % 17) as f32).collect();
            let gain: Vec<f32> = (0..37).map(|index| index as f32 / 10.0).collect();
            let norm = Norm { before: &[1.0; 37], gain: &gain, bias: &[0.5; 37] };
            let mut normed: Vec<f32> = row.iter().map(|value| value - 1.0).collect();
            layer_norm(instructions, &mut normed, norm, 1e-12);
            let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / 37.0;
            let variance = row.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / 37.0;
            for ((found, value), gain) in normed.iter().zip(&row).zip(&gain) {
                let exact = (f64::from(*value) - mean) / variance.sqrt() * f64::from(*gain) + 0.5;
                assert!((f64::from(*found) - exact).abs() < 1e-5);
            }
        }
    }
}
