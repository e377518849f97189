//! The same steps in bf16 on the GPU and in f32 on the CPU.

use std::error::Error;
use std::path::Path;

use waltz_model::train::cuda::Cuda;
use waltz_model::train::{
    Batch, Cpu, Device, Example, Keep, Lora, Network, Objective, Optimiser, Trainer, Trains, pack,
};
use waltz_model::{Gguf, LoraConfig, Threads, Tokenizer};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tokens of a piece of the text, and pieces of a step.
const LENGTH: usize = 128;
const PIECES: usize = 2;

/// Prints the loss of every step on both, for full training and for an adapter.
pub(crate) fn draw(
    open: impl Fn() -> Result<Cuda, waltz_model::Error>,
    gguf: &Gguf,
    text: &Path,
    steps: u32,
) -> Outcome<()> {
    let tokens = Tokenizer::from_gguf(gguf)?.encode(&std::fs::read_to_string(text)?);
    let examples: Vec<Example> =
        tokens.chunks_exact(LENGTH).map(|piece| Example::answer(&piece[..1], &piece[1..])).collect();
    let batches = pack(&examples, LENGTH * PIECES)?;
    for trains in [Trains::Yes, Trains::No] {
        let rounded = losses(open()?, gguf, trains, &batches, steps)?;
        let exact = losses(Cpu::<f32>::new(Threads::for_this_machine()), gguf, trains, &batches, steps)?;
        let what = if trains == Trains::Yes { "full" } else { "adapter" };
        println!("{what}: step, bf16 on the GPU, f32 on the CPU");
        for (step, (rounded, exact)) in (1..).zip(rounded.iter().zip(&exact)) {
            println!("{step} {rounded:.4} {exact:.4}");
        }
        let apart = rounded.iter().zip(&exact).map(|(rounded, exact)| (rounded - exact).abs());
        let most = apart.clone().fold(0.0, f64::max);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let tenth = rounded.len().div_ceil(10);
        let last = |losses: &[f64]| mean(&losses[losses.len() - tenth..]);
        println!(
            "{what}: apart {:.4} in the mean, {most:.4} at most; last tenth {:.4} in bf16, {:.4} in f32",
            apart.sum::<f64>() / rounded.len() as f64,
            last(&rounded),
            last(&exact)
        );
    }
    Ok(())
}

fn losses<D: Device>(
    device: D,
    gguf: &Gguf,
    trains: Trains,
    batches: &[Batch],
    steps: u32,
) -> Outcome<Vec<f64>> {
    let mut network = Network::from_gguf(device, gguf, trains)?;
    let (lora, rate) = match trains {
        Trains::No => (Some(Lora::new(network.device(), network.shape(), LoraConfig::default(), 1)?), 1e-3),
        Trains::Yes | Trains::Layers => (None, 1e-4),
    };
    let optimiser = Optimiser { rate, steps, ..Optimiser::default() };
    let mut trainer = Trainer::new(lora, None, optimiser, Keep::Most)?;
    let mut losses = Vec::new();
    for batch in batches.iter().cycle().take(steps as usize) {
        let batch = std::slice::from_ref(batch);
        losses.push(trainer.step(&mut network, batch, Objective::Likelihood)?.loss);
    }
    Ok(losses)
}
