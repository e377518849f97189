//! What is done to a row of numbers between products: norm, rotation, gate, softmax.
//!
//! Plain loops that the compiler turns into vector instructions. Sums run in 16 lanes and are then
//! added in a fixed order, so that the result is the same on every CPU.

use super::LANES;
use super::instructions::Instructions;
use super::number::Number;
use super::panel::{PANEL_COLUMNS, PANEL_ROWS};

/// Root mean square norm: `row / sqrt(mean(row^2) + epsilon) * gain`.
pub(crate) fn rms_norm<T: Number>(
    instructions: Instructions,
    row: &[T],
    gain: &[T],
    epsilon: f32,
    output: &mut [T],
) {
    instructions.compiled(
        #[inline(always)]
        || {
            let factor = rms_factor(row, epsilon);
            for ((output, value), gain) in output.iter_mut().zip(row).zip(gain) {
                *output = *value * factor * *gain;
            }
        },
    );
}

/// What a row is multiplied by to have a root mean square of 1.
#[inline(always)]
pub(super) fn rms_factor<T: Number>(row: &[T], epsilon: f32) -> T {
    let squares = sum_of(
        row,
        #[inline(always)]
        |value| value * value,
    );
    T::of(1.0) / (squares / T::of(row.len() as f64) + T::of(f64::from(epsilon))).root()
}

/// The gate of the feed-forward part: `gate * sigmoid(gate) * up`. `both` is the gate, then `up`.
pub(crate) fn swiglu<T: Number>(instructions: Instructions, both: &[T], output: &mut [T]) {
    let (gate, up) = both.split_at(both.len() / 2);
    instructions.compiled(
        #[inline(always)]
        || {
            for ((output, gate), up) in output.iter_mut().zip(gate).zip(up) {
                *output = *gate / (T::of(1.0) + (-*gate).exponential()) * *up;
            }
        },
    );
}

/// Replaces scores by `exp(score - highest) / sum`. Returns the logarithm of the sum of `exp(score)`.
pub(crate) fn softmax<T: Number>(instructions: Instructions, scores: &mut [T]) -> f64 {
    instructions.compiled(
        #[inline(always)]
        || {
            let mut highest = [T::of(f64::NEG_INFINITY); LANES];
            let whole = scores.chunks_exact(LANES);
            let rest = whole.remainder();
            for part in whole {
                for lane in 0..LANES {
                    highest[lane] = if part[lane] > highest[lane] { part[lane] } else { highest[lane] };
                }
            }
            for (highest, score) in highest.iter_mut().zip(rest) {
                *highest = if *score > *highest { *score } else { *highest };
            }
            let highest = highest_of(highest);
            // As `sum_of` sums, on the way.
            let mut lanes = [T::default(); LANES];
            let mut whole = scores.chunks_exact_mut(LANES);
            for part in &mut whole {
                for lane in 0..LANES {
                    part[lane] = (part[lane] - highest).exponential();
                    lanes[lane] += part[lane];
                }
            }
            for (lane, score) in lanes.iter_mut().zip(whole.into_remainder()) {
                *score = (*score - highest).exponential();
                *lane += *score;
            }
            let sum: T = lanes.into_iter().sum();
            let factor = T::of(1.0) / sum;
            for score in scores.iter_mut() {
                *score *= factor;
            }
            highest.wide() + sum.wide().ln()
        },
    )
}

/// Replaces the scores of a row, which lies in several panels, by `exp(score - highest)`. Returns their sum.
pub(crate) fn exponentials(
    instructions: Instructions,
    panels: &mut [[[f32; PANEL_COLUMNS]; PANEL_ROWS]],
    row: usize,
) -> f32 {
    instructions.compiled(
        #[inline(always)]
        || {
            let mut highest = [f32::NEG_INFINITY; LANES];
            for part in panels.iter().flat_map(|panel| panel[row].as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    highest[lane] = if part[lane] > highest[lane] { part[lane] } else { highest[lane] };
                }
            }
            let highest = highest_of(highest);
            let mut lanes = [0.0; LANES];
            for panel in panels.iter_mut() {
                for part in panel[row].as_chunks_mut::<LANES>().0 {
                    for lane in 0..LANES {
                        part[lane] = exponential(part[lane] - highest);
                        lanes[lane] += part[lane];
                    }
                }
            }
            lanes.iter().sum()
        },
    )
}

/// Cosine and sine for each pair of a head at one position: (pairs, 2).
pub(crate) fn rotations(position: usize, head: usize, base: f32) -> Vec<f32> {
    let mut table = Vec::with_capacity(head);
    for pair in 0..head / 2 {
        let angle = position as f32 / base.powf(2.0 * pair as f32 / head as f32);
        table.extend([angle.cos(), angle.sin()]);
    }
    table
}

/// Turns neighbouring pairs of each head by the angles of `table`, see [`rotations`].
pub(crate) fn rotate<T: Number>(instructions: Instructions, heads: &mut [T], table: &[T]) {
    instructions.compiled(
        #[inline(always)]
        || {
            for head in heads.chunks_exact_mut(table.len()) {
                for (pair, turn) in head.chunks_exact_mut(2).zip(table.chunks_exact(2)) {
                    let (first, second) = (pair[0], pair[1]);
                    pair[0] = first * turn[0] - second * turn[1];
                    pair[1] = first * turn[1] + second * turn[0];
                }
            }
        },
    );
}

