use serde::Deserialize;

use super::*;
use crate::real;

/// What Hugging Face's libraries give; `make_embeddings.py` made the file.
#[derive(Deserialize)]
struct Row {
    text: String,
    ids: Vec<u32>,
    /// Every eighth number.
    embedding: Vec<f32>,
}

fn open(kind: MatrixKind) -> Option<MiniLm> {
    let weights = real::pinned(real::file("minilm", "model.safetensors")?);
    let vocabulary = real::pinned(real::file("minilm", "vocab.txt")?);
    Some(MiniLm::open(&weights, &vocabulary, kind).unwrap())
}

fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("../../tests/fixtures/embeddings.json")).unwrap()
}

/// The largest difference to the original over all texts.
fn worst(model: &MiniLm, threads: &Threads) -> f32 {
    let rows = rows();
    assert_eq!(rows.len(), 50);
    let mut worst = 0.0_f32;
    for row in rows {
        assert_eq!(model.tokenizer.encode(&row.text, MOST_TOKENS), row.ids, "{:?}", row.text);
        let (embedding, read) = model.embed(threads, &row.text);
        assert_eq!(read, row.ids.len());
        assert_eq!(embedding.len(), EMBEDDING);
        let length: f32 = embedding.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5);
        for (found, exact) in embedding.iter().step_by(8).zip(&row.embedding) {
            worst = worst.max((found - exact).abs());
        }
    }
    worst
}

#[test]
fn embeddings_are_those_of_the_original() {
    let threads = Threads::new(2);
    let Some(exact) = open(MatrixKind::F32) else { return };
    let difference = worst(&exact, &threads);
    assert!(difference < 1e-4, "{difference}");
    // The same bits on any number of threads.
    let text = "The same text, the same numbers.";
    assert_eq!(exact.embed(&threads, text), exact.embed(&Threads::new(1), text));
    let Some(small) = open(MatrixKind::Q8) else { return };
    let difference = worst(&small, &threads);
    assert!(difference < 1e-2, "{difference}");
}

#[test]
fn texts_that_mean_the_same_are_near() {
    let Some(model) = open(MatrixKind::Q8) else { return };
    let threads = Threads::new(2);
    let near = |left: &str, right: &str| -> f32 {
        let (left, right) = (model.embed(&threads, left).0, model.embed(&threads, right).0);
        left.iter().zip(&right).map(|(left, right)| left * right).sum()
    };
    let same = near("How do I kill a Python process?", "What is the best way to end a running program?");
    let other = near("How do I kill a Python process?", "The weather in Paris is mild today.");
    assert!(same > other + 0.3, "{same} and {other}");
}

#[test]
fn files_of_another_model_are_refused() {
    let Some(vocabulary) = real::file("minilm", "vocab.txt").map(real::pinned) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    let weights = real::pinned(path);
    let message = MiniLm::open(&weights, &vocabulary, MatrixKind::F32).unwrap_err().to_string();
    assert!(
        message.contains("model.safetensors") && message.contains("embeddings.word_embeddings.weight"),
        "{message}"
    );
}

#[test]
fn other_bytes_than_were_pulled_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        real::pinned(path)
    };
    let (weights, vocabulary) = (file("model.safetensors"), file("vocab.txt"));
    for changed in [&weights, &vocabulary] {
        let sound = std::fs::read(&changed.path).unwrap();
        std::fs::write(&changed.path, "other bytes").unwrap();
        let error = MiniLm::open(&weights, &vocabulary, MatrixKind::Q8).unwrap_err();
        let named = error.to_string().contains(&changed.path.display().to_string());
        assert!(named && matches!(error, Error::Mismatch { .. }), "{error}");
        std::fs::write(&changed.path, sound).unwrap();
    }
    let error = MiniLm::open(&weights, &vocabulary, MatrixKind::Q8).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "the right bytes are read: {error}");
}
