//! Milliseconds of an embedding: `cargo bench -p waltz-model --bench embeddings`.
//! `WALTZ_MODELS` names the models folder; all cores. Goals on two cores: 8 ms for 32 tokens, 25 ms for 128.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use waltz_model::{MatrixKind, MiniLm, ModelName, Models, Threads};

const TURNS: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::var_os("WALTZ_MODELS") else {
        println!("set WALTZ_MODELS to the folder of models to run this bench");
        return Ok(());
    };
    let (models, name): (Models, ModelName) = (Models::new(folder), "minilm".parse()?);
    let (weights, vocabulary) = (models.file(&name, ".safetensors")?, models.file(&name, ".txt")?);
    let threads = Threads::for_this_machine();
    for kind in [MatrixKind::F32, MatrixKind::Q8] {
        let started = Instant::now();
        let model = MiniLm::open(&weights, &vocabulary, kind)?;
        println!("{kind:?} open       {:>8.1} ms", started.elapsed().as_secs_f64() * 1e3);
        for tokens in [16, 32, 128, 256] {
            // Each word is one token; two more stand at the ends.
            let text = "word ".repeat(tokens - 2);
            let mut times: Vec<f64> = (0..TURNS)
                .map(|_| {
                    let started = Instant::now();
                    black_box(model.embed(&threads, &text));
                    started.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{kind:?} {tokens:>3} tokens {:>8.2} ms, best {:.2} ms", times[TURNS / 2], times[0]);
        }
    }
    Ok(())
}
