//! Where a model's weights come from: a GGUF file, or the form that serves (`packed.rs`).
//!
//! Both hand out the same parts in the same order, so that one function puts a model together. What a matrix and
//! a vector are is the source's choice: packed for serving, tensors of a device for training.

use crate::kernels::{Matrix, MatrixKind};
use crate::quant::dequantise;
use crate::shape::Shape;
use crate::{Error, Gguf};

/// All weights of a model.
#[derive(Debug)]
pub(crate) struct Weights<M = Matrix, V = Vec<f32>> {
    /// (vocabulary, width).
    pub(crate) embedding: M,
    /// The layers in order.
    pub(crate) layers: Vec<Layer<M, V>>,
    /// Gains of the last norm (width).
    pub(crate) norm: V,
    /// (vocabulary, width), where it is not the embedding.
    pub(crate) output: Option<M>,
}

/// Weights of one layer.
#[derive(Debug)]
pub(crate) struct Layer<M = Matrix, V = Vec<f32>> {
    /// Gains of the norm before attention (width).
    pub(crate) attention_norm: V,
    /// Queries, keys and values: ((heads + 2 x kv_heads) x head, width).
    pub(crate) query_key_value: M,
    /// (width, heads x head).
    pub(crate) attention_output: M,
    /// Gains of the norm before the feed-forward part (width).
    pub(crate) feed_norm: V,
    /// Gate, then the way up: (2 x hidden, width).
    pub(crate) gate_up: M,
    /// (width, hidden).
    pub(crate) down: M,
}

/// What one matrix of a layer is made of.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Names of the projections, such as `blk.0.attn_q`, and rows of each, in order.
    pub(crate) parts: Vec<(String, usize)>,
    /// Numbers that go in.
    pub(crate) columns: usize,
}

impl Site {
    /// The matrices of a layer: queries with keys and values, attention's output, gate with up, down.
    pub(crate) fn of_layer(shape: &Shape, layer: usize) -> [Self; 4] {
        let Shape { width, hidden, .. } = *shape;
        let part = |name: &str, rows: usize| (format!("blk.{layer}.{name}"), rows);
        let keys = shape.kv_width();
        [
            Self {
                parts: vec![part("attn_q", width), part("attn_k", keys), part("attn_v", keys)],
                columns: width,
            },
            Self { parts: vec![part("attn_output", width)], columns: width },
            Self { parts: vec![part("ffn_gate", hidden), part("ffn_up", hidden)], columns: width },
            Self { parts: vec![part("ffn_down", width)], columns: hidden },
        ]
    }

    /// One name for all parts.
    pub(crate) fn name(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| name.as_str()).collect();
        names.join("+")
    }

    /// Whether it is one of a layer's, and not a table of tokens.
    pub(crate) fn is_in_layer(&self) -> bool {
        self.parts.iter().all(|(name, _)| name.starts_with("blk."))
    }

    /// Rows of all parts.
    pub(crate) fn rows(&self) -> usize {
        self.parts.iter().map(|(_, rows)| rows).sum()
    }
}

/// Hands out the parts of a model in the order in which [`Weights::gather`] asks.
pub(crate) trait Source {
    /// What it makes of a matrix.
    type Matrix;
    /// What it makes of a vector.
    type Vector;
    /// A matrix made of the rows of the named tensors.
    fn matrix(&mut self, site: &Site) -> Result<Self::Matrix, Error>;
    /// A vector.
    fn vector(&mut self, name: &str, length: usize) -> Result<Self::Vector, Error>;
}

impl<M, V> Weights<M, V> {
    /// Puts a model together.
    pub(crate) fn gather(
        shape: &Shape,
        source: &mut impl Source<Matrix = M, Vector = V>,
    ) -> Result<Self, Error> {
        let Shape { width, vocabulary, .. } = *shape;
        let table = |name: &str| Site { parts: vec![(name.to_owned(), vocabulary)], columns: width };
        let embedding = source.matrix(&table("token_embd"))?;
        let mut layers = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let [query_key_value, attention_output, gate_up, down] = Site::of_layer(shape, layer);
            layers.push(Layer {
                attention_norm: source.vector(&format!("blk.{layer}.attn_norm"), width)?,
                query_key_value: source.matrix(&query_key_value)?,
                attention_output: source.matrix(&attention_output)?,
                feed_norm: source.vector(&format!("blk.{layer}.ffn_norm"), width)?,
                gate_up: source.matrix(&gate_up)?,
                down: source.matrix(&down)?,
            });
        }
        let norm = source.vector("output_norm", width)?;
        let output = match shape.tied {
            true => None,
            false => Some(source.matrix(&table("output"))?),
        };
        Ok(Self { embedding, layers, norm, output })
    }
}

/// No trained weight is larger, and the scale of a Q8 block, an f16, holds it.
pub(crate) const LARGEST: f32 = 1e6;

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

    /// The rows of a matrix's parts, one after the other.
    pub(crate) fn rows(&mut self, site: &Site) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(site.rows() * site.columns);
        for (name, rows) in &site.parts {
            values.extend(self.tensor(name, &[site.columns, *rows])?);
        }
        Ok(values)
    }

    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Vec<f32>, Error> {
        let (info, bytes) = self.gguf.tensor(&format!("{name}.weight"))?;
        let name = &info.name;
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
    type Matrix = Matrix;
    type Vector = Vec<f32>;

    fn matrix(&mut self, site: &Site) -> Result<Matrix, Error> {
        Ok(Matrix::from_rows(self.kind, site.columns, &self.rows(site)?))
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, Error> {
        self.tensor(name, &[length])
    }
}
