//! Encoders of BERT's family: which weights they have, what files call them and in which order they are gathered.
//!
//! Both the model that serves and the one that trains are put together by [`Weights::gather`]. What a matrix, a table
//! and a vector are is the source's choice, as in `weights.rs`.

mod forward;
#[cfg(test)]
pub(crate) mod tiny;

use crate::{Error, Shape, Tensors};

pub(crate) use forward::{Serving, Table, forward};

/// The sizes of all-MiniLM-L6-v2.
pub(crate) const MINILM: Shape = Shape {
    layers: 6,
    width: 384,
    heads: 12,
    kv_heads: 12,
    head: 32,
    hidden: 1536,
    vocabulary: 30_522,
    context: 512,
    rope_base: 0.0,
    epsilon: 1e-12,
    tied: true,
};

/// Kinds of tokens: those of the first text, and those of a second one.
pub(crate) const KINDS: usize = 2;

/// All weights of an encoder: matrices, tables by row, vectors.
#[derive(Debug)]
pub(crate) struct Weights<M, T, V> {
    /// (vocabulary, width).
    pub(crate) words: T,
    /// (context, width).
    pub(crate) positions: T,
    /// (kinds, width).
    pub(crate) kinds: T,
    /// Of the sum of the three.
    pub(crate) norm: Norm<V>,
    /// The layers in order.
    pub(crate) layers: Vec<Layer<M, V>>,
}

/// Weights of one layer.
#[derive(Debug)]
pub(crate) struct Layer<M, V> {
    /// Queries, keys and values (3 x width, width).
    pub(crate) query_key_value: Linear<M, V>,
    /// Attention's output (width, width).
    pub(crate) mixed: Linear<M, V>,
    /// Of input and attention's output together.
    pub(crate) attention_norm: Norm<V>,
    /// (hidden, width).
    pub(crate) up: Linear<M, V>,
    /// (width, hidden).
    pub(crate) down: Linear<M, V>,
    /// Of the middle and what came down together.
    pub(crate) feed_norm: Norm<V>,
}

/// A linear layer.
#[derive(Debug)]
pub(crate) struct Linear<M, V> {
    /// (outputs, inputs).
    pub(crate) weights: M,
    /// (outputs).
    pub(crate) bias: V,
}

/// A layer norm.
#[derive(Debug)]
pub(crate) struct Norm<V> {
    /// Multiplied after it.
    pub(crate) gain: V,
    /// Added after it.
    pub(crate) bias: V,
}

/// Where one part of an encoder lies in a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Names of tensors that lie one after the other.
    names: Vec<String>,
    /// Rows of each; a vector has one.
    rows: usize,
    /// Numbers of a row.
    pub(crate) columns: usize,
}

impl Place {
    /// Rows of all parts together. A vector of several parts has one row for each.
    pub(crate) fn rows(&self) -> usize {
        self.names.len() * self.rows
    }

    /// One name for all parts.
    pub(crate) fn name(&self) -> String {
        self.names.join("+")
    }

    /// The numbers of a matrix or a table.
    pub(crate) fn matrix(&self, tensors: &Tensors<'_>) -> Result<Vec<f32>, Error> {
        self.read(tensors, &[self.rows, self.columns])
    }

    /// The numbers of a vector.
    pub(crate) fn vector(&self, tensors: &Tensors<'_>) -> Result<Vec<f32>, Error> {
        self.read(tensors, &[self.columns])
    }

    fn read(&self, tensors: &Tensors<'_>, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(self.rows() * self.columns);
        for name in &self.names {
            values.extend(tensors.floats(name, shape)?);
        }
        Ok(values)
    }
}

/// Hands out the parts of an encoder, in the order of [`Weights::gather`].
pub(crate) trait Source {
    /// What a matrix of a linear layer is.
    type Matrix;
    /// What a table of embeddings is.
    type Table;
    /// What a gain or a bias is.
    type Vector;

    /// The next matrix.
    fn matrix(&mut self, place: &Place) -> Result<Self::Matrix, Error>;
    /// The next table.
    fn table(&mut self, place: &Place) -> Result<Self::Table, Error>;
    /// The next vector.
    fn vector(&mut self, place: &Place) -> Result<Self::Vector, Error>;
}

