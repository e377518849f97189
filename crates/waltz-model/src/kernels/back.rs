//! Ways back of the row-wise functions, and what an optimiser does to its tensors.
//!
//! Written as `rows.rs` is: plain loops, sums in a fixed order.

use super::LANES;
use super::instructions::Instructions;
use super::number::Number;
use super::rows::rms_factor;

/// The way back of [`super::rms_norm`]: adds to the row's gradient. Returns the factor of the row, of which the
/// gain's gradient is made.
pub(crate) fn rms_norm_back<T: Number>(
    instructions: Instructions,
    row: &[T],
    gain: &[T],
    epsilon: f32,
    gradient: &[T],
    to_row: &mut [T],
) -> T {
    instructions.compiled(
        #[inline(always)]
        || {
            let factor = rms_factor(row, epsilon);
            let mut lanes = [T::default(); LANES];
            for ((row, gain), gradient) in
                row.chunks(LANES).zip(gain.chunks(LANES)).zip(gradient.chunks(LANES))
            {
                for (((lane, value), gain), gradient) in lanes.iter_mut().zip(row).zip(gain).zip(gradient) {
                    *lane += *value * *gain * *gradient;
                }
            }
            let dot: T = lanes.into_iter().sum();
            let pull = dot * factor * factor * factor / T::of(row.len() as f64);
            for (((to, value), gain), gradient) in to_row.iter_mut().zip(row).zip(gain).zip(gradient) {
                *to += *gain * *gradient * factor - *value * pull;
            }
            factor
        },
    )
}

/// The way back of [`super::swiglu`]: overwrites `to_both`.
pub(crate) fn swiglu_back<T: Number>(
    instructions: Instructions,
    both: &[T],
    gradient: &[T],
    to_both: &mut [T],
) {
    let (gate, up) = both.split_at(both.len() / 2);
    let (to_gate, to_up) = to_both.split_at_mut(both.len() / 2);
    instructions.compiled(
        #[inline(always)]
        || {
            let inputs = gate.iter().zip(up).zip(gradient);
            for ((to_gate, to_up), ((gate, up), gradient)) in to_gate.iter_mut().zip(to_up).zip(inputs) {
                let chance = T::of(1.0) / (T::of(1.0) + (-*gate).exponential());
                *to_up = *gradient * *gate * chance;
                *to_gate = *gradient * *up * chance * (T::of(1.0) + *gate * (T::of(1.0) - chance));
            }
        },
    );
}

/// The way back of [`super::softmax`]: turns gradients of chances into those of scores, which were multiplied by
/// `scale`: `chance * (slope - sum of chance * slope) * scale`.
pub(crate) fn softmax_back<T: Number>(instructions: Instructions, chances: &[T], scale: T, slopes: &mut [T]) {
    instructions.compiled(
        #[inline(always)]
        || {
            let mut lanes = [T::default(); LANES];
            for (chances, slopes) in chances.chunks(LANES).zip(slopes.chunks(LANES)) {
                for ((lane, chance), slope) in lanes.iter_mut().zip(chances).zip(slopes) {
                    *lane += *chance * *slope;
                }
            }
            let mean: T = lanes.into_iter().sum();
            for (slope, chance) in slopes.iter_mut().zip(chances) {
                *slope = *chance * (*slope - mean) * scale;
            }
        },
    );
}

/// The sum of squares as f64.
pub(crate) fn square_sum<T: Number>(instructions: Instructions, values: &[T]) -> f64 {
    instructions.compiled(
        #[inline(always)]
        || {
            let mut lanes = [0.0_f64; LANES];
            for part in values.chunks(LANES) {
                for (lane, value) in lanes.iter_mut().zip(part) {
                    *lane += value.wide() * value.wide();
                }
            }
            lanes.iter().sum()
        },
    )
}

/// Factors of one step of AdamW ([Loshchilov and Hutter](https://arxiv.org/abs/1711.05101), algorithm 2).
#[derive(Clone, Copy)]
pub(crate) struct AdamFactors<T> {
    /// What the gradient is multiplied by.
    pub(crate) scale: T,
    /// Decay of the first moment.
    pub(crate) beta1: T,
    /// Decay of the second moment.
    pub(crate) beta2: T,
    /// What the weights are multiplied by: their decay.
    pub(crate) keep: T,
    /// Learning rate over the first moment's bias.
    pub(crate) rate: T,
    /// One over the root of the second moment's bias.
    pub(crate) spread: T,
    /// Added to the root of the second moment.
    pub(crate) epsilon: T,
}

/// One step of AdamW over a part of a tensor; the gradient is zero afterwards.
pub(crate) fn adam_w<T: Number>(
    instructions: Instructions,
    factors: AdamFactors<T>,
    weights: &mut [T],
    gradient: &mut [T],
    first: &mut [T],
    second: &mut [T],
) {
    let AdamFactors { scale, beta1, beta2, keep, rate, spread, epsilon } = factors;
    instructions.compiled(
        #[inline(always)]
        || {
            let moments = first.iter_mut().zip(second);
            for ((weight, gradient), (first, second)) in weights.iter_mut().zip(gradient).zip(moments) {
                let slope = *gradient * scale;
                *gradient = T::default();
                *first = beta1 * *first + (T::of(1.0) - beta1) * slope;
                *second = beta2 * *second + (T::of(1.0) - beta2) * slope * slope;
                *weight = *weight * keep - rate * *first / (second.root() * spread + epsilon);
            }
        },
    );
}
