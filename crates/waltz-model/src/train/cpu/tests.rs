//! Every way back against finite differences in f64, products against the textbook, and the same bits on any number
//! of threads.

use super::*;
use crate::train::device::LossBack;

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

#[test]
fn products_of_all_forms_are_what_the_textbook_says() {
    let cpu = wide();
    let sizes = [(1, 1, 1), (8, 192, 48), (9, 193, 49), (3, 400, 17), (530, 20, 200), (7, 0, 5), (50, 8, 33)];
    for (rows, steps, columns) in sizes {
        for form in [Form::Plain, Form::RightTransposed, Form::LeftTransposed] {
            let left = match form {
                Form::LeftTransposed => Grid { first: 3, rows: steps, columns: rows, stride: rows + 2 },
                _ => Grid { first: 3, rows, columns: steps, stride: steps + 2 },
            };
            let right = match form {
                Form::RightTransposed => Grid { first: 5, rows: columns, columns: steps, stride: steps + 3 },
                _ => Grid { first: 5, rows: steps, columns, stride: columns + 3 },
            };
            let output = Grid { first: 2, rows, columns, stride: columns + 4 };
            let room = |grid: Grid, seed| noise(grid.first + (grid.rows + 1) * grid.stride, seed);
            let (a, b, start) = (room(left, 1), room(right, 2), room(output, 3));
            for keep in [0.0, 1.0] {
                let mut found = start.clone();
                if keep == 0.0 {
                    found[output.first] = f64::NAN;
                }
                halved_product(&cpu, form, (&a, left), (&b, right), keep, (&mut found, output));
                let mut expected = start.clone();
                for row in 0..rows {
                    for column in 0..columns {
                        let sum: f64 = (0..steps)
                            .map(|step| {
                                let (i, j) =
                                    if form == Form::LeftTransposed { (step, row) } else { (row, step) };
                                let (k, l) = if form == Form::RightTransposed {
                                    (column, step)
                                } else {
                                    (step, column)
                                };
                                a[left.first + i * left.stride + j] * b[right.first + k * right.stride + l]
                            })
                            .sum();
                        let place = &mut expected[output.first + row * output.stride + column];
                        *place = f64::from(keep) * *place + 0.5 * sum;
                    }
                }
                // What lies outside of the grid is the same too.
                for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert!(
                        (found - expected).abs() < 1e-11,
                        "{form:?} {rows} x {steps} x {columns}, keep {keep}, number {index}: {found}, {expected}"
                    );
                }
            }
        }
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
fn a_linear_layer_comes_back_to_inputs_and_weights() {
    let cpu = wide();
    let (rows, inputs, outputs) = (5, 21, 19);
    // The layer reads some columns of wider inputs, and writes to some of wider outputs.
    let from = Grid::whole(rows, inputs + 4).columns(2, inputs);
    let to = Grid::whole(rows, outputs + 7).columns(5, outputs);
    let matrix = Grid::whole(outputs + 3, inputs).rows(1, outputs);
    let (input, weights) = (noise(rows * (inputs + 4), 1), noise((outputs + 3) * inputs, 2));
    let gradient = noise(rows * (outputs + 7), 3);
    let loss = |input: &Vec<f64>, weights: &Vec<f64>| {
        let mut output = vec![0.0; gradient.len()];
        halved_product(&cpu, Form::RightTransposed, (input, from), (weights, matrix), 0.0, (&mut output, to));
        dot(&output, &gradient)
    };
    let mut to_input = vec![0.0; input.len()];
    halved_product(&cpu, Form::Plain, (&gradient, to), (&weights, matrix), 0.0, (&mut to_input, from));
    let mut to_weights = vec![0.0; weights.len()];
    cpu.accumulate(Form::LeftTransposed, 0.5, (&gradient, to), (&input, from), (&mut to_weights, matrix))
        .unwrap();
    check("input", &input, &to_input, 1, |input| loss(input, &weights));
    check("weights", &weights, &to_weights, 1, |weights| loss(&input, weights));
}

#[test]
fn the_norm_comes_back_to_its_input_and_its_gain() {
    let cpu = wide();
    let (rows, width) = (35, 37);
    let (input, gain, gradient) = (noise(rows * width, 1), noise(width, 2), noise(rows * width, 3));
    let loss = |input: &Vec<f64>, gain: &Vec<f64>| {
        let mut output = vec![0.0; input.len()];
        cpu.norm(input, (gain, width), 1e-2, &mut output).unwrap();
        dot(&output, &gradient)
    };
    let before = noise(rows * width, 4);
    let (mut to_input, mut to_gain) = (before.clone(), vec![1.0; width]);
    cpu.norm_back(&input, (&gain, width), 1e-2, &gradient, &mut to_input, Some(&mut to_gain)).unwrap();
    let mut without = before.clone();
    cpu.norm_back(&input, (&gain, width), 1e-2, &gradient, &mut without, None).unwrap();
    assert_eq!(without, to_input);
    // Gradients are added to what was there.
    to_input.iter_mut().zip(before).for_each(|(to, before)| *to -= before);
    to_gain.iter_mut().for_each(|to| *to -= 1.0);
    check("input", &input, &to_input, 3, |input| loss(input, &gain));
    check("gain", &gain, &to_gain, 1, |gain| loss(&input, gain));
}

/// A sequence of more than one block beside short ones, three queries to a head of keys.
#[test]
fn attention_comes_back_to_queries_keys_and_values() {
    let cpu = wide();
    let shape = AttentionShape { heads: 6, kv_heads: 2, head: 4 };
    let starts = [0, 1, 72, 72, 80];
    let rows = noise(80 * 40, 1).iter().map(|value| 2.0 * value).collect::<Vec<_>>();
    let gradient = noise(80 * 24, 2);
    let attend = |rows: &Vec<f64>| {
        let mut output = vec![0.0; 80 * 24];
        cpu.attend(shape, 100.0, &starts, rows, &mut output).unwrap();
        output
    };
    let output = attend(&rows);
    let mut to_rows = vec![9.0; rows.len()];
    cpu.attend_back(shape, 100.0, &starts, &rows, &output, &(), &gradient, &mut to_rows).unwrap();
    check("rows", &rows, &to_rows, 7, |rows| dot(&attend(rows), &gradient));
}

/// Attention itself against the formula, with positions that count from 0 in each sequence.
#[test]
fn attention_is_what_the_formula_says() {
    let cpu = wide();
    let (shape, base) = (AttentionShape { heads: 4, kv_heads: 2, head: 6 }, 50.0_f32);
    let (starts, stride) = ([0, 70, 75], 48);
    let rows = noise(75 * stride, 5);
    let mut output = vec![0.0; 75 * 24];
    cpu.attend(shape, base, &starts, &rows, &mut output).unwrap();
    let turned = |row: usize, first: usize, position: usize| -> Vec<f64> {
        (0..6)
            .map(|index| {
                let pair = index / 2 * 2;
                let angle = position as f64 / f64::from(base).powf(pair as f64 / 6.0);
                let (a, b) = (rows[row * stride + first + pair], rows[row * stride + first + pair + 1]);
                if index == pair {
                    a * angle.cos() - b * angle.sin()
                } else {
                    a * angle.sin() + b * angle.cos()
                }
            })
            .collect()
    };
    for row in 0..75 {
        let start = if row < 70 { 0 } else { 70 };
        for head in 0..4 {
            let query = turned(row, head * 6, row - start);
            let score = |other: usize| {
                let key = turned(other, 24 + head / 2 * 6, other - start);
                (dot(&query, &key) / 6.0_f64.sqrt()).exp()
            };
            let total: f64 = (start..=row).map(score).sum();
            for index in 0..6 {
                let value = |other: usize| rows[other * stride + 36 + head / 2 * 6 + index];
                let exact: f64 = (start..=row).map(|other| score(other) / total * value(other)).sum();
                let found = output[row * 24 + head * 6 + index];
                // Angles are computed in f32, as the serving engine does.
                assert!((found - exact).abs() < 1e-4, "row {row}, head {head}: {found} is not {exact}");
            }
        }
    }
}

#[test]
fn the_gate_comes_back_to_both_halves() {
    let cpu = wide();
    let (rows, hidden) = (34, 19);
    let both: Vec<f64> = noise(rows * 2 * hidden, 1).iter().map(|value| 4.0 * value).collect();
    let gradient = noise(rows * hidden, 2);
    let mut to_both = vec![9.0; both.len()];
    cpu.gate_back(&both, hidden, &gradient, &mut to_both).unwrap();
    check("both", &both, &to_both, 1, |both| {
        let mut output = vec![0.0; gradient.len()];
        cpu.gate(both, hidden, &mut output).unwrap();
        dot(&output, &gradient)
    });
}

#[test]
fn log_probabilities_are_right_and_come_back_to_states_and_table() {
    // More rows than are done at once.
    let (rows, width, vocabulary) = (260, 5, 19);
    let (states, table) = (noise(rows * width, 1), noise(vocabulary * width, 2));
    let targets: Vec<u32> = (0..rows as u32).map(|row| row * 7 % vocabulary as u32).collect();
    let slopes = f32s(&noise(rows, 3));
    fn ask(
        (targets, width): (&[u32], usize),
        states: &Vec<f64>,
        table: &Vec<f64>,
        back: Option<LossBack<'_, Cpu<f64>>>,
    ) -> Vec<f64> {
        let vocabulary = table.len() / width;
        let head = LogProbabilities { states, width, table, vocabulary, targets, back };
        wide().log_probabilities(head).unwrap()
    }
    let sizes = (targets.as_slice(), width);
    let (mut to_states, mut to_table) = (vec![1.0; states.len()], vec![1.0; table.len()]);
    let back = LossBack { slopes: &slopes, to_states: &mut to_states, to_table: Some(&mut to_table) };
    let found = ask(sizes, &states, &table, Some(back));
    for (row, found) in found.iter().enumerate() {
        let score =
            |token: usize| dot(&states[row * width..][..width], &table[token * width..][..width]).exp();
        let exact = (score(targets[row] as usize) / (0..vocabulary).map(score).sum::<f64>()).ln();
        assert!((found - exact).abs() < 1e-12, "row {row}: {found} is not {exact}");
    }
    let mut frozen = vec![1.0; states.len()];
    let back = LossBack { slopes: &slopes, to_states: &mut frozen, to_table: None };
    assert_eq!(ask(sizes, &states, &table, Some(back)), found);
    assert_eq!(frozen, to_states);
    let loss = |states: &Vec<f64>, table: &Vec<f64>| {
        ask(sizes, states, table, None)
            .iter()
            .zip(&slopes)
            .map(|(found, slope)| found * f64::from(*slope))
            .sum()
    };
    to_states.iter_mut().chain(&mut to_table).for_each(|to| *to -= 1.0);
    check("states", &states, &to_states, 1, |states| loss(states, &table));
    check("table", &table, &to_table, 1, |table| loss(&states, table));
}

#[test]
fn embeddings_and_gathered_rows_come_back() {
    let cpu = wide();
    let (width, tokens) = (70, [3_u32, 0, 3, 1]);
    let (table, gradient) = (noise(5 * width, 1), noise(4 * width, 2));
    let mut to_table = vec![0.0; table.len()];
    cpu.embed_back(&gradient, width, &tokens, &mut to_table).unwrap();
    check("table", &table, &to_table, 1, |table| {
        let mut output = vec![0.0; gradient.len()];
        cpu.embed(table, width, &tokens, &mut output).unwrap();
        dot(&output, &gradient)
    });
    let rows = [4_u32, 0, 2, 1];
    let mut to_rows = vec![0.0; table.len()];
    cpu.scatter(&gradient, width, &rows, &mut to_rows).unwrap();
    check("rows", &table, &to_rows, 1, |from| {
        let mut output = vec![0.0; gradient.len()];
        cpu.gather(from, width, &rows, &mut output).unwrap();
        dot(&output, &gradient)
    });
}

#[test]
fn buffers_are_loaded_copied_added_and_cleared() {
    let cpu = Cpu::<f32>::new(Threads::new(2));
    let values = f32s(&noise(PART + 3, 1));
    let numbers = cpu.load(&values).unwrap();
    assert_eq!(cpu.read(&numbers).unwrap(), values);
    assert_eq!(cpu.read_floats(&cpu.load_floats(&values).unwrap()).unwrap(), values);
    let mut other = cpu.numbers(values.len()).unwrap();
    assert!(other.iter().all(|value| *value == 0.0));
    cpu.copy(&numbers, &mut other).unwrap();
    assert_eq!(other, values);
    cpu.add(&numbers, &mut other).unwrap();
    assert!(other.iter().zip(&values).all(|(other, value)| *other == 2.0 * value));
    let exact: f64 = values.iter().map(|value| 5.0 * f64::from(*value).powi(2)).sum();
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

/// Results of every operation over the same numbers, each in sizes that need several pieces of work.
fn everything<T: Number>(cpu: &Cpu<T>) -> Vec<(&'static str, Vec<f64>)> {
    let numbers = |count, seed| noise(count, seed).into_iter().map(|value| T::of(value)).collect::<Vec<T>>();
    let mut found = Vec::new();
    let mut keep = |name, values: &[T]| found.push((name, values.iter().map(|value| value.wide()).collect()));
    let (rows, width, columns) = (300, 70, 410);
    let (input, weights, both) =
        (numbers(rows * width, 1), numbers(columns * width, 2), numbers(rows * columns, 3));
    let [narrow, wide, matrix] =
        [Grid::whole(rows, width), Grid::whole(rows, columns), Grid::whole(columns, width)];
    let mut output = numbers(rows * columns, 4);
    let product = (&mut output, wide);
    cpu.multiply(Form::RightTransposed, 0.5, (&input, narrow), (&weights, matrix), 0.0, product).unwrap();
    keep("layer", &output);
    let mut output = numbers(rows * width, 5);
    let product = (&mut output, narrow);
    cpu.multiply(Form::Plain, 1.0, (&both, wide), (&weights, matrix), 1.0, product).unwrap();
    keep("inputs", &output);
    let mut output = numbers(columns * width, 6);
    cpu.accumulate(Form::LeftTransposed, 1.0, (&both, wide), (&input, narrow), (&mut output, matrix))
        .unwrap();
    keep("weights", &output);
    let (mut to_input, mut to_gain) = (numbers(rows * width, 7), numbers(width, 8));
    let (gain, gradient) = (numbers(width, 9), numbers(rows * width, 10));
    let mut normed = output_like(&input);
    cpu.norm(&input, (&gain, width), 1e-5, &mut normed).unwrap();
    keep("norm", &normed);
    cpu.norm_back(&input, (&gain, width), 1e-5, &gradient, &mut to_input, Some(&mut to_gain)).unwrap();
    keep("norm, input", &to_input);
    keep("norm, gain", &to_gain);
    let shape = AttentionShape { heads: 6, kv_heads: 2, head: 16 };
    let (starts, qkv, gradient) = ([0, 100, 260, 300], numbers(rows * 160, 11), numbers(rows * 96, 12));
    let (mut mixed, mut to_rows) = (numbers(rows * 96, 13), numbers(rows * 160, 14));
    cpu.attend(shape, 1e4, &starts, &qkv, &mut mixed).unwrap();
    cpu.attend_back(shape, 1e4, &starts, &qkv, &mixed, &(), &gradient, &mut to_rows).unwrap();
    keep("attention", &mixed);
    keep("attention, back", &to_rows);
    let (mut gated, mut to_both) = (numbers(rows * columns / 2, 15), output_like(&both));
    cpu.gate(&both, columns / 2, &mut gated).unwrap();
    cpu.gate_back(&both, columns / 2, &gated, &mut to_both).unwrap();
    keep("gate", &gated);
    keep("gate, back", &to_both);
    let targets: Vec<u32> = (0..rows as u32).collect();
    let slopes = f32s(&noise(rows, 16));
    let (mut to_states, mut to_table) = (output_like(&input), output_like(&weights));
    let back = LossBack { slopes: &slopes, to_states: &mut to_states, to_table: Some(&mut to_table) };
    let head = LogProbabilities {
        states: &input,
        width,
        table: &weights,
        vocabulary: columns,
        targets: &targets,
        back: Some(back),
    };
    let chances: Vec<T> = cpu.log_probabilities(head).unwrap().into_iter().map(T::of).collect();
    keep("log-probabilities", &chances);
    keep("log-probabilities, states", &to_states);
    keep("log-probabilities, table", &to_table);
    let tokens: Vec<u32> = (0..rows as u32).map(|row| row * row % 41).collect();
    cpu.embed_back(&input, width, &tokens, &mut to_table).unwrap();
    keep("embedding", &to_table);
    let [mut weights, mut gradient, mut first] = [17, 18, 19].map(|seed| numbers(PART + 9, seed));
    let mut second: Vec<T> = first.iter().map(|value| *value * *value).collect();
    keep("squares", &[T::of(cpu.square_sum(&[&weights, &gradient]).unwrap())]);
    let step = AdamW { rate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-3, decay: 0.1, step: 3, scale: 0.5 };
    let (gradient, first, second) = (&mut gradient, &mut first, &mut second);
    cpu.update(&step, Moments { master: None, weights: &mut weights, gradient, first, second }).unwrap();
    keep("AdamW", &weights);
    found
}

fn output_like<T: Number>(values: &[T]) -> Vec<T> {
    vec![T::default(); values.len()]
}

#[test]
fn f32_gives_the_same_bits_on_any_threads_and_instructions_and_is_near_f64() {
    let exact = everything(&wide());
    let first = everything(&Cpu::<f32>::new(Threads::new(1)));
    for ((name, exact), (_, found)) in exact.iter().zip(&first) {
        let size = (dot(exact, exact) / exact.len() as f64).sqrt();
        for (found, exact) in found.iter().zip(exact) {
            assert!((found - exact).abs() < 2e-5 * size.max(exact.abs()), "{name}: {found} is not {exact}");
        }
    }
    for instructions in Instructions::all() {
        for threads in [1, 2, 5] {
            let cpu = Cpu::<f32> { instructions, ..Cpu::new(Threads::new(threads)) };
            for ((name, found), (_, first)) in everything(&cpu).iter().zip(&first) {
                let same = found.iter().zip(first).all(|(found, first)| found.to_bits() == first.to_bits());
                assert!(same && found.len() == first.len(), "{name} on {threads} threads, {instructions:?}");
            }
        }
    }
}
