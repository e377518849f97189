use proptest::prelude::*;

use super::synthetic::{Synthetic, Value};
use super::*;

/// A file with every kind of value and tensor.
fn sound() -> Synthetic {
    Synthetic::new()
        .with("general.architecture", Value::Text("llama".to_owned()))
        .with("llama.block_count", Value::U32(2))
        .with("llama.rope.freq_base", Value::F32(10_000.0))
        .with("tokenizer.ggml.add_bos_token", Value::Bool(true))
        .with("tokenizer.ggml.tokens", Value::Texts(vec!["a".to_owned(), String::new(), "Ġb".to_owned()]))
        .with("tokenizer.ggml.token_type", Value::I32s(vec![1, -3, 3]))
        .tensor("f32", &[3, 2], 0, vec![1; 24])
        .tensor("q8", &[64, 3], 8, vec![2; 6 * 34])
        .tensor("q4", &[32], 3, vec![3; 20])
        .tensor("f16", &[5], 1, vec![4; 10])
        .tensor("bf16", &[5, 1, 1, 1], 30, vec![5; 10])
}

fn open(bytes: &[u8]) -> Result<Gguf, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.gguf");
    std::fs::write(&path, bytes).unwrap();
    Gguf::open(&path)
}

/// Opens a broken file and returns why it was refused; the message must name the file.
fn refusal(bytes: &[u8]) -> String {
    let message = open(bytes).expect_err("a broken file was opened").to_string();
    assert!(message.contains("some.gguf"), "{message}");
    message
}

#[test]
fn a_sound_file_is_read_back() {
    for version in [2, 3] {
        for alignment in [32, 64] {
            let mut file = sound();
            file.version = version;
            if alignment != 32 {
                file.alignment = alignment;
                file = file.with("general.alignment", Value::U32(64));
            }
            let read = open(&file.bytes()).unwrap();
            assert_eq!(read.text("general.architecture").unwrap(), "llama");
            assert_eq!(read.unsigned("llama.block_count").unwrap(), 2);
            assert_eq!(read.float("llama.rope.freq_base").unwrap(), 10_000.0);
            assert!(read.flag("tokenizer.ggml.add_bos_token").unwrap());
            assert_eq!(read.texts("tokenizer.ggml.tokens").unwrap(), ["a", "", "Ġb"]);
            assert_eq!(read.integers("tokenizer.ggml.token_type").unwrap(), [1, -3, 3]);
            assert_eq!(read.tensors().len(), 5);
            for (name, shape, _, bytes) in &file.tensors {
                let (tensor, data) = read.tensor(name).unwrap();
                assert_eq!(data, bytes);
                assert_eq!(tensor.shape.iter().map(|size| *size as u64).collect::<Vec<_>>(), *shape);
            }
            assert_eq!(read.tensor("q4").unwrap().0.kind, TensorType::Q4_1);
            assert_eq!(read.tensor("bf16").unwrap().0.kind, TensorType::Bf16);
        }
    }
}

#[test]
fn missing_and_mistyped_values_are_named() {
    let read = open(&sound().bytes()).unwrap();
    let says = |error: Error, words: &str| {
        let message = error.to_string();
        assert!(message.contains("some.gguf") && message.contains(words), "{message}");
    };
    says(read.text("llama.block_count").unwrap_err(), "`llama.block_count` is not a text");
    says(read.unsigned("general.architecture").unwrap_err(), "not a whole number");
    says(read.float("llama.block_count").unwrap_err(), "not a finite floating-point number");
    says(read.flag("llama.block_count").unwrap_err(), "not true or false");
    says(read.texts("tokenizer.ggml.token_type").unwrap_err(), "not a list of texts");
    says(read.integers("tokenizer.ggml.tokens").unwrap_err(), "not a list of whole numbers");
    says(read.text("tokenizer.ggml.tokens").unwrap_err(), "not a text");
    says(read.text("nothing").unwrap_err(), "no value `nothing`");
    says(read.tensor("nothing").unwrap_err(), "no tensor `nothing`");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = sound().bytes();
    for length in 0..whole.len() {
        refusal(&whole[..length]);
    }
}

#[test]
fn what_is_not_gguf_is_refused() {
    assert!(refusal(b"").contains("empty"));
    assert!(refusal(b"PK\x03\x04 a wheel, not a model").contains("`GGUF`"));
    let mut file = sound();
    for version in [0, 1, 4] {
        file.version = version;
        assert!(refusal(&file.bytes()).contains("expected 2 or 3"));
    }
    file.version = 3_u32.swap_bytes();
    assert!(refusal(&file.bytes()).contains("big-endian"));
    let missing = Gguf::open(Path::new("/nowhere/some.gguf")).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/some.gguf"));
}

