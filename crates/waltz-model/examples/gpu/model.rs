//! A whole model on the GPU against the same model on the CPU, and play against the model that plays.

use std::collections::HashMap;
use std::error::Error;

use waltz_model::train::cuda::Cuda;
use waltz_model::train::cuda::play::{Played, Rules};
use waltz_model::train::{
    Batch, Cpu, Device, Example, Keep, Lora, Network, Objective, Optimiser, Report, Trainer, Trains, pack,
};
use waltz_model::{Gguf, LoraConfig, Threads, Tokenizer};

const TEXT: &str = "The quick brown fox jumps over the lazy dog. It was a bright cold day in April, and the clocks were \
    striking thirteen. All happy families are alike; each unhappy family is unhappy in its own way.";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs all checks; the first that fails ends them.
pub(crate) fn check(open: impl Fn() -> Result<Cuda, waltz_model::Error>, gguf: &Gguf) -> Outcome<()> {
    let tokenizer = Tokenizer::from_gguf(gguf)?;
    let text = tokenizer.encode(TEXT);
    let examples = [Example::answer(&text[..7], &text[7..]), Example::answer(&text[..1], &text[1..30])];
    let batches = pack(&examples, 1000)?;
    let cpu = || Cpu::<f32>::new(Threads::for_this_machine());
    for trains in [Trains::No, Trains::Yes] {
        let found = two_steps(open()?, gguf, trains, Keep::Most, &batches)?;
        let expected = two_steps(cpu(), gguf, trains, Keep::Most, &batches)?;
        // Weights that were stored as Q4_1 often lie half way between two numbers of bf16, so that the first update,
        // however small, moves those by a whole number: after it, full weights are no longer the CPU's.
        let steps = if trains == Trains::Yes { 1 } else { 2 };
        for (found, expected) in found.iter().zip(&expected).take(steps) {
            let (loss, length) = (found.loss / expected.loss, found.gradient / expected.gradient);
            println!("{trains:?} step {}: loss {:.4} ({loss:.4} of the CPU's)", found.step, found.loss);
            println!("    gradient {:.3} ({length:.3} of the CPU's)", found.gradient);
            hold("the loss is the CPU's", (loss - 1.0).abs() < 0.01)?;
            hold("the gradient is as long as the CPU's", (length - 1.0).abs() < 0.03)?;
        }
        let again = two_steps(open()?, gguf, trains, Keep::Most, &batches)?;
        hold("the same step gives the same numbers", again == found)?;
        let anew = two_steps(open()?, gguf, trains, Keep::Inputs, &batches)?;
        hold("layers computed again give the same numbers", anew == found)?;
    }
    let mut network = Network::from_gguf(open()?, gguf, Trains::No)?;
    play(&network, &Network::from_gguf(cpu(), gguf, Trains::No)?, &tokenizer)?;
    play_adapted(&mut network, &tokenizer, &batches)
}

/// An adapter, or the whole model.
fn two_steps<D: Device>(
    device: D,
    gguf: &Gguf,
    trains: Trains,
    keep: Keep,
    batches: &[Batch],
) -> Outcome<Vec<Report>> {
    let mut network = Network::from_gguf(device, gguf, trains)?;
    let lora = match trains {
        Trains::No => Some(Lora::new(network.device(), network.shape(), LoraConfig::default(), 1)?),
        Trains::Yes => None,
    };
    let optimiser = Optimiser { rate: 1e-5, warm_up: 0, ..Optimiser::default() };
    let mut trainer = Trainer::new(lora, None, optimiser, keep)?;
    let mut reports = Vec::new();
    for _ in 0..2 {
        reports.push(trainer.step(&mut network, batches, Objective::Likelihood)?);
    }
    Ok(reports)
}

fn play(network: &Network<Cuda>, exact: &Network<Cpu<f32>>, tokenizer: &Tokenizer) -> Outcome<()> {
    let prompts: Vec<Vec<u32>> = [TEXT, "Once upon a time", "2 + 2 =", "The capital of France is"]
        .map(|text| tokenizer.encode(text))
        .into();
    let greedy = Rules { tokens: 40, temperature: 0.0, stop: tokenizer.end(), seed: 0 };
    let played = network.play(None, &prompts, &greedy)?;
    for (prompt, played) in prompts.iter().zip(&played) {
        println!("{} ->{}", tokenizer.decode(prompt), tokenizer.decode(&played.tokens));
    }
    as_exact_as_training("greedy play", (network, exact), &prompts, &played)?;
    hold("the likeliest tokens are the same alone", {
        let alone = network.play(None, &prompts[1..2], &greedy)?;
        alone[0].tokens[..8] == played[1].tokens[..8]
    })?;
    let stop = played[3].tokens[2];
    let short = network.play(None, &prompts[3..], &Rules { stop, ..greedy })?;
    let first = played[3].tokens.iter().position(|token| *token == stop).map(|at| at + 1);
    hold("a sequence ends with its stop token", Some(short[0].tokens.len()) == first)?;

    let drawn = Rules { temperature: 1.0, seed: 7, ..greedy };
    let sample = network.play(None, &prompts, &drawn)?;
    as_exact_as_training("drawn play", (network, exact), &prompts, &sample)?;
    hold("the same seed plays the same", network.play(None, &prompts, &drawn)? == sample)?;
    hold(
        "another seed plays otherwise",
        network.play(None, &prompts, &Rules { seed: 8, ..drawn })? != sample,
    )?;

    frequencies(network, &prompts[3], &drawn)
}

