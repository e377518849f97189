//! An encoder of BERT's family over a [`Device`]: a batch forward to pooled states, and its gradients back.
//!
//! All of its weights train. Its layers are small, so that a pass keeps everything that is costly to compute again.

mod layer;
#[cfg(test)]
pub(crate) mod tests;
mod trainer;

use std::path::Path;

use self::layer::{Frame, Kept};
use super::tensor::{Tensor, Trains};
use super::{Batch, Device, Form, Grid, LayerNorm, pool};
use crate::bert::{self, MINILM, Norm, Place, Source};
use crate::generate::Pooling;
use crate::wordpiece::WordPiece;
use crate::{Error, Shape, TensorFile, Tensors};

pub use trainer::EncoderTrainer;

type Weights<D> = bert::Weights<Tensor<D>, Tensor<D>, Tensor<D>>;

/// An encoder in training.
pub struct Encoder<D: Device> {
    device: D,
    shape: Shape,
    /// SHA-256 of the file that the weights came from.
    base: String,
    /// The token that ends a text: what follows the first one is the second text.
    separator: u32,
    weights: Weights<D>,
}

/// A batch that went forward.
pub(super) struct Pass<D: Device> {
    /// The sum of the three embeddings of each token, before its norm (rows, width).
    embedded: D::Numbers,
    /// Of each layer; empty where nothing was kept.
    layers: Vec<Kept<D>>,
    /// What comes out of the last layer (rows, width).
    last: D::Numbers,
}

impl<D: Device> Encoder<D> {
    /// Loads `model.safetensors` and `vocab.txt` of all-MiniLM-L6-v2 onto a device.
    pub fn from_files(device: D, weights: &Path, vocabulary: &Path) -> Result<Self, Error> {
        let separator = WordPiece::open(vocabulary, MINILM.vocabulary)?.end();
        let file = TensorFile::open(weights)?;
        Self::from_tensors(device, MINILM, &file.tensors()?, file.sha256(), separator)
    }

    fn from_tensors(
        device: D,
        shape: Shape,
        tensors: &Tensors<'_>,
        base: String,
        separator: u32,
    ) -> Result<Self, Error> {
        let weights = Weights::gather(&shape, &mut OnDevice { device: &device, tensors })?;
        Ok(Self { device, shape, base, separator, weights })
    }

    /// The machine that computes.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The model's sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// SHA-256 of the file that the weights came from.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Takes a batch forward; what a way back needs is kept only if one is meant to follow.
    fn forward(&self, batch: &Batch, goes_back: bool) -> Result<Pass<D>, Error> {
        batch.check(&self.shape)?;
        let (device, width) = (&self.device, self.shape.width);
        let rows = batch.tokens().len();
        let embedded = self.embed(batch)?;
        let mut state = device.unset(rows * width)?;
        device.layer_norm(&embedded, normed(&self.weights.norm, &self.shape), &mut state)?;
        let ones = device.load(&vec![1.0; rows])?;
        let frame = Frame { device, shape: &self.shape, starts: batch.starts(), rows, ones: &ones };
        let mut layers = Vec::new();
        for layer in &self.weights.layers {
            let (parts, output) = frame.forward(&state, layer)?;
            if goes_back {
                layers.push(Kept { input: state, parts });
            }
            state = output;
        }
        Ok(Pass { embedded, layers, last: state })
    }

    /// Word, position and kind of every token, added up.
    fn embed(&self, batch: &Batch) -> Result<D::Numbers, Error> {
        let (device, width) = (&self.device, self.shape.width);
        let rows = batch.tokens().len();
        let bert::Weights { words, positions, kinds, .. } = &self.weights;
        let mut state = device.unset(rows * width)?;
        device.gather(&words.weights, width, batch.tokens(), &mut state)?;
        let mut placed = device.unset(rows * width)?;
        device.gather(&positions.weights, width, &places(batch), &mut placed)?;
        let all: Vec<u32> = (0..rows as u32).collect();
        device.scatter(&placed, width, &all, &mut state)?;
        let (own, table) = (self.kinds(batch)?, Grid::whole(bert::KINDS, width));
        let (left, right) = ((&own, Grid::whole(rows, bert::KINDS)), (&kinds.weights, table));
        device.multiply(Form::Plain, 1.0, left, right, 1.0, (&mut state, Grid::whole(rows, width)))?;
        Ok(state)
    }

