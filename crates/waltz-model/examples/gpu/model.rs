//! A whole model on the GPU against the same model on the CPU, and play against the model that plays.

use std::collections::HashMap;
use std::error::Error;

use waltz_model::train::cuda::Cuda;
use waltz_model::train::cuda::play::{Played, Rules};
use waltz_model::train::{
    Batch, Cpu, Device, Example, Heads, Keep, Lora, Network, Objective, Optimiser, Report, Trainer, Trains,
    pack,
};
use waltz_model::{Gguf, LoraConfig, Pooling, Threads, Tokenizer};

/// Moves weights hardly, so that the second step is nearly the first again.
pub(crate) const SMALL: Optimiser = Optimiser {
    rate: 1e-5,
    warm_up: 0,
    steps: 1_000,
    lowest: 0.1,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    decay: 0.0,
    clip: 1.0,
};

pub(crate) const TEXT: &str = "The quick brown fox jumps over the lazy dog. It was a bright cold day in April, and the clocks were \
    striking thirteen. All happy families are alike; each unhappy family is unhappy in its own way.";

/// Tokens with a smaller chance are rare; most of a vocabulary is.
const RARE: f64 = 1e-5;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// How well gradients must agree: the cosine between the GPU's and the CPU's, for the tensor where it is lowest. After
/// an update they differ more, because AdamW moves a weight by its gradient's sign, and small ones differ in it.
const FIRST: f64 = 0.97;
const LATER: f64 = 0.9;

/// What some steps did, and the running mean of each tensor's gradient after each of them.
#[derive(PartialEq)]
pub(crate) struct Steps {
    pub(crate) reports: Vec<Report>,
    pub(crate) momenta: Vec<Vec<(String, Vec<f32>)>>,
}

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
        as_on_the_cpu(&format!("{trains:?}"), &found, &expected, steps)?;
        let again = two_steps(open()?, gguf, trains, Keep::Most, &batches)?;
        hold("the same step gives the same numbers", again == found)?;
        let anew = two_steps(open()?, gguf, trains, Keep::Inputs, &batches)?;
        hold("layers computed again give the same numbers", anew == found)?;
    }
    for pooling in [Pooling::Last, Pooling::Mean] {
        let found = labelled_step(open()?, gguf, pooling, &batches)?;
        as_on_the_cpu(
            &format!("labels, {pooling:?}"),
            &found,
            &labelled_step(cpu(), gguf, pooling, &batches)?,
            1,
        )?;
        hold(
            "the same labels give the same numbers",
            labelled_step(open()?, gguf, pooling, &batches)? == found,
        )?;
    }
    let mut network = Network::from_gguf(open()?, gguf, Trains::No)?;
    play(&network, &Network::from_gguf(cpu(), gguf, Trains::No)?, &tokenizer)?;
    play_adapted(&mut network, &tokenizer, &batches)
}

/// Loss and gradient of the first steps are the CPU's.
pub(crate) fn as_on_the_cpu(what: &str, found: &Steps, expected: &Steps, steps: usize) -> Outcome<()> {
    for step in 0..steps {
        let (own, other) = (&found.reports[step], &expected.reports[step]);
        let (loss, length) = (own.loss / other.loss, own.gradient / other.gradient);
        println!("{what} step {}: loss {:.4} ({loss:.4} of the CPU's)", own.step, own.loss);
        println!("    gradient {:.3} ({length:.3} of the CPU's)", own.gradient);
        hold("the loss is the CPU's", (loss - 1.0).abs() < 0.01)?;
        hold("the gradient is as long as the CPU's", (length - 1.0).abs() < 0.03)?;
        let tensors = found.momenta[step].iter().zip(&expected.momenta[step]);
        let cosines = tensors.map(|((name, own), (_, other))| (cosine(own, other), name));
        let Some((lowest, name)) = cosines.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Err("nothing trains".into());
        };
        println!("    every tensor's cosine is at least {lowest:.4}, the one of {name}");
        let least = if step == 0 { FIRST } else { LATER };
        hold("the gradient of every tensor points where the CPU's does", lowest > least)?;
    }
    Ok(())
}

/// 1 where both lists point the same way or both are nothing; -1, so that it is the lowest, where it cannot be said.
fn cosine(one: &[f32], two: &[f32]) -> f64 {
    let dot = |one: &[f32], two: &[f32]| -> f64 {
        one.iter().zip(two).map(|(one, two)| f64::from(*one) * f64::from(*two)).sum()
    };
    let lengths = (dot(one, one).sqrt(), dot(two, two).sqrt());
    let found = if lengths == (0.0, 0.0) { 1.0 } else { dot(one, two) / (lengths.0 * lengths.1) };
    if found.is_nan() || one.len() != two.len() { -1.0 } else { found }
}