#[test]
fn huge_counts_in_a_small_file_are_refused_before_anything_is_allocated() {
    for (at, words) in [(8, "tensors"), (16, "values")] {
        for count in [u64::MAX, u64::MAX / 2, 1 << 40, 1000] {
            let mut bytes = sound().bytes();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            assert!(refusal(&bytes).contains(words));
        }
    }
    // The length of the first key, of a list and of a text in it.
    for needle in ["general.architecture", "a\0"] {
        let mut bytes = sound().bytes();
        let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap();
        bytes[at - 8..at].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(refusal(&bytes).contains("bytes of text"));
    }
}

#[test]
fn impossible_tensors_are_refused() {
    let with = |shape: &[u64], kind: u32| Synthetic::new().tensor("t", shape, kind, vec![0; 64]).bytes();
    assert!(refusal(&with(&[], 0)).contains("0 dimensions"));
    assert!(refusal(&with(&[1; 5], 0)).contains("5 dimensions"));
    assert!(refusal(&with(&[0], 0)).contains("impossible size"));
    assert!(refusal(&with(&[u64::MAX, 2], 0)).contains("larger than any file"));
    assert!(refusal(&with(&[1 << 40, 1 << 40], 8)).contains("larger than any file"));
    assert!(refusal(&with(&[33], 8)).contains("block of 32"));
    assert!(refusal(&with(&[1000], 0)).contains("cut short"));
    assert!(refusal(&with(&[32], 12)).contains("type Q4_K; waltz reads F32, F16, BF16, Q4_1 and Q8_0"));
    assert!(refusal(&with(&[32], 99)).contains("type number 99"));
    let twice = Synthetic::new().tensor("t", &[1], 0, vec![0; 4]).tensor("t", &[1], 0, vec![0; 4]);
    assert!(refusal(&twice.bytes()).contains("twice"));
    let named = Synthetic::new().tensor(&"n".repeat(65), &[1], 0, vec![0; 4]);
    assert!(refusal(&named.bytes()).contains("at most 64"));
}

#[test]
fn tensors_that_overlap_or_stand_askew_are_refused() {
    let file = Synthetic::new().tensor("aa", &[16], 0, vec![0; 64]).tensor("bb", &[16], 0, vec![0; 64]);
    let bytes = file.bytes();
    let name = bytes.windows(2).position(|window| window == b"bb").unwrap();
    let offset = name + 2 + 4 + 8 + 4;
    let moved = |to: u64| {
        let mut bytes = bytes.clone();
        bytes[offset..offset + 8].copy_from_slice(&to.to_le_bytes());
        refusal(&bytes)
    };
    assert!(moved(32).contains("overlap"));
    assert!(moved(0).contains("overlap"));
    assert!(moved(65).contains("no multiple of 32"));
    assert!(moved(128).contains("after the end"));
    assert!(moved(u64::MAX - 31).contains("larger than any file"));
}

#[test]
fn odd_values_are_refused() {
    for value in [Value::U32(0), Value::U32(4), Value::U32(48), Value::U32(1 << 20), Value::Bool(true)] {
        assert!(refusal(&sound().with("general.alignment", value).bytes()).contains("power of two"));
    }
    let twice = sound().with("llama.block_count", Value::U32(3));
    assert!(refusal(&twice.bytes()).contains("`llama.block_count` is there twice"));
    let mut bytes = Synthetic::new().with("k", Value::Bool(true)).bytes();
    *bytes.last_mut().unwrap() = 2;
    assert!(refusal(&bytes).contains("neither true nor false"));
    let kind = bytes.len() - 5;
    bytes[kind] = 13;
    assert!(refusal(&bytes).contains("unknown type 13"));
    let mut bytes = Synthetic::new().with("k", Value::Text("ab".to_owned())).bytes();
    *bytes.last_mut().unwrap() = 0xff;
    assert!(refusal(&bytes).contains("not UTF-8"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the damage, reading ends in a value or an error, and what it gives lies inside of the file.
    #[test]
    fn no_damage_makes_it_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        large in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
    ) {
        let mut bytes = sound().bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((at, value)) = large {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok((fields, tensors)) = read(&bytes) {
            for field in fields.values() {
                field.texts(&bytes);
                field.integers(&bytes);
                field.text(&bytes);
                field.integer(&bytes);
                field.float(&bytes);
                field.flag(&bytes);
            }
            for tensor in tensors {
                let expected = tensor.shape.iter().product::<usize>() / tensor.kind.block_elements()
                    * tensor.kind.block_bytes();
                prop_assert_eq!(bytes[tensor.range].len(), expected);
            }
        }
    }
}
