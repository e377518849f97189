//! Microseconds of a mask for the feedback agent's object: `cargo bench -p waltz-model --bench masks`.
//! `WALTZ_MODELS` names the models folder. One core.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use waltz_model::{
    Constraint, Field, FieldKind, Gguf, Models, ObjectConstraint, Schema, TokenIndex, TokenMask, Tokenizer,
};

const TURNS: usize = 400;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::var_os("WALTZ_MODELS") else {
        println!("set WALTZ_MODELS to the folder of models to run this bench");
        return Ok(());
    };
    let gguf = Gguf::open(&Models::new(folder).file(&"smollm2".parse()?, ".gguf")?.path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let started = Instant::now();
    let index = Arc::new(TokenIndex::new(&tokenizer));
    println!("index            {:>10.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let field = |name: &str, kind: FieldKind| Field { name: name.to_owned(), kind };
    let fields = [
        field("reasoning", FieldKind::Text { most: 400 }),
        field("unsafe", FieldKind::Flag),
        field("overrefuse", FieldKind::Flag),
        field("feedback", FieldKind::Text { most: 400 }),
    ];
    let schema = Arc::new(Schema::new(&fields, &index)?);
    println!("shortest object  {:>10} tokens", schema.least_tokens());
    let text = "{\"reasoning\": \"The answer names no harm \u{1f642} and is \\\"fine\\\".\", \"unsafe\": ";
    let mut constraint = ObjectConstraint::new(schema, index);
    let mut mask = TokenMask::new(tokenizer.vocabulary());
    let mut times = Vec::new();
    for token in tokenizer.encode(text) {
        let mut best = f64::INFINITY;
        for _ in 0..TURNS {
            mask.fill();
            let started = Instant::now();
            constraint.mask(200, black_box(&mut mask));
            best = best.min(started.elapsed().as_secs_f64() * 1e6);
        }
        times.push((best, mask.count()));
        constraint.accept(token);
    }
    for (name, free) in [("fixed text", false), ("free text", true)] {
        let mut some: Vec<f64> =
            times.iter().filter(|(_, allowed)| (*allowed > 1000) == free).map(|(time, _)| *time).collect();
        some.sort_by(f64::total_cmp);
        println!("{name:16} {:>10.1} us, worst {:.1} us", some[some.len() / 2], some[some.len() - 1]);
    }
    Ok(())
}
