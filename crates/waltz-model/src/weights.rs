//! Where a model's weights come from: a GGUF file, or the form that serves (`packed.rs`).
//!
//! Both hand out the same parts in the same order, so that one function puts a model together.

use crate::kernels::{Matrix, MatrixKind};
use crate::quant::dequantise;
use crate::shape::Shape;
use crate::{Error, Gguf};

/// All weights of a model.
#[derive(Debug)]
pub(crate) struct Weights {
    /// (vocabulary, width).
    pub(crate) embedding: Matrix,
    /// The layers in order.
    pub(crate) layers: Vec<Layer>,
    /// Gains of the last norm (width).
    pub(crate) norm: Vec<f32>,
    /// (vocabulary, width), where it is not the embedding.
    pub(crate) output: Option<Matrix>,
}

/// Weights of one layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Gains of the norm before attention (width).
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, keys and values: ((heads + 2 x kv_heads) x head, width).
    pub(crate) query_key_value: Matrix,
    /// (width, heads x head).
    pub(crate) attention_output: Matrix,
    /// Gains of the norm before the feed-forward part (width).
    pub(crate) feed_norm: Vec<f32>,
    /// Gate, then the way up: (2 x hidden, width).
    pub(crate) gate_up: Matrix,
    /// (width, hidden).
    pub(crate) down: Matrix,
}

/// Hands out the parts of a model in the order in which [`Weights::gather`] asks.
pub(crate) trait Source {
    /// A matrix made of the rows of the named tensors, (rows of each, columns).
    fn matrix(&mut self, parts: &[(String, usize)], columns: usize) -> Result<Matrix, Error>;
    /// A vector.
    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, Error>;
}

impl Weights {
    /// Puts a model together.
    pub(crate) fn gather(shape: &Shape, source: &mut dyn Source) -> Result<Self, Error> {
        let Shape { width, hidden, vocabulary, .. } = *shape;
        let (keys, values) = (shape.kv_width(), shape.kv_width());
        let embedding = source.matrix(&[("token_embd.weight".to_owned(), vocabulary)], width)?;
        let mut layers = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let attention = [(name("attn_q"), width), (name("attn_k"), keys), (name("attn_v"), values)];
            layers.push(Layer {
                attention_norm: source.vector(&name("attn_norm"), width)?,
                query_key_value: source.matrix(&attention, width)?,
                attention_output: source.matrix(&[(name("attn_output"), width)], width)?,
                feed_norm: source.vector(&name("ffn_norm"), width)?,
                gate_up: source.matrix(&[(name("ffn_gate"), hidden), (name("ffn_up"), hidden)], width)?,
                down: source.matrix(&[(name("ffn_down"), width)], hidden)?,
            });
        }
        let norm = source.vector("output_norm.weight", width)?;
        let output = match shape.tied {
            true => None,
            false => Some(source.matrix(&[("output.weight".to_owned(), vocabulary)], width)?),
        };
        Ok(Self { embedding, layers, norm, output })
    }
}

/// No trained weight is larger, and the scale of a Q8 block, an f16, holds it.
const LARGEST: f32 = 1e6;

/// Reads weights from a GGUF file.
pub(crate) struct FromGguf<'a> {
    gguf: &'a Gguf,
    kind: MatrixKind,
    read: usize,
}

impl<'a> FromGguf<'a> {
    /// Weights will be kept as `kind`.
    pub(crate) fn new(gguf: &'a Gguf, kind: MatrixKind) -> Self {
        Self { gguf, kind, read: 0 }
    }

    /// Refuses a file with tensors that were not asked for: the model is not what it seems.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let tensors = self.gguf.tensors().len();
        if self.read == tensors {
            return Ok(());
        }
        let reason =
            format!("it has {tensors} tensors; expected {} for a Llama model of its sizes", self.read);
        Err(Error::malformed(self.gguf.path(), reason))
    }

    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Vec<f32>, Error> {
        let (info, bytes) = self.gguf.tensor(name)?;
        if info.shape != expected {
            let reason = format!("tensor `{name}` has shape {:?}; expected {expected:?}", info.shape);
            return Err(Error::malformed(self.gguf.path(), reason));
        }
        let values = dequantise(info.kind, bytes);
        if !values.iter().all(|value| value.abs() <= LARGEST) {
            let reason = format!("tensor `{name}` has values that are not finite numbers up to {LARGEST}");
            return Err(Error::malformed(self.gguf.path(), reason));
        }
        self.read += 1;
        Ok(values)
    }
}

impl Source for FromGguf<'_> {
    fn matrix(&mut self, parts: &[(String, usize)], columns: usize) -> Result<Matrix, Error> {
        let mut values = Vec::new();
        for (name, rows) in parts {
            values.extend(self.tensor(name, &[columns, *rows])?);
        }
        Ok(Matrix::from_rows(self.kind, columns, &values))
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, Error> {
        self.tensor(name, &[length])
    }
}
