//! A very small random model for tests: the architecture of the real one without the download.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::gguf::synthetic::{Synthetic, Value};
use crate::{Gguf, MatrixKind, Model, Tokenizer};

/// Tokens of the tiny vocabulary: 256 bytes, an end token, and some longer ones.
pub(crate) const VOCABULARY: usize = 263;
/// The tiny model's end token.
pub(crate) const END: u32 = 256;

/// A model file in a folder that goes away with it.
pub(crate) struct Tiny {
    folder: TempDir,
}

impl Tiny {
    /// Writes the file of a sound model.
    pub(crate) fn new() -> Self {
        Self::with(&file())
    }

    /// Writes any file.
    pub(crate) fn with(file: &Synthetic) -> Self {
        let tiny = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(tiny.path(), file.bytes()).unwrap();
        tiny
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    pub(crate) fn gguf(&self) -> Gguf {
        Gguf::open(&self.path()).unwrap()
    }

    pub(crate) fn model(&self, kind: MatrixKind) -> Model {
        Model::from_gguf(&self.gguf(), kind).unwrap()
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_gguf(&self.gguf()).unwrap()
    }
}

/// The content of a sound model file: 2 layers, 4 heads of 16, 2 of them with keys and values.
pub(crate) fn file() -> Synthetic {
    let (layers, width, kv_width, hidden) = (2, 64, 32, 96);
    let mut file = Synthetic::new()
        .with("general.architecture", Value::Text("llama".to_owned()))
        .with("llama.block_count", Value::U32(layers))
        .with("llama.context_length", Value::U32(512))
        .with("llama.embedding_length", Value::U32(width))
        .with("llama.feed_forward_length", Value::U32(hidden))
        .with("llama.attention.head_count", Value::U32(4))
        .with("llama.attention.head_count_kv", Value::U32(2))
        .with("llama.rope.freq_base", Value::F32(10_000.0))
        .with("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    file.fields.extend(crate::tokenizer::tests::synthetic(|_, _, _| ()).fields);
    let mut state = 1_u64;
    let mut add = |name: String, shape: &[u32], centre: f32, spread: f32| {
        let shape: Vec<u64> = shape.iter().map(|size| u64::from(*size)).collect();
        let count: u64 = shape.iter().product();
        let mut bytes = Vec::new();
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 40) as f32 / (1_u64 << 24) as f32;
            bytes.extend((centre + spread * (unit - 0.5)).to_le_bytes());
        }
        file.tensors.push((name, shape, 0, bytes));
    };
    add("token_embd.weight".to_owned(), &[width, VOCABULARY as u32], 0.0, 1.0);
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        add(name("attn_norm"), &[width], 1.0, 0.2);
        add(name("attn_q"), &[width, width], 0.0, 1.0);
        add(name("attn_k"), &[width, kv_width], 0.0, 1.0);
        add(name("attn_v"), &[width, kv_width], 0.0, 1.0);
        add(name("attn_output"), &[width, width], 0.0, 0.5);
        add(name("ffn_norm"), &[width], 1.0, 0.2);
        add(name("ffn_gate"), &[width, hidden], 0.0, 0.5);
        add(name("ffn_up"), &[width, hidden], 0.0, 0.5);
        add(name("ffn_down"), &[hidden, width], 0.0, 0.5);
    }
    add("output_norm.weight".to_owned(), &[width], 1.0, 0.2);
    file
}
