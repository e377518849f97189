//! The encoder as a classifier, made and measured:
//!
//! `encoder pack WEIGHTS VOCABULARY FOLDER` writes all-MiniLM-L6-v2 with new heads, which know nothing yet;
//! `encoder speed [TURNS]` measures the one that is part of the program, on one core.
#![expect(clippy::print_stdout, reason = "an example prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use waltz_model::train::{Cpu, Encoder, EncoderTrainer, Optimiser};
use waltz_model::{EncoderTokenizer, QUESTIONS, Threads};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["pack", weights, vocabulary, folder] => {
            pack(Path::new(weights), Path::new(vocabulary), Path::new(folder))
        }
        ["speed"] => speed(60),
        ["speed", turns] => speed(turns.parse()?),
        _ => Err("usage: encoder pack WEIGHTS VOCABULARY FOLDER | speed [TURNS]".into()),
    }
}

fn pack(weights: &Path, vocabulary: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let encoder = Encoder::from_files(Cpu::<f32>::new(Threads::for_this_machine()), weights, vocabulary)?;
    let names = QUESTIONS.map(str::to_owned).to_vec();
    let trainer = EncoderTrainer::new(encoder, names, Optimiser::default(), 1)?;
    trainer.save("none", 1)?.write(folder)?;
    Ok(())
}

fn speed(turns: usize) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let tokenizer = EncoderTokenizer::embedded()?;
    println!("vocabulary    {:>8.2} ms", started.elapsed().as_secs_f64() * 1e3);
    let started = Instant::now();
    let encoder = waltz_model::Encoder::embedded()?;
    println!("weights       {:>8.2} ms", started.elapsed().as_secs_f64() * 1e3);
    let threads = Threads::new(1);
    for tokens in [64, 128, 256] {
        // Each word is one token; two stand before them and one on each side.
        let excerpt = tokenizer.prompt(&"word ".repeat(tokens - 4));
        assert_eq!(excerpt.tokens.len(), tokens);
        let computed = on_core();
        let mut times: Vec<f64> = (0..turns)
            .map(|_| {
                let started = Instant::now();
                black_box(encoder.classify(&threads, &excerpt));
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        let computed = (on_core() - computed) / turns as f64;
        times.sort_by(f64::total_cmp);
        println!("{tokens:>3} tokens    {:>8.2} ms, {computed:.2} ms of them on the core", times[turns / 2]);
    }
    Ok(())
}

/// Milliseconds that this thread has had a core, where the system tells: less than what passes on a busy machine.
fn on_core() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|told| told.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}