impl<M, T, V> Weights<M, T, V> {
    /// Puts an encoder together.
    pub(crate) fn gather(
        shape: &Shape,
        source: &mut impl Source<Matrix = M, Table = T, Vector = V>,
    ) -> Result<Self, Error> {
        let Shape { layers, width, vocabulary, context, .. } = *shape;
        let mut table = |name: &str, rows: usize| {
            let names = vec![format!("embeddings.{name}_embeddings.weight")];
            source.table(&Place { names, rows, columns: width })
        };
        let words = table("word", vocabulary)?;
        let positions = table("position", context)?;
        let kinds = table("token_type", KINDS)?;
        let norm = Norm::gather(source, "embeddings.LayerNorm", width)?;
        let layers =
            (0..layers).map(|index| Layer::gather(shape, source, index)).collect::<Result<_, _>>()?;
        Ok(Self { words, positions, kinds, norm, layers })
    }
}

impl<M, V> Layer<M, V> {
    fn gather(
        shape: &Shape,
        source: &mut impl Source<Matrix = M, Vector = V>,
        index: usize,
    ) -> Result<Self, Error> {
        let Shape { width, hidden, .. } = *shape;
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let three = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(Self {
            query_key_value: Linear::gather(source, &three, (width, width))?,
            mixed: Linear::gather(source, &[name("attention.output.dense")], (width, width))?,
            attention_norm: Norm::gather(source, &name("attention.output.LayerNorm"), width)?,
            up: Linear::gather(source, &[name("intermediate.dense")], (hidden, width))?,
            down: Linear::gather(source, &[name("output.dense")], (width, hidden))?,
            feed_norm: Norm::gather(source, &name("output.LayerNorm"), width)?,
        })
    }
}

impl<M, V> Linear<M, V> {
    fn gather(
        source: &mut impl Source<Matrix = M, Vector = V>,
        names: &[String],
        (rows, columns): (usize, usize),
    ) -> Result<Self, Error> {
        let named = |end: &str| names.iter().map(|name| format!("{name}.{end}")).collect();
        Ok(Self {
            weights: source.matrix(&Place { names: named("weight"), rows, columns })?,
            bias: source.vector(&Place { names: named("bias"), rows: 1, columns: rows })?,
        })
    }
}

impl<V> Norm<V> {
    fn gather(source: &mut impl Source<Vector = V>, name: &str, width: usize) -> Result<Self, Error> {
        let mut vector = |end: &str| {
            source.vector(&Place { names: vec![format!("{name}.{end}")], rows: 1, columns: width })
        };
        Ok(Self { gain: vector("weight")?, bias: vector("bias")? })
    }
}

impl<W> Weights<W, W, W> {
    /// All parts, in the order of [`Self::gather`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &W> {
        let Self { words, positions, kinds, norm, layers } = self;
        let layers = layers.iter().flat_map(|layer| {
            let Layer { query_key_value, mixed, attention_norm, up, down, feed_norm } = layer;
            let [one, two, three, four] =
                [query_key_value, mixed, up, down].map(|linear| [&linear.weights, &linear.bias]);
            let [five, six] = [attention_norm, feed_norm].map(|norm| [&norm.gain, &norm.bias]);
            [one, two, five, three, four, six].into_iter().flatten()
        });
        [words, positions, kinds, &norm.gain, &norm.bias].into_iter().chain(layers)
    }

    /// The same, to be changed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut W> {
        let Self { words, positions, kinds, norm, layers } = self;
        let layers = layers.iter_mut().flat_map(|layer| {
            let Layer { query_key_value, mixed, attention_norm, up, down, feed_norm } = layer;
            let [one, two, three, four] =
                [query_key_value, mixed, up, down].map(|linear| [&mut linear.weights, &mut linear.bias]);
            let [five, six] = [attention_norm, feed_norm].map(|norm| [&mut norm.gain, &mut norm.bias]);
            [one, two, five, three, four, six].into_iter().flatten()
        });
        [words, positions, kinds, &mut norm.gain, &mut norm.bias].into_iter().chain(layers)
    }
}

/// How many tokens belong to the first text: those up to the first separator. What follows is the second text.
pub(crate) fn first_text(tokens: &[u32], separator: u32) -> usize {
    tokens.iter().position(|token| *token == separator).map_or(tokens.len(), |at| at + 1)
}