    /// One row per token with a 1 for its kind: what follows the first separator of a sequence is its second text.
    fn kinds(&self, batch: &Batch) -> Result<D::Numbers, Error> {
        let mut kinds = Vec::with_capacity(batch.tokens().len() * bert::KINDS);
        for ends in batch.starts().windows(2) {
            let tokens = &batch.tokens()[ends[0]..ends[1]];
            let first = bert::first_text(tokens, self.separator);
            kinds.extend((0..tokens.len()).flat_map(|at| if at < first { [1.0, 0.0] } else { [0.0, 1.0] }));
        }
        self.device.load(&kinds)
    }

    /// The mean of each sequence's states (sequences, width).
    fn pooled(&self, batch: &Batch, pass: &Pass<D>) -> Result<D::Numbers, Error> {
        pool::pooled(&self.device, batch, Pooling::Mean, (&pass.last, self.shape.width))
    }

    /// The way back of [`Self::pooled`]: adds to the gradients of all weights.
    fn back_pooled(&mut self, batch: &Batch, mut pass: Pass<D>, to_pooled: &D::Numbers) -> Result<(), Error> {
        let kinds = self.kinds(batch)?;
        let Self { device, shape, weights, .. } = self;
        if pass.layers.len() != shape.layers {
            return Err(Error::training("the pass kept nothing, so that there is no way back"));
        }
        let (width, rows) = (shape.width, batch.tokens().len());
        let mut gradient = pool::back(device, batch, Pooling::Mean, (to_pooled, width))?;
        let ones = device.load(&vec![1.0; rows])?;
        let frame = Frame { device, shape, starts: batch.starts(), rows, ones: &ones };
        for layer in weights.layers.iter_mut().rev() {
            // Popped, so that what a layer kept is given back as soon as it was used.
            let Some(kept) = pass.layers.pop() else { continue };
            gradient = frame.back(kept, layer, &gradient)?;
        }
        let to_embedded = frame.norm_back(&pass.embedded, &mut weights.norm, &gradient)?;
        if let Some(table) = weights.words.gradient_mut() {
            device.embed_back(&to_embedded, width, batch.tokens(), table)?;
        }
        if let Some(table) = weights.positions.gradient_mut() {
            device.embed_back(&to_embedded, width, &places(batch), table)?;
        }
        if let Some(table) = weights.kinds.gradient_mut() {
            let (left, right) = (Grid::whole(rows, bert::KINDS), Grid::whole(rows, width));
            let output = (table, Grid::whole(bert::KINDS, width));
            device.accumulate(Form::LeftTransposed, 1.0, (&kinds, left), (&to_embedded, right), output)?;
        }
        Ok(())
    }
}

/// The place of every token in its sequence.
fn places(batch: &Batch) -> Vec<u32> {
    batch.starts().windows(2).flat_map(|ends| 0..(ends[1] - ends[0]) as u32).collect()
}

/// A norm as the device takes it.
fn normed<'a, D: Device>(norm: &'a Norm<Tensor<D>>, shape: &Shape) -> LayerNorm<'a, D> {
    let Shape { width, epsilon, .. } = *shape;
    LayerNorm { gain: &norm.gain.weights, bias: &norm.bias.weights, width, epsilon }
}

/// Puts the tensors of a safetensors file on a device.
struct OnDevice<'a, D> {
    device: &'a D,
    tensors: &'a Tensors<'a>,
}

impl<D: Device> Source for OnDevice<'_, D> {
    type Matrix = Tensor<D>;
    type Table = Tensor<D>;
    type Vector = Tensor<D>;

    fn matrix(&mut self, place: &Place) -> Result<Tensor<D>, Error> {
        let values = place.matrix(self.tensors)?;
        Tensor::new(self.device, place.name(), (place.rows(), place.columns), &values, Trains::Yes)
    }

    fn table(&mut self, place: &Place) -> Result<Tensor<D>, Error> {
        // A word that no text of a step has keeps its embedding.
        Ok(self.matrix(place)?.without_decay())
    }

    fn vector(&mut self, place: &Place) -> Result<Tensor<D>, Error> {
        let values = place.vector(self.tensors)?;
        let size = (1, place.rows() * place.columns);
        Ok(Tensor::new(self.device, place.name(), size, &values, Trains::Yes)?.without_decay())
    }
}