/// An adapter, or the whole model.
fn two_steps<D: Device>(
    device: D,
    gguf: &Gguf,
    trains: Trains,
    keep: Keep,
    batches: &[Batch],
) -> Outcome<Steps> {
    let mut network = Network::from_gguf(device, gguf, trains)?;
    let lora = match trains {
        Trains::No => Some(Lora::new(network.device(), network.shape(), LoraConfig::default(), 1)?),
        Trains::Yes | Trains::Layers => None,
    };
    let mut trainer = Trainer::new(lora, None, SMALL, keep)?;
    let mut steps = Steps { reports: Vec::new(), momenta: Vec::new() };
    for _ in 0..2 {
        steps.reports.push(trainer.step(&mut network, batches, Objective::Likelihood)?);
        steps.momenta.push(trainer.momentum(&network)?);
    }
    Ok(steps)
}

/// An adapter and two heads under labels, one of which is unknown.
fn labelled_step<D: Device>(device: D, gguf: &Gguf, pooling: Pooling, batches: &[Batch]) -> Outcome<Steps> {
    let mut network = Network::from_gguf(device, gguf, Trains::No)?;
    let (device, shape) = (network.device(), network.shape());
    let lora = Lora::new(device, shape, LoraConfig::default(), 1)?;
    let heads = Heads::new(device, shape, vec!["prompt_harm".to_owned(), "refusal".to_owned()], pooling, 1)?;
    let mut trainer = Trainer::new(Some(lora), Some(heads), SMALL, Keep::Most)?;
    let of_batch = |batch: &Batch| {
        (0..2 * batch.sequences()).map(|at| if at == 2 { f32::NAN } else { (at % 2) as f32 }).collect()
    };
    let labels: Vec<Vec<f32>> = batches.iter().map(of_batch).collect();
    let report = trainer.step(&mut network, batches, Objective::Labels(&labels))?;
    Ok(Steps { reports: vec![report], momenta: vec![trainer.momentum(&network)?] })
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

/// First tokens of many sequences come as often as the model says, the likely ones and all that are rare together.
fn frequencies(network: &Network<Cuda>, prompt: &[u32], rules: &Rules) -> Outcome<()> {
    let (rounds, together) = (20, 4000);
    let mut seen: HashMap<u32, (usize, f64)> = HashMap::new();
    for round in 0..rounds {
        let rules = Rules { tokens: 1, seed: rules.seed + round, ..*rules };
        for played in network.play(None, &vec![prompt.to_vec(); together], &rules)? {
            let chance = f64::from(played.log_probabilities[0]).exp();
            seen.entry(played.tokens[0]).or_insert((0, chance)).0 += 1;
        }
    }
    let count = (rounds as usize * together) as f64;
    let as_often = |what: &str, times: usize, chance: f64| {
        let (expected, spread) = (chance * count, (chance * (1.0 - chance) * count).sqrt());
        println!("drawn {times} times; expected {expected:.0}, give or take {spread:.0}");
        hold(what, (times as f64 - expected).abs() < 4.5 * spread)
    };
    let chances = chances(network, prompt)?;
    let is_rare = |token: u32| chances[token as usize] < RARE;
    let rare = seen.iter().filter(|(token, _)| is_rare(**token)).map(|(_, (times, _))| times).sum();
    let chance_of_rare = chances.iter().filter(|chance| **chance < RARE).sum();
    let mut seen: Vec<(usize, f64)> = seen.into_values().collect();
    seen.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (times, chance) in seen.into_iter().take(5) {
        as_often("tokens come as often as the model says", times, chance)?;
    }
    as_often("rare tokens come as often as the model says", rare, chance_of_rare)
}

/// The chance of every token after a prompt.
fn chances(network: &Network<Cuda>, prompt: &[u32]) -> Outcome<Vec<f64>> {
    let vocabulary = u32::try_from(network.shape().vocabulary)?;
    let examples: Vec<Example> = (0..vocabulary).map(|token| Example::answer(prompt, &[token])).collect();
    let mut chances = Vec::new();
    for batch in pack(&examples, 50_000)? {
        chances.extend(network.weigh(&batch, None)?.into_iter().map(f64::exp));
    }
    Ok(chances)
}

pub(crate) fn hold(what: &str, holds: bool) -> Outcome<()> {
    println!("{} {what}", if holds { "ok   " } else { "WRONG" });
    if holds { Ok(()) } else { Err(format!("it does not hold: {what}").into()) }
}