/// An adapter that was trained is played as it is weighed, and not as the base.
fn play_adapted(network: &mut Network<Cuda>, tokenizer: &Tokenizer, batches: &[Batch]) -> Outcome<()> {
    let lora = Lora::new(network.device(), network.shape(), LoraConfig::default(), 1)?;
    let optimiser = Optimiser { rate: 1e-3, warm_up: 0, ..Optimiser::default() };
    let mut trainer = Trainer::new(Some(lora), None, optimiser, Keep::Most)?;
    for _ in 0..10 {
        trainer.step(network, batches, Objective::Likelihood)?;
    }
    let prompts = vec![tokenizer.encode("The quick brown fox")];
    let rules = Rules { tokens: 40, temperature: 1.0, stop: tokenizer.end(), seed: 3 };
    let played = network.play(trainer.lora(), &prompts, &rules)?;
    println!("adapted: {}", tokenizer.decode(&played[0].tokens));
    let batch = answers(&prompts, &played)?;
    let own = apart(&told(&played), &trainer.weigh(network, &batch)?);
    let of_base = apart(&told(&played), &network.weigh(&batch, None)?);
    println!("adapted play: {own:.4} from the adapter's log-probabilities, {of_base:.4} from the base's");
    hold("an adapter is played as it is weighed", own < 0.05)?;
    hold("an adapter changes play", of_base > 10.0 * own)
}

/// Play's log-probabilities are as close to f32 as those that training computes for the same tokens.
fn as_exact_as_training(
    what: &str,
    (network, exact): (&Network<Cuda>, &Network<Cpu<f32>>),
    prompts: &[Vec<u32>],
    played: &[Played],
) -> Outcome<()> {
    let batch = answers(prompts, played)?;
    let exact = exact.weigh(&batch, None)?;
    let of_training = apart(&network.weigh(&batch, None)?, &exact);
    let of_play = apart(&told(played), &exact);
    println!("{what}: {} tokens, {of_play:.4} from f32 in the mean; training {of_training:.4}", exact.len());
    hold(what, of_play < 1.3 * of_training)
}

/// What was played, as a batch to weigh.
fn answers(prompts: &[Vec<u32>], played: &[Played]) -> Outcome<Batch> {
    let examples = prompts.iter().zip(played);
    let examples: Vec<Example> =
        examples.map(|(prompt, played)| Example::answer(prompt, &played.tokens)).collect();
    Ok(pack(&examples, 100_000)?.remove(0))
}

/// The log-probabilities that play told.
fn told(played: &[Played]) -> Vec<f64> {
    played.iter().flat_map(|played| &played.log_probabilities).map(|told| f64::from(*told)).collect()
}

/// The mean distance; not a number where one is missing.
fn apart(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::NAN;
    }
    let sum: f64 = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).sum();
    sum / found.len() as f64
}

/// First tokens of many sequences come as often as the model says.
fn frequencies(network: &Network<Cuda>, prompt: &[u32], rules: &Rules) -> Outcome<()> {
    let count = 4000;
    let played = network.play(None, &vec![prompt.to_vec(); count], &Rules { tokens: 1, ..*rules })?;
    let mut seen: HashMap<u32, (usize, f64)> = HashMap::new();
    for played in &played {
        seen.entry(played.tokens[0]).or_insert((0, f64::from(played.log_probabilities[0]).exp())).0 += 1;
    }
    let mut seen: Vec<(usize, f64)> = seen.into_values().collect();
    seen.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (times, chance) in seen.iter().take(5) {
        let (expected, spread) = (chance * count as f64, (chance * (1.0 - chance) * count as f64).sqrt());
        println!("drawn {times} times; expected {expected:.0}, give or take {spread:.0}");
        hold("tokens come as often as the model says", (*times as f64 - expected).abs() < 4.5 * spread)?;
    }
    Ok(())
}

fn hold(what: &str, holds: bool) -> Outcome<()> {
    println!("{} {what}", if holds { "ok   " } else { "WRONG" });
    if holds { Ok(()) } else { Err(format!("it does not hold: {what}").into()) }
}
