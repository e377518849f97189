//! Writes small GGUF files for tests, sound ones and broken ones.

/// A named value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

/// A tensor: name, shape, type number, bytes.
pub(crate) type Tensor = (String, Vec<u64>, u32, Vec<u8>);

/// The content of a file.
#[derive(Clone, Debug)]
pub(crate) struct Synthetic {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) fields: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

/// Sizes of a language model with heads of 16, half of them with keys and values of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) layers: u32,
    pub(crate) width: u32,
    pub(crate) hidden: u32,
    pub(crate) vocabulary: u32,
    pub(crate) context: u32,
}

impl Synthetic {
    pub(crate) fn new() -> Self {
        Self { version: 3, alignment: 32, fields: Vec::new(), tensors: Vec::new() }
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.fields.push((key.to_owned(), value));
        self
    }

    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], kind: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, bytes));
        self
    }

    /// Adds sizes and random weights, always the same ones, of a model of Llama's family.
    pub(crate) fn language_model(mut self, sizes: Sizes) -> Self {
        let Sizes { layers, width, hidden, vocabulary, context } = sizes;
        let (heads, kv_width) = (width / 16, width / 2);
        self = self
            .with("general.architecture", Value::Text("llama".to_owned()))
            .with("llama.block_count", Value::U32(layers))
            .with("llama.context_length", Value::U32(context))
            .with("llama.embedding_length", Value::U32(width))
            .with("llama.feed_forward_length", Value::U32(hidden))
            .with("llama.attention.head_count", Value::U32(heads))
            .with("llama.attention.head_count_kv", Value::U32(heads / 2))
            .with("llama.rope.freq_base", Value::F32(10_000.0))
            .with("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
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
            self.tensors.push((name, shape, 0, bytes));
        };
        add("token_embd.weight".to_owned(), &[width, vocabulary], 0.0, 1.0);
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
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.fields.len() as u64).to_le_bytes());
        for (key, value) in &self.fields {
            text(&mut out, key);
            write(&mut out, value);
        }
        let mut offset = 0;
        for (name, shape, kind, bytes) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for size in shape {
                out.extend(size.to_le_bytes());
            }
            out.extend(kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + bytes.len()).next_multiple_of(self.alignment);
        }
        for (.., bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(bytes);
        }
        out
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write(out: &mut Vec<u8>, value: &Value) {
    let list = |out: &mut Vec<u8>, kind: u32, length: usize| {
        out.extend(9_u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((length as u64).to_le_bytes());
    };
    match value {
        Value::U32(value) => {
            out.extend(4_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::F32(value) => {
            out.extend(6_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::Bool(value) => {
            out.extend(7_u32.to_le_bytes());
            out.push(u8::from(*value));
        }
        Value::Text(value) => {
            out.extend(8_u32.to_le_bytes());
            text(out, value);
        }
        Value::Texts(values) => {
            list(out, 8, values.len());
            for value in values {
                text(out, value);
            }
        }
        Value::I32s(values) => {
            list(out, 5, values.len());
            for value in values {
                out.extend(value.to_le_bytes());
            }
        }
    }
}
