//! Every way back against finite differences in f64.

use super::*;

const PAST: Sight = Sight::Past { rope_base: 100.0 };

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

#[test]
fn the_layer_norm_comes_back_to_its_input_its_gain_and_its_bias() {
    let cpu = wide();
    let (rows, width) = (35, 37);
    let (input, gain, bias) = (noise(rows * width, 1), noise(width, 2), noise(width, 3));
    let gradient = noise(rows * width, 4);
    let normed = |input: &Vec<f64>, gain: &Vec<f64>, bias: &Vec<f64>| {
        let mut output = vec![f64::NAN; input.len()];
        cpu.layer_norm(input, LayerNorm { gain, bias, width, epsilon: 1e-2 }, &mut output).unwrap();
        output
    };
    // The formula, row by row.
    let found = normed(&input, &gain, &bias);
    for (row, found) in input.chunks_exact(width).zip(found.chunks_exact(width)) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
        for (index, found) in found.iter().enumerate() {
            let exact =
                (row[index] - mean) / (variance + f64::from(1e-2_f32)).sqrt() * gain[index] + bias[index];
            assert!((found - exact).abs() < 1e-12, "{found} is not {exact}");
        }
    }
    let norm = || LayerNorm { gain: &gain, bias: &bias, width, epsilon: 1e-2 };
    let (mut to_input, mut to_gain, mut to_bias) =
        (vec![9.0; input.len()], vec![1.0; width], vec![1.0; width]);
    let to_norm = Some((&mut to_gain, &mut to_bias));
    cpu.layer_norm_back(&input, norm(), &gradient, &mut to_input, to_norm).unwrap();
    let mut without = vec![9.0; input.len()];
    cpu.layer_norm_back(&input, norm(), &gradient, &mut without, None).unwrap();
    assert_eq!(without, to_input);
    // Gradients of weights are added to what was there.
    to_gain.iter_mut().chain(&mut to_bias).for_each(|to| *to -= 1.0);
    let loss =
        |input: &Vec<f64>, gain: &Vec<f64>, bias: &Vec<f64>| dot(&normed(input, gain, bias), &gradient);
    check("input", &input, &to_input, 3, |input| loss(input, &gain, &bias));
    check("gain", &gain, &to_gain, 1, |gain| loss(&input, gain, &bias));
    check("bias", &bias, &to_bias, 1, |bias| loss(&input, &gain, bias));
}

#[test]
fn gelu_comes_back_to_its_input() {
    let cpu = wide();
    let input: Vec<f64> = noise(67, 1).iter().map(|value| 5.0 * value).collect();
    let gradient = noise(67, 2);
    let mut to_input = vec![9.0; input.len()];
    cpu.gelu_back(&input, &gradient, &mut to_input).unwrap();
    check("input", &input, &to_input, 1, |input| {
        let mut output = vec![f64::NAN; input.len()];
        cpu.gelu(input, &mut output).unwrap();
        dot(&output, &gradient)
    });
}

/// Sequences of one token, of more than one block and of a few.
#[test]
fn attention_to_all_is_what_the_formula_says_and_comes_back() {
    let cpu = wide();
    let shape = AttentionShape { heads: 2, kv_heads: 2, head: 4 };
    let starts = [0, 1, 72, 80];
    let rows = noise(80 * 24, 1).iter().map(|value| 2.0 * value).collect::<Vec<_>>();
    let gradient = noise(80 * 8, 2);
    let attend = |rows: &Vec<f64>| {
        let mut output = vec![f64::NAN; 80 * 8];
        cpu.attend(shape, Sight::All, &starts, rows, &mut output).unwrap();
        output
    };
    let output = attend(&rows);
    let part = |row: usize, which: usize, head: usize| &rows[row * 24 + which * 8 + head * 4..][..4];
    for ends in starts.windows(2) {
        for (row, head) in (ends[0]..ends[1]).flat_map(|row| [(row, 0), (row, 1)]) {
            let score = |other: usize| (dot(part(row, 0, head), part(other, 1, head)) / 2.0).exp();
            let total: f64 = (ends[0]..ends[1]).map(score).sum();
            for index in 0..4 {
                let value = |other: usize| score(other) / total * part(other, 2, head)[index];
                let exact: f64 = (ends[0]..ends[1]).map(value).sum();
                let found = output[row * 8 + head * 4 + index];
                assert!((found - exact).abs() < 1e-12, "row {row}, head {head}: {found} is not {exact}");
            }
        }
    }
    let mut to_rows = vec![9.0; rows.len()];
    cpu.attend_back(shape, Sight::All, &starts, &rows, &output, &(), &gradient, &mut to_rows).unwrap();
    check("rows", &rows, &to_rows, 7, |rows| dot(&attend(rows), &gradient));
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
        cpu.attend(shape, PAST, &starts, rows, &mut output).unwrap();
        output
    };
    let output = attend(&rows);
    let mut to_rows = vec![9.0; rows.len()];
    cpu.attend_back(shape, PAST, &starts, &rows, &output, &(), &gradient, &mut to_rows).unwrap();
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
    cpu.attend(shape, Sight::Past { rope_base: base }, &starts, &rows, &mut output).unwrap();
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
        cpu.gather(table, width, &tokens, &mut output).unwrap();
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
