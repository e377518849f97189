use super::*;
use crate::gguf::synthetic::{Synthetic, Value};
use crate::tiny::{self, Tiny, VOCABULARY};

fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| ((index * 131 + seed * 17) % VOCABULARY) as u32).collect()
}

/// Reads the tokens in chunks of the given sizes and returns every row.
fn rows(model: &Model, threads: &Threads, tokens: &[u32], chunks: &[usize]) -> Vec<f32> {
    let mut cache = Cache::new(model.cache_shape());
    let mut rows = Vec::new();
    let mut rest = tokens;
    for chunk in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*chunk).min(rest.len()));
        rows.extend(model.step(threads, &mut [Turn { tokens: now, cache: &mut cache, adapter: None }]));
        rest = later;
    }
    assert_eq!(cache.tokens(), tokens.len());
    rows
}

#[test]
fn a_prompt_read_in_pieces_gives_the_same_bits_as_read_at_once() {
    let tiny = Tiny::new();
    for kind in [MatrixKind::F32, MatrixKind::Q8] {
        let model = tiny.model(kind);
        let tokens = tokens(75, 1);
        let whole = rows(&model, &Threads::new(2), &tokens, &[75]);
        for chunks in [&[1][..], &[16], &[7, 20], &[33, 1, 1]] {
            assert_eq!(rows(&model, &Threads::new(1), &tokens, chunks), whole, "{kind:?} {chunks:?}");
        }
    }
}

#[test]
fn a_batch_gives_the_same_bits_as_each_sequence_alone() {
    let tiny = Tiny::new();
    let threads = Threads::new(2);
    for kind in [MatrixKind::F32, MatrixKind::Q8] {
        let model = tiny.model(kind);
        let sequences: Vec<Vec<u32>> =
            [5, 40, 1, 18, 33, 2, 9].iter().map(|size| tokens(*size, *size)).collect();
        let alone: Vec<Vec<f32>> =
            sequences.iter().map(|sequence| rows(&model, &threads, sequence, &[sequence.len()])).collect();
        let mut caches: Vec<Cache> = sequences.iter().map(|_| Cache::new(model.cache_shape())).collect();
        let mut found = vec![Vec::new(); sequences.len()];
        // In each step every sequence that is not done takes a different number of tokens.
        for step in 0.. {
            let mut parts = Vec::new();
            let mut turns = Vec::new();
            for (index, (sequence, cache)) in sequences.iter().zip(&mut caches).enumerate() {
                let rest = &sequence[cache.tokens()..];
                let now = &rest[..rest.len().min(1 + (index + step) % 9)];
                if !now.is_empty() {
                    parts.push((index, now.len()));
                    turns.push(Turn { tokens: now, cache, adapter: None });
                }
            }
            if turns.is_empty() {
                break;
            }
            let rows = model.step(&threads, &mut turns);
            let mut first = 0;
            for (index, count) in parts {
                found[index].extend_from_slice(&rows[first * 64..][..count * 64]);
                first += count;
            }
        }
        assert_eq!(found, alone, "{kind:?}");
        let together: Vec<f32> = alone.iter().flat_map(|rows| &rows[..64]).copied().collect();
        let logits = model.logits(&threads, &together);
        for (alone, logits) in alone.iter().zip(logits.chunks(VOCABULARY)) {
            assert_eq!(model.logits(&threads, &alone[..64]), logits, "{kind:?}");
        }
    }
}

#[test]
fn what_comes_later_changes_nothing_before_it_and_everything_after() {
    let model = Tiny::new().model(MatrixKind::F32);
    let threads = Threads::new(1);
    let mut tokens = tokens(30, 4);
    let before = rows(&model, &threads, &tokens, &[30]);
    tokens[20] = (tokens[20] + 1) % VOCABULARY as u32;
    let after = rows(&model, &threads, &tokens, &[30]);
    assert_eq!(before[..20 * 64], after[..20 * 64]);
    for row in 20..30 {
        assert_ne!(before[row * 64..][..64], after[row * 64..][..64]);
    }
}

#[test]
fn the_order_of_tokens_matters() {
    let model = Tiny::new().model(MatrixKind::F32);
    let threads = Threads::new(1);
    let last = |tokens: &[u32]| rows(&model, &threads, tokens, &[tokens.len()])[2 * 64..].to_vec();
    assert_ne!(last(&[5, 9, 7]), last(&[9, 5, 7]));
}

#[test]
fn bytes_stay_near_floats() {
    let tiny = Tiny::new();
    let threads = Threads::new(2);
    let tokens = tokens(40, 2);
    let exact = rows(&tiny.model(MatrixKind::F32), &threads, &tokens, &[40]);
    let near = rows(&tiny.model(MatrixKind::Q8), &threads, &tokens, &[40]);
    let size = exact.iter().map(|value| value * value).sum::<f32>().sqrt();
    let error = exact.iter().zip(&near).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
    // Random weights make attention jump; measured: 4 %.
    assert!(error < 0.08 * size && error > 0.0, "off by {error} of {size}");
}

/// The error that a changed file gives.
fn refusal(change: impl FnOnce(&mut Synthetic)) -> String {
    let mut file = tiny::file();
    change(&mut file);
    let tiny = Tiny::with(&file);
    let error = Model::from_gguf(&tiny.gguf(), MatrixKind::Q8).unwrap_err().to_string();
    assert!(error.contains("tiny.gguf"), "{error} names the file");
    error
}

fn set(file: &mut Synthetic, key: &str, value: Value) {
    file.fields.retain(|(name, _)| name != key);
    file.fields.push((key.to_owned(), value));
}

#[test]
fn models_that_cannot_be_computed_are_refused_with_what_was_expected() {
    let text = |text: &str| Value::Text(text.to_owned());
    let cases: [(&str, Value, &str); 10] = [
        ("general.architecture", text("gemma3"), "`gemma3`; expected `llama`"),
        ("llama.block_count", Value::U32(0), "expected 1 to 256"),
        ("llama.block_count", Value::U32(3), "no tensor `blk.2."),
        ("llama.block_count", Value::U32(1), "has 20 tensors; expected 11"),
        ("llama.embedding_length", Value::U32(4_000_000_000), "expected 1 to 65536"),
        ("llama.embedding_length", Value::U32(128), "shape [64, 263]; expected [128, 263]"),
        ("llama.attention.head_count_kv", Value::U32(3), "do not divide"),
        ("llama.attention.head_count", Value::U32(8), "multiple of 16"),
        ("llama.feed_forward_length", Value::U32(80), "multiples of 32"),
        ("llama.rope.scaling.type", text("yarn"), "`llama.rope.scaling.type`"),
    ];
    for (key, value, expected) in cases {
        let error = refusal(|file| set(file, key, value));
        assert!(error.contains(expected), "{key}: {error}");
    }
    let error = refusal(|file| file.tensors[4].3[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert!(error.contains("`blk.0.attn_v.weight` has values that are not finite"), "{error}");
    let error = refusal(|file| file.tensors[9].3[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes()));
    assert!(error.contains("not finite"), "{error}");
    let error = refusal(|file| file.tensors[2].3[8..12].copy_from_slice(&2e6_f32.to_le_bytes()));
    assert!(error.contains("numbers up to 1000000"), "{error}");
    let error = refusal(|file| file.tensors.retain(|tensor| tensor.0 != "blk.1.ffn_up.weight"));
    assert!(error.contains("no tensor `blk.1.ffn_up.weight`"), "{error}");
    let error = refusal(|file| file.fields.retain(|(key, _)| key != "llama.rope.freq_base"));
    assert!(error.contains("`llama.rope.freq_base`"), "{error}");
}