/// The highest of 16 numbers, by halves.
#[inline(always)]
pub(super) fn highest_of<T: Number>(mut lanes: [T; LANES]) -> T {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            let other = lanes[lane + half];
            lanes[lane] = if other > lanes[lane] { other } else { lanes[lane] };
        }
    }
    lanes[0]
}

/// Sums `part(value)` in 16 lanes, then the lanes in order.
#[inline(always)]
pub(super) fn sum_of<T: Number>(values: &[T], part: impl Fn(T) -> T) -> T {
    let mut lanes = [T::default(); LANES];
    let mut whole = values.chunks_exact(LANES);
    for values in &mut whole {
        for lane in 0..LANES {
            lanes[lane] += part(values[lane]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(whole.remainder()) {
        *lane += part(*value);
    }
    lanes.iter().copied().sum()
}

/// `e^x` to about one unit in the last place: `2^n` times a polynomial on the rest, which is below
/// `ln(2) / 2`. Below -87 it gives zero, above 88 the largest value it can make.
#[inline(always)]
pub(super) fn exponential(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    // ln(2) in two parts, the first with few digits so that its multiples are exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > 88.0 { 88.0 } else { x };
    let clamped = if clamped > -87.0 { clamped } else { -87.0 };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = (clamped - whole * HIGH) - whole * LOW;
    let mut sum = 1.0 / 5_040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * rest + factor;
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    if x > -87.0 { sum * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7919) % 2003) as f32 / 100.0 - 10.0).collect()
    }

    #[test]
    fn exponentials_are_right_to_a_millionth() {
        for step in -8699..8800 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exponential(x)) - exact).abs() / exact;
            assert!(error < 5e-7, "e^{x} is off by {error}");
        }
        assert_eq!(exponential(-88.0), 0.0);
        assert_eq!(exponential(f32::NEG_INFINITY), 0.0);
        assert_eq!(exponential(0.0), 1.0);
        assert!(exponential(1000.0) > 1e38);
    }

    #[test]
    fn exponentials_of_a_row_in_panels_are_those_of_the_softmax() {
        let mut panels = vec![[[0.0; PANEL_COLUMNS]; PANEL_ROWS]; 3];
        let count = 2 * PANEL_COLUMNS + 21;
        let mut row = values(count);
        for (at, score) in panels.iter_mut().flat_map(|panel| &mut panel[5]).enumerate() {
            *score = row.get(at).copied().unwrap_or(f32::NEG_INFINITY);
        }
        let before = panels.clone();
        let sum = exponentials(Instructions::all()[0], &mut panels, 5);
        softmax(Instructions::all()[0], &mut row);
        for (at, found) in panels.iter().flat_map(|panel| panel[5]).enumerate() {
            let exact = row.get(at).copied().unwrap_or(0.0);
            assert!((found / sum - exact).abs() < 1e-6, "{found} of {sum} is not {exact}");
        }
        assert!(panels.iter().all(|panel| panel[4] == [0.0; PANEL_COLUMNS]), "other rows stay");
        for instructions in Instructions::all() {
            let mut again = before.clone();
            assert_eq!((exponentials(instructions, &mut again, 5), again), (sum, panels.clone()));
        }
    }

    #[test]
    fn row_functions_are_right_and_equal_on_all_instruction_sets() {
        for count in [2, 16, 34, 576] {
            let row = values(count);
            let gain: Vec<f32> = row.iter().map(|value| value / 3.0).collect();
            let table = rotations(1234, count, 100_000.0);
            let run = |instructions| {
                let mut normed = vec![0.0; count];
                rms_norm(instructions, &row, &gain, 1e-5, &mut normed);
                let mut gated = vec![0.0; count / 2];
                swiglu(instructions, &row, &mut gated);
                let mut chances = row.clone();
                softmax(instructions, &mut chances);
                let mut turned = row.clone();
                rotate(instructions, &mut turned, &table);
                [normed, gated, chances, turned]
            };
            let [normed, gated, chances, turned] = run(Instructions::all()[0]);
            let square: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
            let size = (square / count as f64 + 1e-5).sqrt();
            let most = row.iter().fold(f32::MIN, |most, value| most.max(*value));
            let sum: f64 = row.iter().map(|value| f64::from(value - most).exp()).sum();
            let near = |found: f32, exact: f64| {
                assert!(
                    (f64::from(found) - exact).abs() < 3e-6 * exact.abs().max(1.0),
                    "{found} is not {exact}"
                );
            };
            for index in 0..count {
                near(normed[index], f64::from(row[index]) / size * f64::from(gain[index]));
                near(chances[index], f64::from(row[index] - most).exp() / sum);
            }
            for index in 0..count / 2 {
                let (gate, up) = (f64::from(row[index]), f64::from(row[count / 2 + index]));
                near(gated[index], gate / (1.0 + (-gate).exp()) * up);
                let angle = f64::from(1234.0_f32 / 100_000.0_f32.powf(2.0 * index as f32 / count as f32));
                let (first, second) = (f64::from(row[2 * index]), f64::from(row[2 * index + 1]));
                near(turned[2 * index], first * angle.cos() - second * angle.sin());
                near(turned[2 * index + 1], first * angle.sin() + second * angle.cos());
            }
            for instructions in Instructions::all() {
                assert_eq!(run(instructions), [&normed, &gated, &chances, &turned].map(Clone::clone));
            }
        }
    }
}
