//! What a training step is made of, on one core: `cargo bench -p waltz-model --bench products`.
//! GFLOP/s of matrix products in the shapes of SmolLM2 with 2,048 tokens, and milliseconds of the other operations,
//! by processor time where the system tells it, so that other programs disturb little. The median and the best.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use waltz_model::Threads;
use waltz_model::train::{
    AdamW, AttentionShape, Cpu, Device, Form, Grid, LogProbabilities, LossBack, Moments, Sight,
};

const TOKENS: usize = 2048;
const WIDTH: usize = 576;
const HIDDEN: usize = 1536;
const VOCABULARY: usize = 49_152;
const TURNS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = Cpu::<f32>::new(Threads::new(1));
    let products = [
        ("queries, keys, values", Form::RightTransposed, TOKENS, WIDTH, 960),
        ("gate and up", Form::RightTransposed, TOKENS, WIDTH, 2 * HIDDEN),
        ("down", Form::RightTransposed, TOKENS, HIDDEN, WIDTH),
        ("queries, keys, values: to inputs", Form::Plain, TOKENS, 960, WIDTH),
        ("gate and up: to inputs", Form::Plain, TOKENS, 2 * HIDDEN, WIDTH),
        ("down: to inputs", Form::Plain, TOKENS, WIDTH, HIDDEN),
        ("queries, keys, values: to weights", Form::LeftTransposed, 960, TOKENS, WIDTH),
        ("gate and up: to weights", Form::LeftTransposed, 2 * HIDDEN, TOKENS, WIDTH),
        ("down: to weights", Form::LeftTransposed, WIDTH, TOKENS, HIDDEN),
        ("adapter, into rank 8", Form::RightTransposed, TOKENS, WIDTH, 8),
        ("adapter, out of rank 8", Form::RightTransposed, TOKENS, 8, 960),
        ("adapter: to weights", Form::LeftTransposed, 8, TOKENS, WIDTH),
    ];
    for (name, form, rows, steps, columns) in products {
        let left = match form {
            Form::LeftTransposed => Grid::whole(steps, rows),
            Form::Plain | Form::RightTransposed => Grid::whole(rows, steps),
        };
        let right = match form {
            Form::RightTransposed => Grid::whole(columns, steps),
            Form::Plain | Form::LeftTransposed => Grid::whole(steps, columns),
        };
        let (a, b) = (noise(rows * steps), noise(steps * columns));
        let mut output = cpu.numbers(rows * columns)?;
        let (half, best) = measure(|| {
            let output = (&mut output, Grid::whole(rows, columns));
            Ok(cpu.multiply(form, 1.0, (&a, left), (&b, right), 0.0, output)?)
        })?;
        let work = 2e-9 * (rows * steps * columns) as f64;
        println!("{name:<34} {:>7.1} GFLOP/s, best {:.1}", work / half, work / best);
    }
    head(&cpu)?;
    others(&cpu)
}

/// Log-probabilities of 256 tokens of the vocabulary, alone and with their way back.
fn head(cpu: &Cpu) -> Result<(), Box<dyn Error>> {
    let rows = 256;
    let (states, table) = (noise(rows * WIDTH), noise(VOCABULARY * WIDTH));
    let targets: Vec<u32> = (0..rows as u32).collect();
    let slopes = vec![0.1; rows];
    let (mut to_states, mut to_table) = (cpu.numbers(states.len())?, cpu.floats(table.len())?);
    for (name, products) in
        [("log-probabilities", 1), ("with states' way back", 2), ("with the table's too", 3)]
    {
        let (half, best) = measure(|| {
            let to_table = (products == 3).then_some(&mut to_table);
            let back = LossBack { slopes: &slopes, to_states: &mut to_states, to_table };
            let back = (products > 1).then_some(back);
            let (states, table, targets) = (&states, &table, &targets);
            let head =
                LogProbabilities { states, width: WIDTH, table, vocabulary: VOCABULARY, targets, back };
            black_box(cpu.log_probabilities(head)?);
            Ok(())
        })?;
        let work = 2e-9 * (products * rows * WIDTH * VOCABULARY) as f64;
        println!("{name:<34} {:>7.1} GFLOP/s, best {:.1}", work / half, work / best);
    }
    Ok(())
}

