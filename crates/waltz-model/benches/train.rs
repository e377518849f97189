//! Tokens per second and peak memory of training the real model: `cargo bench -p waltz-model --bench train -- full 3`,
//! or `lora`, or either with `-checkpointed` behind it. `WALTZ_MODELS` names the folder with
//! `smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`; `THREADS` how many compute. `benches/compare_train.py` runs this in turns
//! with PyTorch.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use waltz_model::train::{Cpu, Example, Keep, Lora, Network, Objective, Optimiser, Trainer, Trains, pack};
use waltz_model::{Gguf, LoraConfig, Threads};

const TEXTS: usize = 8;
const LENGTH: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mode = arguments.first().map_or("lora", String::as_str);
    let steps = arguments.get(1).and_then(|steps| steps.parse().ok()).unwrap_or(3);
    let threads = match std::env::var("THREADS").ok().and_then(|count| count.parse().ok()) {
        Some(count) => Threads::new(count),
        None => Threads::for_this_machine(),
    };
    let Some(folder) = std::env::var_os("WALTZ_MODELS").map(PathBuf::from) else {
        println!("set WALTZ_MODELS to the folder of models to run this bench");
        return Ok(());
    };
    let gguf = Gguf::open(&folder.join("smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))?;
    let trains = if mode.starts_with("full") { Trains::Yes } else { Trains::No };
    let keep = if mode.ends_with("-checkpointed") { Keep::Inputs } else { Keep::Most };
    let mut network: Network<Cpu> = Network::from_gguf(Cpu::new(threads), &gguf, trains)?;
    let lora = match trains {
        Trains::Yes | Trains::Layers => None,
        Trains::No => Some(Lora::new(network.device(), network.shape(), LoraConfig::default(), 1)?),
    };
    // A constant rate, as PyTorch has it in the comparison, so that losses can be compared too.
    let optimiser = Optimiser { warm_up: 0, lowest: 1.0, ..Optimiser::default() };
    let mut trainer = Trainer::new(lora, None, optimiser, keep)?;
    let examples: Vec<Example> =
        (0..TEXTS).map(|text| Example::answer(&tokens(1, text), &tokens(LENGTH, text)[1..])).collect();
    let batches = pack(&examples, TEXTS * LENGTH)?;
    for _ in 0..steps {
        let (started, cpu) = (Instant::now(), cpu_seconds());
        let report = trainer.step(&mut network, &batches, Objective::Likelihood)?;
        let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let rate = |seconds: f64| report.tokens as f64 / seconds;
        println!(
            "{mode} {:.1} tokens/s {:.1} tokens/cpu-s {:.0} MiB loss {:.4}",
            rate(wall),
            rate(cpu),
            peak_mib(),
            report.loss
        );
    }
    Ok(())
}

/// Tokens that look like text to the model's arithmetic; PyTorch gets the same.
fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| (1_000 + (index * 7_919 + seed * 104_729) % 40_000) as u32).collect()
}

/// Seconds that all threads of this process ran. On a shared machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}

/// The most memory that this process had.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
