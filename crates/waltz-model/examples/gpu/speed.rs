//! Tokens per second of training and play, and how much of the GPU's own speed that is.

use std::error::Error;
use std::time::Instant;

use waltz_model::train::cuda::Cuda;
use waltz_model::train::cuda::play::Rules;
use waltz_model::train::{
    Batch, Device, Example, Form, Grid, Keep, Lora, Network, Objective, Optimiser, Trainer, Trains, pack,
};
use waltz_model::{Gguf, LoraConfig, Shape};

use crate::noise;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds that are measured, after some that are not.
const ROUNDS: usize = 10;
const WARM_UP: usize = 3;

/// Prints a table.
pub(crate) fn measure(open: impl Fn() -> Result<Cuda, waltz_model::Error>, gguf: &Gguf) -> Outcome<()> {
    let ceiling = ceiling(&open()?)?;
    println!("a product of 8192 x 8192 x 8192 in bf16: {ceiling:.0} TFLOP/s");
    println!("| what | tokens/s | ms | of the ceiling | GB at most |");
    println!("|---|---|---|---|---|");
    let equal = |count, length| vec![length; count];
    let ragged: Vec<usize> = (0..64).map(|index| 64 + index * 6).collect();
    let cases = [
        ("full, 32 x 512", Trains::Yes, Keep::Most, equal(32, 512)),
        ("full, 32 x 512, layers computed again", Trains::Yes, Keep::Inputs, equal(32, 512)),
        ("adapter, 32 x 512", Trains::No, Keep::Most, equal(32, 512)),
        ("adapter, 32 x 512, layers computed again", Trains::No, Keep::Inputs, equal(32, 512)),
        ("full, 32 x 192", Trains::Yes, Keep::Most, equal(32, 192)),
        ("adapter, 32 x 192", Trains::No, Keep::Most, equal(32, 192)),
        ("full, 64 of 64 to 442 tokens", Trains::Yes, Keep::Most, ragged),
    ];
    for (what, trains, keep, lengths) in cases {
        train(what, open()?, gguf, (trains, keep), &lengths, ceiling)?;
    }
    play(open()?, gguf, ceiling)
}

/// Teraflops of the largest product that is worth measuring.
fn ceiling(cuda: &Cuda) -> Outcome<f64> {
    let size = 8192;
    let grid = Grid::whole(size, size);
    let (left, right) = (cuda.load(&noise(size * size, 1))?, cuda.load(&noise(size * size, 2))?);
    let mut output = cuda.numbers(size * size)?;
    let mut multiply = || -> Outcome<()> {
        cuda.multiply(Form::RightTransposed, 1.0, (&left, grid), (&right, grid), 0.0, (&mut output, grid))?;
        Ok(cuda.wait()?)
    };
    let seconds = median(&mut multiply)?;
    Ok(2.0 * (size as f64).powi(3) / seconds / 1e12)
}

/// Seconds of the middle round.
fn median(work: &mut dyn FnMut() -> Outcome<()>) -> Outcome<f64> {
    for _ in 0..WARM_UP {
        work()?;
    }
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        work()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[ROUNDS / 2])
}

fn train(
    what: &str,
    cuda: Cuda,
    gguf: &Gguf,
    (trains, keep): (Trains, Keep),
    lengths: &[usize],
    ceiling: f64,
) -> Outcome<()> {
    let mut network = Network::from_gguf(cuda, gguf, trains)?;
    let shape = *network.shape();
    let lora = match trains {
        Trains::No => Some(Lora::new(network.device(), &shape, LoraConfig::default(), 1)?),
        Trains::Yes | Trains::Layers => None,
    };
    let mut trainer = Trainer::new(lora, None, Optimiser { rate: 1e-5, ..Optimiser::default() }, keep)?;
    let batches = [batch(&shape, lengths)?];
    let tokens: usize = lengths.iter().sum();
    network.device().peak_memory()?;
    let seconds = median(&mut || {
        trainer.step(&mut network, &batches, Objective::Likelihood)?;
        Ok(network.device().wait()?)
    })?;
    // Two per weight and token forward, as many for the inputs' gradient, and for the weights' where they train.
    let passes = if trains == Trains::Yes { 3.0 } else { 2.0 };
    let pairs: usize = lengths.iter().map(|length| length * length / 2).sum();
    let attention = 4.0 * (shape.width * shape.layers * pairs) as f64;
    let work = passes * (2.0 * weights(&shape) * tokens as f64 + attention);
    row(what, tokens, seconds, work, ceiling, network.device().peak_memory()?);
    Ok(())
}

/// Texts of these lengths, of tokens by chance.
fn batch(shape: &Shape, lengths: &[usize]) -> Outcome<Batch> {
    let examples: Vec<Example> = (0..)
        .zip(lengths)
        .map(|(seed, length)| {
            let token = |value: &f32| ((value + 1.0) * 8191.0) as u32 * 3 % shape.vocabulary as u32;
            let tokens: Vec<u32> = noise(*length, seed + 3).iter().map(token).collect();
            Example::answer(&tokens[..1], &tokens[1..])
        })
        .collect();
    let batches = pack(&examples, lengths.iter().sum())?;
    Ok(batches[0].clone())
}

/// Weights that every token meets.
fn weights(shape: &Shape) -> f64 {
    let Shape { layers, width, hidden, vocabulary, kv_heads, head, .. } = *shape;
    (vocabulary * width + layers * (2 * width * width + 2 * width * kv_heads * head + 3 * width * hidden))
        as f64
}

fn play(cuda: Cuda, gguf: &Gguf, ceiling: f64) -> Outcome<()> {
    let network = Network::from_gguf(cuda, gguf, Trains::No)?;
    let shape = *network.shape();
    let lora = Lora::new(network.device(), &shape, LoraConfig::default(), 1)?;
    // A stop token that hardly ever comes, so that all sequences go on to the end.
    let rules = Rules { tokens: 128, temperature: 1.0, stop: shape.vocabulary as u32 - 1, seed: 1 };
    for (count, lora) in [(256, None), (256, Some(&lora)), (32, None), (32, Some(&lora)), (1024, None)] {
        let prompts: Vec<Vec<u32>> =
            (0..count).map(|seed| (0..64).map(|at| at * 97 + seed).collect()).collect();
        let mut tokens = 0;
        network.device().peak_memory()?;
        let seconds = median(&mut || {
            tokens = network.play(lora, &prompts, &rules)?.iter().map(|played| played.tokens.len()).sum();
            Ok(())
        })?;
        let with = if lora.is_some() { ", adapter" } else { "" };
        let work = 2.0 * weights(&shape) * (tokens + 64 * count as usize) as f64;
        let what = format!("play, {count} x 128 after prompts of 64{with}");
        row(&what, tokens, seconds, work, ceiling, network.device().peak_memory()?);
    }
    Ok(())
}

fn row(what: &str, tokens: usize, seconds: f64, work: f64, ceiling: f64, bytes: u64) {
    let (speed, share) = (tokens as f64 / seconds, 100.0 * work / seconds / 1e12 / ceiling);
    let memory = bytes as f64 / 1e9;
    println!("| {what} | {speed:.0} | {:.1} | {share:.0} % | {memory:.1} |", seconds * 1e3);
}