/// One layer's other operations at 8 sequences of 256 tokens, and the optimiser over 10 million weights.
fn others(cpu: &Cpu) -> Result<(), Box<dyn Error>> {
    let shape = AttentionShape { heads: 9, kv_heads: 3, head: 64 };
    let starts: Vec<usize> = (0..=8).map(|sequence| sequence * 256).collect();
    let (rows, gradient, gain) = (noise(TOKENS * 960), noise(TOKENS * WIDTH), noise(WIDTH));
    let (mut output, mut to_rows) = (cpu.numbers(TOKENS * WIDTH)?, cpu.numbers(TOKENS * 960)?);
    let sight = Sight::Past { rope_base: 1e5 };
    print("attention", measure(|| Ok(cpu.attend(shape, sight, &starts, &rows, &mut output)?))?);
    let back = || Ok(cpu.attend_back(shape, sight, &starts, &rows, &output, &(), &gradient, &mut to_rows)?);
    print("attention, back", measure(back)?);
    let (mut normed, mut to_gain) = (cpu.numbers(TOKENS * WIDTH)?, cpu.floats(WIDTH)?);
    print("norm", measure(|| Ok(cpu.norm(&output, (&gain, WIDTH), 1e-5, &mut normed)?))?);
    let back = || {
        let to_gain = Some(&mut to_gain);
        Ok(cpu.norm_back(&output, (&gain, WIDTH), 1e-5, &gradient, &mut normed, to_gain)?)
    };
    print("norm, back", measure(back)?);
    let (both, mut gated) = (noise(TOKENS * 2 * HIDDEN), cpu.numbers(TOKENS * HIDDEN)?);
    let mut to_both = cpu.numbers(both.len())?;
    print("gate", measure(|| Ok(cpu.gate(&both, HIDDEN, &mut gated)?))?);
    print("gate, back", measure(|| Ok(cpu.gate_back(&both, HIDDEN, &gated, &mut to_both)?))?);
    let mut tensors = [0; 4].map(|_| noise(10_000_000));
    let step =
        AdamW { rate: 1e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.01, step: 1, scale: 1.0 };
    let update = || {
        let [weights, gradient, first, second] = &mut tensors;
        Ok(cpu.update(&step, Moments { master: None, weights, gradient, first, second })?)
    };
    print("AdamW, 10 million weights", measure(update)?);
    let sums = || {
        black_box(cpu.square_sum(&[&both])?);
        Ok(())
    };
    print("sum of squares, 6 million", measure(sums)?);
    Ok(())
}

fn print(name: &str, (half, best): (f64, f64)) {
    println!("{name:<34} {:>7.1} ms, best {:.1}", half * 1e3, best * 1e3);
}

/// The median and the best of some turns, in seconds. A turn repeats the work until the clock, which ticks every few
/// milliseconds, is fine enough.
fn measure(mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<(f64, f64), Box<dyn Error>> {
    const TURN: f64 = 0.1;
    work()?;
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let started = (Instant::now(), processor_time());
        let (mut repeats, mut spent) = (0.0, 0.0);
        while spent < TURN {
            work()?;
            repeats += 1.0;
            spent = match (started.1, processor_time()) {
                (Some(start), Some(now)) => now - start,
                _ => started.0.elapsed().as_secs_f64(),
            };
        }
        times.push(spent / repeats);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[TURNS / 2], times[0]))
}

/// Seconds that this thread has computed, as Linux tells it.
fn processor_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
}

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919) % 2003) as f32 / 1000.0 - 1.0).collect()
}
