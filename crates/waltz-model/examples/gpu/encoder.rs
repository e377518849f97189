//! A whole encoder on the GPU against the same encoder on the CPU, and how fast it trains.

use std::path::Path;
use std::time::Instant;

use waltz_model::train::cuda::Cuda;
use waltz_model::train::{Batch, Cpu, Device, Encoder, EncoderTrainer, Example, Optimiser, pack};
use waltz_model::{EncoderTokenizer, Threads};

use crate::model::{Outcome, SMALL, Steps, TEXT, as_on_the_cpu, hold};

/// Tokens of a batch of full training, and steps that are measured.
const TOKENS: usize = 16_384;
const STEPS: u32 = 20;

/// Runs all checks; the first that fails ends them.
pub(crate) fn check(
    open: impl Fn() -> Result<Cuda, waltz_model::Error>,
    weights: &Path,
    vocabulary: &Path,
) -> Outcome<()> {
    let tokenizer = EncoderTokenizer::open(vocabulary)?;
    let texts = [
        tokenizer.prompt(TEXT).tokens,
        tokenizer.answer(TEXT, "No, they were striking twelve.").tokens,
        tokenizer.prompt(&TEXT.repeat(9)).tokens,
        tokenizer.answer("What is two and two?", &TEXT.repeat(9)).tokens,
    ];
    let examples = texts.map(|tokens| Example::text(&tokens));
    let batches = pack(&examples, 400)?;
    let cpu = || Cpu::<f32>::new(Threads::for_this_machine());
    let found = step(Encoder::from_files(open()?, weights, vocabulary)?, &batches)?;
    let expected = step(Encoder::from_files(cpu(), weights, vocabulary)?, &batches)?;
    as_on_the_cpu("encoder", &found, &expected, 1)?;
    let again = step(Encoder::from_files(open()?, weights, vocabulary)?, &batches)?;
    hold("the same step gives the same numbers", again == found)?;

    let mut trainer = trainer(Encoder::from_files(open()?, weights, vocabulary)?, Optimiser::default())?;
    let full = pack(&vec![examples[2].clone(); TOKENS / examples[2].len()], TOKENS)?;
    let labels = labels(&full);
    trainer.step(&full, &labels)?;
    let started = Instant::now();
    for _ in 0..STEPS {
        trainer.step(&full, &labels)?;
    }
    let tokens: usize = full.iter().map(|batch| batch.tokens().len()).sum();
    let seconds = started.elapsed().as_secs_f64();
    println!("{:.0} tokens per second in training", tokens as f64 * f64::from(STEPS) / seconds);
    let started = Instant::now();
    for _ in 0..STEPS {
        trainer.classify(&full[0])?;
    }
    let tokens = full[0].tokens().len() as f64 * f64::from(STEPS);
    println!("{:.0} tokens per second read", tokens / started.elapsed().as_secs_f64());
    Ok(())
}

fn trainer<D: Device>(encoder: Encoder<D>, optimiser: Optimiser) -> Outcome<EncoderTrainer<D>> {
    let names = ["prompt_harm", "response_harm", "refusal"].map(str::to_owned).to_vec();
    Ok(EncoderTrainer::new(encoder, names, optimiser, 1)?)
}

/// Hard ones, soft ones and unknown ones.
fn labels(batches: &[Batch]) -> Vec<Vec<f32>> {
    let label = |at: usize| [1.0, 0.0, f32::NAN, 0.3, 0.9][at % 5];
    batches.iter().map(|batch| (0..3 * batch.sequences()).map(label).collect()).collect()
}

fn step<D: Device>(encoder: Encoder<D>, batches: &[Batch]) -> Outcome<Steps> {
    let mut trainer = trainer(encoder, SMALL)?;
    let report = trainer.step(batches, &labels(batches))?;
    Ok(Steps { reports: vec![report], momenta: vec![trainer.momentum()?] })
}
