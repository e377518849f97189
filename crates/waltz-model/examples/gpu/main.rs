//! Training and play on a GPU, checked and measured:
//!
//! `gpu operations` holds every operation against the CPU's;
//! `gpu model GGUF` holds a whole model's loss, gradient and play against the CPU's;
//! `gpu encoder WEIGHTS VOCABULARY` holds an encoder's loss and gradient against the CPU's, and measures its training;
//! `gpu speed GGUF` measures tokens per second;
//! `gpu curves GGUF TEXT [STEPS]` trains on a text in bf16 on the GPU and in f32 on the CPU and prints both losses.
//!
//! The first three end with an error where something differs. Built by `cargo xtask cuda`.
#![expect(clippy::print_stdout, reason = "an example prints its figures")]

mod curves;
mod encoder;
mod model;
mod operations;
mod speed;

use std::error::Error;
use std::path::Path;

use waltz_model::Gguf;
use waltz_model::train::cuda::Cuda;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let gguf = |path: &str| Gguf::open(Path::new(path));
    match words[..] {
        ["operations"] => operations::check(&opened()?),
        ["model", path] => model::check(opened, &gguf(path)?),
        ["encoder", weights, vocabulary] => {
            encoder::check(opened, Path::new(weights), Path::new(vocabulary))
        }
        ["speed", path] => speed::measure(opened, &gguf(path)?),
        ["curves", path, text] => curves::draw(opened, &gguf(path)?, Path::new(text), 100),
        ["curves", path, text, steps] => curves::draw(opened, &gguf(path)?, Path::new(text), steps.parse()?),
        _ => Err("usage: gpu operations | model GGUF | encoder WEIGHTS VOCABULARY | speed GGUF | curves GGUF TEXT [STEPS]".into()),
    }
}

fn opened() -> Result<Cuda, waltz_model::Error> {
    Cuda::new(0)
}

/// Numbers between -1 and 1 that bf16 holds exactly, so that both devices begin with the same.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| ((draw() >> 40) as i32 % 128) as f32 / 128.0).map(|part| 2.0 * part - 1.0).collect()
}

/// How far two lists are apart, as a share of the second's length. Not a number where one holds such.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::NAN;
    }
    let wide = |value: &f32| f64::from(*value);
    let apart: f64 = found.iter().zip(expected).map(|(a, b)| (wide(a) - wide(b)).powi(2)).sum();
    let length: f64 = expected.iter().map(|value| wide(value).powi(2)).sum();
    if apart == 0.0 { 0.0 } else { (apart / length).sqrt() }
}
