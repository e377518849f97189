//! Tokens per second of the real model through a room: `cargo bench -p waltz-model -- [ROUNDS]`.
//! `WALTZ_MODELS` names the folder with `smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`; `THREADS` how many compute.
//! `benches/compare.py` runs this in turns with llama.cpp. Everything is counted: sampling, masks, channels.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use waltz_model::train::{Cpu, Keep, Lora, Network, Optimiser, Trainer, Trains};
use waltz_model::{
    Adapter, Ask, Constraint, Gguf, LoraConfig, Model, Models, Piece, Room, RoomSettings, Sampling, Threads,
    TokenMask, Tokenizer,
};

const PROMPT: usize = 256;
const START: usize = 16;
const WRITTEN: usize = 96;

/// Keeps the model from ending by itself: control tokens are the first 17.
struct Endless;

impl Constraint for Endless {
    fn mask(&mut self, _tokens_left: usize, mask: &mut TokenMask) {
        (0..17).for_each(|token| mask.forbid(token));
    }

    fn accept(&mut self, _token: u32) {}

    fn is_complete(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let threads = std::env::var("THREADS").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    let Some(folder) = std::env::var_os("WALTZ_MODELS").map(PathBuf::from) else {
        println!("set WALTZ_MODELS to the folder of models to run this bench");
        return Ok(());
    };
    let file = Models::new(&folder).file(&"smollm2".parse()?, ".gguf")?;
    let started = Instant::now();
    let model = Arc::new(Model::open(&file, &folder.join("smollm2"))?);
    let gguf = Gguf::open(&file.path)?;
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf)?);
    println!("open {:.3} s", started.elapsed().as_secs_f64());
    let adapters = adapters(&gguf, &model)?;
    let room =
        Room::start(model, tokenizer, RoomSettings { prefixes: 0, threads, ..RoomSettings::default() })?;
    for round in 0..rounds {
        report(&format!("prompt_{PROMPT}"), prompt(&room, round)?);
        report("decode_1", decode(&room, 1, &[None])?);
        report("decode_1_adapted", decode(&room, 1, &adapters)?);
        report("decode_16", decode(&room, 16, &[None])?);
        report("decode_16_adapted", decode(&room, 16, &adapters)?);
    }
    Ok(())
}

/// Two adapters that change nothing: what they cost does not depend on their numbers.
fn adapters(gguf: &Gguf, model: &Model) -> Result<[Option<Arc<Adapter>>; 2], Box<dyn Error>> {
    let network: Network<Cpu> = Network::from_gguf(Cpu::new(Threads::new(1)), gguf, Trains::No)?;
    let folder = tempfile::tempdir()?;
    let make = |seed| -> Result<Option<Arc<Adapter>>, Box<dyn Error>> {
        let lora = Lora::new(network.device(), network.shape(), LoraConfig::default(), seed)?;
        let trainer = Trainer::new(Some(lora), None, Optimiser::default(), Keep::Most)?;
        let path = folder.path().join("adapter.safetensors");
        trainer.adapter(&network, "none", seed)?.write(&path, network.shape())?;
        Ok(Some(Arc::new(Adapter::open(&path, model.shape(), model.base())?)))
    };
    Ok([make(1)?, make(2)?])
}

fn ask(tokens: Vec<u32>, max_tokens: usize) -> Ask {
    Ask {
        tokens,
        sampling: Sampling::greedy(),
        max_tokens,
        stop: Vec::new(),
        constraint: Some(Box::new(Endless)),
        deadline: None,
        logprobs: None,
        adapter: None,
    }
}

/// Tokens that look like text to the model's arithmetic.
fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| (1_000 + (index * 7_919 + seed * 104_729) % 40_000) as u32).collect()
}

/// Tokens and the time they took: by the clock, and on CPUs.
struct Measured {
    tokens: usize,
    wall: f64,
    cpu: f64,
}

/// A stopwatch.
struct Watch(Instant, f64);

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    fn stop(&self, tokens: usize) -> Measured {
        Measured { tokens, wall: self.0.elapsed().as_secs_f64(), cpu: cpu_seconds() - self.1 }
    }
}

/// Seconds that all threads of this process ran. On a shared machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}

fn report(name: &str, Measured { tokens, wall, cpu }: Measured) {
    let tokens = tokens as f64;
    println!("{name} {:.1} tokens/s {:.1} tokens/cpu-s", tokens / wall, tokens / cpu);
}

/// Reading a prompt, from the question to the first token of the answer.
fn prompt(room: &Room, round: usize) -> Result<Measured, Box<dyn Error>> {
    let watch = Watch::start();
    let mut answer = room.ask(ask(tokens(PROMPT, round), 1))?;
    while answer.blocking_recv().is_some() {}
    Ok(watch.stop(PROMPT))
}

/// Writing `count` answers at once, with the adapters in turn, from the first token on: prompts are read together, so that all begin in
/// one step.
fn decode(room: &Room, count: usize, adapters: &[Option<Arc<Adapter>>]) -> Result<Measured, Box<dyn Error>> {
    let answers: Vec<_> = (0..count)
        .map(|seed| {
            let adapter = adapters[seed % adapters.len()].clone();
            room.ask(Ask { adapter, ..ask(tokens(START, seed), WRITTEN) })
        })
        .collect::<Result<_, _>>()?;
    let mut watch = None;
    let mut written = 0;
    for mut answer in answers {
        if watch.is_none() {
            answer.blocking_recv();
            watch = Some(Watch::start());
        }
        while let Some(piece) = answer.blocking_recv() {
            if let Piece::End { completion_tokens, .. } = piece {
                written += completion_tokens - 1;
            }
        }
    }
    Ok(watch.unwrap_or_else(Watch::start).stop(written))
}
