//! What the tests of the CPU's operations share, and those of buffers and of the update.

mod products;
mod same_bits;
mod ways_back;

use super::*;
use crate::train::device::{LayerNorm, LossBack, Sight};

fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

fn wide() -> Cpu<f64> {
    Cpu::new(Threads::new(2))
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// The gradient of `loss` at `values` must be `gradient`; every `stride`th number is tried.
fn check(what: &str, values: &[f64], gradient: &[f64], stride: usize, loss: impl Fn(&Vec<f64>) -> f64) {
    const STEP: f64 = 1e-5;
    assert_eq!(values.len(), gradient.len());
    let mut moved = values.to_vec();
    for index in (0..values.len()).step_by(stride) {
        moved[index] = values[index] + STEP;
        let above = loss(&moved);
        moved[index] = values[index] - STEP;
        let below = loss(&moved);
        moved[index] = values[index];
        let (exact, found) = ((above - below) / (2.0 * STEP), gradient[index]);
        assert!(
            (exact - found).abs() < 1e-7 * exact.abs().max(1.0),
            "{what}, number {index}: {found} is not {exact}"
        );
    }
}

fn halved_product(
    cpu: &Cpu<f64>,
    form: Form,
    left: (&Vec<f64>, Grid),
    right: (&Vec<f64>, Grid),
    keep: f32,
    output: (&mut Vec<f64>, Grid),
) {
    cpu.multiply(form, 0.5, left, right, keep, output).unwrap();
}

#[test]
fn buffers_are_loaded_copied_and_cleared() {
    let cpu = Cpu::<f32>::new(Threads::new(2));
    let values = f32s(&noise(PART + 3, 1));
    let numbers = cpu.load(&values).unwrap();
    assert_eq!(cpu.read(&numbers).unwrap(), values);
    assert_eq!(cpu.read_floats(&cpu.load_floats(&values).unwrap()).unwrap(), values);
    let mut other = cpu.numbers(values.len()).unwrap();
    assert!(other.iter().all(|value| *value == 0.0));
    cpu.copy(&numbers, &mut other).unwrap();
    assert_eq!(other, values);
    let exact: f64 = values.iter().map(|value| 2.0 * f64::from(*value).powi(2)).sum();
    let found = cpu.square_sum(&[&numbers, &other]).unwrap();
    assert!((found - exact).abs() < 1e-9 * exact);
    cpu.clear(&mut other).unwrap();
    assert_eq!(other, cpu.floats(values.len()).unwrap());
}

#[test]
fn adam_w_is_what_the_paper_says() {
    let cpu = wide();
    let count = PART + 5;
    let mut step =
        AdamW { rate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-3, decay: 0.1, step: 0, scale: 0.5 };
    let mut weights = noise(count, 1);
    let mut expected: Vec<(f64, f64, f64)> = weights.iter().map(|weight| (*weight, 0.0, 0.0)).collect();
    let (mut first, mut second, mut master) = (vec![0.0; count], vec![0.0; count], vec![0.0; count]);
    for turn in 1..=3 {
        step.step = turn;
        let mut gradient = noise(count, 10 + u64::from(turn));
        let wide = |value: f32| f64::from(value);
        for ((weight, first, second), gradient) in expected.iter_mut().zip(&gradient) {
            let gradient = gradient * wide(step.scale);
            *first = wide(step.beta1) * *first + (1.0 - wide(step.beta1)) * gradient;
            *second = wide(step.beta2) * *second + (1.0 - wide(step.beta2)) * gradient * gradient;
            let mean = *first / (1.0 - wide(step.beta1).powi(turn as i32));
            let square = *second / (1.0 - wide(step.beta2).powi(turn as i32));
            *weight -= wide(step.rate) * wide(step.decay) * *weight;
            *weight -= wide(step.rate) * mean / (square.sqrt() + wide(step.epsilon));
        }
        let (gradient_ref, master) = (&mut gradient, Some(&mut master));
        let tensor = Moments {
            master,
            weights: &mut weights,
            gradient: gradient_ref,
            first: &mut first,
            second: &mut second,
        };
        cpu.update(&step, tensor).unwrap();
        assert!(gradient.iter().all(|value| *value == 0.0));
    }
    assert_eq!(master, weights);
    for (found, (expected, ..)) in weights.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }
}
