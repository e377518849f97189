//! The same bits on any number of threads and with any instructions.

use super::*;

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
    let shift = numbers(width, 21);
    let norm = || LayerNorm { gain: &gain, bias: &shift, width, epsilon: 1e-5 };
    cpu.layer_norm(&input, norm(), &mut normed).unwrap();
    keep("layer norm", &normed);
    let mut to_bias = numbers(width, 20);
    cpu.layer_norm_back(&input, norm(), &gradient, &mut to_input, Some((&mut to_gain, &mut to_bias)))
        .unwrap();
    keep("layer norm, input", &to_input);
    keep("layer norm, gain", &to_gain);
    keep("layer norm, bias", &to_bias);
    let mut bent = output_like(&both);
    cpu.gelu(&both, &mut bent).unwrap();
    keep("gelu", &bent);
    let mut to_both = output_like(&both);
    cpu.gelu_back(&both, &bent, &mut to_both).unwrap();
    keep("gelu, back", &to_both);
    let shape = AttentionShape { heads: 6, kv_heads: 2, head: 16 };
    let (starts, qkv, gradient) = ([0, 100, 260, 300], numbers(rows * 160, 11), numbers(rows * 96, 12));
    let (mut mixed, mut to_rows) = (numbers(rows * 96, 13), numbers(rows * 160, 14));
    for sight in [Sight::Past { rope_base: 1e4 }, Sight::All] {
        cpu.attend(shape, sight, &starts, &qkv, &mut mixed).unwrap();
        cpu.attend_back(shape, sight, &starts, &qkv, &mixed, &(), &gradient, &mut to_rows).unwrap();
        keep("attention", &mixed);
        keep("attention, back", &to_rows);
    }
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
