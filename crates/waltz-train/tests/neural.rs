//! The neural judge's training as a whole, on a very small model and a small world: it learns, it repeats itself to
//! the last bit, and what it wrote serves as it was measured.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use waltz_model::train::Cpu;
use waltz_model::{
    Adapter, Gguf, LoraConfig, MatrixKind, Model, Pooling, QUESTIONS, Room, RoomSettings, Shape, Threads,
    Tokenizer, Turns,
};
use waltz_screen::linear::LinearJudge;
use waltz_train::judge::{NeuralSchedule, NeuralTrained, Row, Split, learn_neural};

use synthetic::{Sizes, Synthetic, Value};

#[expect(dead_code, reason = "tests of other crates use the rest of it")]
#[path = "../../waltz-model/src/gguf/synthetic.rs"]
mod synthetic;

/// A random model of two layers that reads bytes.
fn model(folder: &Path) -> PathBuf {
    let mut tokens: Vec<String> = Vec::new();
    let mut others = 256_u32..;
    for byte in 0..=255_u8 {
        let own = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let letter = if own { u32::from(byte) } else { others.next().unwrap() };
        tokens.push(char::from_u32(letter).unwrap().to_string());
    }
    tokens.extend(["<|im_start|>", "<|im_end|>"].map(str::to_owned));
    let mut kinds = vec![1; 256];
    kinds.extend([3, 3]);
    let vocabulary = u32::try_from(tokens.len()).unwrap();
    let file = Synthetic::new()
        .with("tokenizer.ggml.model", Value::Text("gpt2".to_owned()))
        .with("tokenizer.ggml.pre", Value::Text("smollm".to_owned()))
        .with("tokenizer.ggml.tokens", Value::Texts(tokens))
        .with("tokenizer.ggml.token_type", Value::I32s(kinds))
        .with("tokenizer.ggml.merges", Value::Texts(Vec::new()))
        .with("tokenizer.ggml.eos_token_id", Value::U32(257))
        .language_model(Sizes { layers: 2, width: 32, hidden: 64, vocabulary, context: 512 });
    let path = folder.join("tiny.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    path
}

/// Rows of a source: what is asked, how an answer begins and how it ends are each one of two things.
fn rows(source: &str, first: usize, count: usize) -> Vec<Row> {
    let row = |number: usize| {
        let (harmful, refuses, harms) =
            (number.is_multiple_of(2), number.is_multiple_of(3), number.is_multiple_of(5));
        let begin = if refuses { "nnnnnn" } else { "yyyyyy" };
        let end = if harms { "!!!!!!" } else { "......" };
        Row {
            source: source.to_owned(),
            prompt: format!("{number} {}", if harmful { "zzzzzz" } else { "aaaaaa" }),
            response: Some(format!("{begin} {end}")),
            harmful: Some(harmful),
            is_unsafe: (number % 7 != 1).then_some(harms),
            injection: Some(number.is_multiple_of(2)),
            refusal: Some(refuses),
            weight: 1.0,
            allowed: true,
            ..Row::default()
        }
    };
    (first..first + count).map(row).collect()
}

fn world() -> Split {
    Split {
        taught: rows("teaching", 0, 160),
        validation: rows("setting", 1_000, 60),
        held: rows("apart", 2_000, 60),
    }
}

fn trained(gguf: &Path, parts: &Split, seed: u64) -> NeuralTrained {
    let lora = LoraConfig { rank: 4, alpha: 8.0 };
    let schedule = NeuralSchedule {
        lora,
        epochs: 12,
        rate: 5e-3,
        polish: 4,
        polish_rate: 5e-3,
        step: 1_024,
        batch: 300,
    };
    let device = Cpu::<f32>::new(Threads::for_this_machine());
    let linear = LinearJudge::builtin().unwrap();
    learn_neural(device, &Gguf::open(gguf).unwrap(), parts, schedule, (&linear, seed), &mut |_, _, _| {})
        .unwrap()
}

#[tokio::test]
async fn it_learns_and_serves_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (path, parts) = (model(folder.path()), world());
    let trained = trained(&path, &parts, 7);
    for head in ["prompt", "response", "refusal", "injection"] {
        let of_head = |source: &str| {
            trained.measured.iter().find(|one| one.source == source && one.head == head).unwrap().measures
        };
        assert!(of_head("apart").auc > Some(0.95), "{head}: {:?}", of_head("apart"));
        assert!(of_head("setting").f1 > Some(0.9), "{head}: {:?}", of_head("setting"));
    }
    // What was measured is what a room says with the adapter's file.
    let gguf = Gguf::open(&path).unwrap();
    let shape = Shape::from_gguf(&gguf).unwrap();
    let file = folder.path().join("neural.safetensors");
    trained.adapter.write(&file, &shape).unwrap();
    let model = Arc::new(Model::from_gguf(&gguf, MatrixKind::F32).unwrap());
    let adapter = Arc::new(Adapter::open(&file, &shape, model.base()).unwrap());
    assert_eq!(adapter.note().heads.as_ref().unwrap().names, QUESTIONS);
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let turns = Turns::new(&tokenizer);
    let room = Room::start(model, Arc::clone(&tokenizer), RoomSettings::default()).unwrap();
    let mut scores = trained.scored.iter().filter(|scores| scores.source == "apart");
    for row in &parts.held {
        let alone = turns.prompt(&tokenizer, &row.prompt);
        let both = turns.answer(&tokenizer, &row.prompt, row.response.as_deref().unwrap());
        let mut logits = Vec::new();
        for read in [alone, both] {
            let with = Some(Arc::clone(&adapter));
            let pooled = room.encode(read.tokens, Pooling::Last, with, None).await.unwrap();
            logits.push(adapter.classify(&pooled).unwrap().unwrap());
        }
        let served = [
            row.harmful.map(|_| logits[0][0]),
            row.is_unsafe.map(|_| logits[1][1]),
            row.refusal.map(|_| logits[1][2]),
            row.injection.map(|_| logits[0][3]),
        ];
        for logit in served.into_iter().flatten() {
            let measured = scores.next().unwrap().neural;
            let served = 1.0 / (1.0 + (-logit).exp());
            assert!((served - measured).abs() < 1e-3, "{}: {served} served, {measured} measured", row.prompt);
        }
    }
    assert!(scores.next().is_none());
}

#[test]
fn the_same_rows_and_seed_give_the_same_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let (path, parts) = (model(folder.path()), world());
    let first = trained(&path, &parts, 7);
    let again = trained(&path, &parts, 7);
    assert_eq!((&first.adapter, &first.scored), (&again.adapter, &again.scored));
    assert_ne!(first.adapter, trained(&path, &parts, 8).adapter);
}

#[test]
fn rows_come_back_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let parts = world();
    parts.write(folder.path()).unwrap();
    assert_eq!(Split::read(folder.path()).unwrap(), parts);
    std::fs::write(folder.path().join("held.jsonl"), "{\"prompt\": 1}\n").unwrap();
    let message = Split::read(folder.path()).unwrap_err().to_string();
    assert!(message.contains("row 1 of") && message.contains("held.jsonl"), "{message}");
}
