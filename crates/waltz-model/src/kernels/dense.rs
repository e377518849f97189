//! What BERT's family does to a row of numbers: layer norm and GELU.

use super::instructions::Instructions;
use super::rows::{exponential, sum_of};

/// What a layer norm does to a row; all three are as long as the row.
#[derive(Debug)]
pub(crate) struct Norm {
    /// Added before it.
    pub(crate) before: Vec<f32>,
    /// Multiplied after it.
    pub(crate) gain: Vec<f32>,
    /// Added after it.
    pub(crate) bias: Vec<f32>,
}

/// Layer norm in place, after `before` is added: `(row - mean) / sqrt(variance + epsilon) * gain + bias`.
pub(crate) fn layer_norm(instructions: Instructions, row: &mut [f32], norm: &Norm, epsilon: f32) {
    instructions.compiled(
        #[inline(always)]
        || {
            for (value, before) in row.iter_mut().zip(&norm.before) {
                *value += before;
            }
            let count = row.len() as f32;
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
            let factor = 1.0 / (squares / count + epsilon).sqrt();
            for ((value, gain), bias) in row.iter_mut().zip(&norm.gain).zip(&norm.bias) {
                *value = (*value - mean) * factor * gain + bias;
            }
        },
    );
}

/// GELU in place, after a bias is added: `x * (1 + erf(x / sqrt(2))) / 2`.
pub(crate) fn gelu(instructions: Instructions, row: &mut [f32], bias: &[f32]) {
    instructions.compiled(
        #[inline(always)]
        || {
            for (value, bias) in row.iter_mut().zip(bias) {
                let x = *value + bias;
                *value = 0.5 * x * (1.0 + error_function(x * std::f32::consts::FRAC_1_SQRT_2));
            }
        },
    );
}

/// The error function to about 3e-7, by formula 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
fn error_function(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * size);
    let mut sum = 1.061_405_4;
    for factor in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        sum = sum * t + factor;
    }
    (1.0 - sum * t * exponential(-size * size)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The series of the error function, in f64; it converges quickly where it is used.
    fn exact_error_function(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn gelu_is_right_to_a_millionth() {
        for instructions in Instructions::all() {
            for step in -400..=400 {
                let x = step as f32 / 100.0;
                let mut row = [x - 1.0];
                gelu(instructions, &mut row, &[1.0]);
                let wide = f64::from(x);
                let exact = 0.5 * wide * (1.0 + exact_error_function(wide / 2.0_f64.sqrt()));
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
            let norm = Norm { before: vec![1.0; 37], gain: gain.clone(), bias: vec![0.5; 37] };
            let mut normed: Vec<f32> = row.iter().map(|value| value - 1.0).collect();
            layer_norm(instructions, &mut normed, &norm, 1e-12);
            let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / 37.0;
            let variance = row.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / 37.0;
            for ((found, value), gain) in normed.iter().zip(&row).zip(&gain) {
                let exact = (f64::from(*value) - mean) / variance.sqrt() * f64::from(*gain) + 0.5;
                assert!((f64::from(*found) - exact).abs() < 1e-5);
            }
        }
    }
}
