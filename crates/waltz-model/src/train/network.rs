//! The Llama network over a [`Device`]: a batch forward to log-probabilities or pooled states, and its gradients back.
//!
//! Written once for every device. A pass keeps of each layer what its way back cannot cheaply make again: norms and
//! gates are computed anew, and with [`Keep::Inputs`] the whole layer is (activation checkpointing).

mod layer;

use super::lora::Lora;
use super::tensor::{Tensor, Trains};
use super::{Batch, Device, LogProbabilities, LossBack, pool};
use crate::generate::Pooling;
use crate::kernels::MatrixKind;
use crate::weights::{FromGguf, Layer, Site, Source, Weights};
use crate::{Error, Gguf, Shape};
use layer::{Frame, Kept};

/// A model in training, or the frozen base of adapters in training.
pub struct Network<D: Device> {
    device: D,
    shape: Shape,
    /// SHA-256 of the file that the weights came from.
    base: String,
    weights: Weights<Tensor<D>, Tensor<D>>,
}

/// What a pass keeps for the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: there is no way back.
    Nothing,
    /// Each layer's input alone; the way back computes the layer again. Least memory, a third more work.
    Inputs,
    /// What is costly to compute.
    Most,
}

/// A batch that went forward.
pub struct Pass<D: Device> {
    /// Of each layer; empty where nothing was kept.
    layers: Vec<Kept<D>>,
    /// What comes out of the last layer, before the last norm (rows, width).
    last: D::Numbers,
}

impl<D: Device> Network<D> {
    /// Loads the weights of a GGUF file onto a device.
    pub fn from_gguf(device: D, gguf: &Gguf, trains: Trains) -> Result<Self, Error> {
        let shape = Shape::from_gguf(gguf)?;
        let mut source = OnDevice { device: &device, trains, gguf: FromGguf::new(gguf, MatrixKind::F32) };
        let weights = Weights::gather(&shape, &mut source)?;
        source.gguf.finish()?;
        Ok(Self { shape, base: gguf.sha256(), weights, device })
    }

    /// The machine that computes.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The model's sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its weights, as they lie on the machine.
    #[cfg(feature = "cuda")]
    pub(super) fn weights(&self) -> &Weights<Tensor<D>, Tensor<D>> {
        &self.weights
    }

    /// Whether its own weights train.
    pub(super) fn trains(&self) -> bool {
        self.weights.layers.iter().any(|layer| layer.down.gradient().is_some())
    }

    /// The machine, for another network.
    pub fn into_device(self) -> D {
        self.device
    }

    /// The matrices of each layer, in the order of [`Site::of_layer`], in full precision.
    pub(super) fn matrices(&self, layer: usize) -> Result<[Vec<f32>; 4], Error> {
        let Layer { query_key_value, attention_output, gate_up, down, .. } = &self.weights.layers[layer];
        let read = |tensor: &Tensor<D>| tensor.values(&self.device);
        Ok([read(query_key_value)?, read(attention_output)?, read(gate_up)?, read(down)?])
    }

    /// SHA-256 of the file that the weights came from.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Takes a batch forward, with an adapter or without.
    pub fn forward(&self, batch: &Batch, lora: Option<&Lora<D>>, keep: Keep) -> Result<Pass<D>, Error> {
        batch.check(&self.shape)?;
        let frame = self.frame(batch);
        let mut state = self.device.unset(frame.rows * self.shape.width)?;
        self.device.gather(&self.weights.embedding.weights, self.shape.width, batch.tokens(), &mut state)?;
        let mut layers = Vec::with_capacity(self.shape.layers);
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let (parts, output) = frame.forward(&state, layer, lora.map(|lora| &lora.layers[index]))?;
            match keep {
                Keep::Nothing => {}
                Keep::Inputs => layers.push(Kept { input: state, parts: None }),
                Keep::Most => layers.push(Kept { input: state, parts: Some(parts) }),
            }
            state = output;
        }
        Ok(Pass { layers, last: state })
    }

    /// The log-probability of each target of a batch.
    pub fn log_probabilities(&self, batch: &Batch, pass: &Pass<D>) -> Result<Vec<f64>, Error> {
        if batch.targets().is_empty() {
            return Ok(Vec::new());
        }
        let Weights { embedding, norm, output, .. } = &self.weights;
        let (_, states) = self.states(batch, pass, norm)?;
        self.device.log_probabilities(LogProbabilities {
            states: &states,
            width: self.shape.width,
            table: &output.as_ref().unwrap_or(embedding).weights,
            vocabulary: self.shape.vocabulary,
            targets: batch.targets(),
            back: None,
        })
    }

    /// The log-probability of each target, with an adapter or without, and no way back.
    pub fn weigh(&self, batch: &Batch, lora: Option<&Lora<D>>) -> Result<Vec<f64>, Error> {
        self.log_probabilities(batch, &self.forward(batch, lora, Keep::Nothing)?)
    }

    /// The way back of a loss over log-probabilities: `slopes` is its derivative by each. Adds to the gradients of
    /// what trains and returns the log-probabilities.
    pub fn back(
        &mut self,
        batch: &Batch,
        lora: Option<&mut Lora<D>>,
        pass: Pass<D>,
        slopes: &[f32],
    ) -> Result<Vec<f64>, Error> {
        if slopes.len() != batch.targets().len() {
            let (found, expected) = (slopes.len(), batch.targets().len());
            return Err(Error::training(format!("{found} slopes for {expected} targets")));
        }
        if slopes.is_empty() {
            return Ok(Vec::new());
        }
        let (gathered, states) = self.states(batch, &pass, &self.weights.norm)?;
        let Self { device, shape, weights, .. } = &mut *self;
        let Weights { embedding, norm, output, .. } = weights;
        let width = shape.width;
        let mut to_states = device.numbers(slopes.len() * width)?;
        let (table, to_table) = output.as_mut().unwrap_or(embedding).split();
        let found = device.log_probabilities(LogProbabilities {
            states: &states,
            width,
            table,
            vocabulary: shape.vocabulary,
            targets: batch.targets(),
            back: Some(LossBack { slopes, to_states: &mut to_states, to_table }),
        })?;
        let mut to_gathered = device.numbers(slopes.len() * width)?;
        let (gain, to_gain) = norm.split();
        device.norm_back(&gathered, (gain, width), shape.epsilon, &to_states, &mut to_gathered, to_gain)?;
        let mut gradient = device.numbers(batch.tokens().len() * width)?;
        device.scatter(&to_gathered, width, batch.rows(), &mut gradient)?;
        self.back_layers(batch, lora, pass, gradient)?;
        Ok(found)
    }

    /// One row per sequence (sequences, width): the last token's state after the last norm, or the mean of all.
    pub(super) fn pooled(
        &self,
        batch: &Batch,
        pass: &Pass<D>,
        pooling: Pooling,
    ) -> Result<D::Numbers, Error> {
        let (rows, width) = (batch.tokens().len(), self.shape.width);
        let mut normed = self.device.unset(rows * width)?;
        let gain = (&self.weights.norm.weights, width);
        self.device.norm(&pass.last, gain, self.shape.epsilon, &mut normed)?;
        pool::pooled(&self.device, batch, pooling, (&normed, width))
    }

    /// The way back of [`Self::pooled`].
    pub(super) fn back_pooled(
        &mut self,
        batch: &Batch,
        lora: Option<&mut Lora<D>>,
        pass: Pass<D>,
        (pooling, to_pooled): (Pooling, &D::Numbers),
    ) -> Result<(), Error> {
        let (rows, width) = (batch.tokens().len(), self.shape.width);
        let Self { device, shape, weights, .. } = &mut *self;
        let to_normed = pool::back(device, batch, pooling, (to_pooled, width))?;
        let mut gradient = device.numbers(rows * width)?;
        let (gain, to_gain) = weights.norm.split();
        device.norm_back(&pass.last, (gain, width), shape.epsilon, &to_normed, &mut gradient, to_gain)?;
        self.back_layers(batch, lora, pass, gradient)
    }

    /// From the gradient of what came out of the last layer to everything before it.
    fn back_layers(
        &mut self,
        batch: &Batch,
        mut lora: Option<&mut Lora<D>>,
        mut pass: Pass<D>,
        mut gradient: D::Numbers,
    ) -> Result<(), Error> {
        let Self { device, shape, weights, .. } = self;
        if pass.layers.len() != shape.layers {
            return Err(Error::training("the pass kept nothing, so that there is no way back"));
        }
        let frame = Frame { device, shape, starts: batch.starts(), rows: batch.tokens().len() };
        for (index, layer) in weights.layers.iter_mut().enumerate().rev() {
            // Popped, so that what a layer kept is given back as soon as it was used.
            let Some(Kept { input, parts }) = pass.layers.pop() else { continue };
            let pairs = lora.as_mut().map(|lora| &mut lora.layers[index]);
            let parts = match parts {
                Some(parts) => parts,
                None => frame.forward(&input, layer, pairs.as_deref())?.0,
            };
            frame.back(&input, parts, layer, pairs, &mut gradient)?;
        }
        match weights.embedding.gradient_mut() {
            Some(table) => device.embed_back(&gradient, shape.width, batch.tokens(), table),
            None => Ok(()),
        }
    }

    /// The rows before targets, and the same after the last norm.
    fn states(
        &self,
        batch: &Batch,
        pass: &Pass<D>,
        norm: &Tensor<D>,
    ) -> Result<(D::Numbers, D::Numbers), Error> {
        let Shape { width, epsilon, .. } = self.shape;
        let mut gathered = self.device.unset(batch.rows().len() * width)?;
        self.device.gather(&pass.last, width, batch.rows(), &mut gathered)?;
        let mut states = self.device.unset(batch.rows().len() * width)?;
        self.device.norm(&gathered, (&norm.weights, width), epsilon, &mut states)?;
        Ok((gathered, states))
    }

    fn frame<'a>(&'a self, batch: &'a Batch) -> Frame<'a, D> {
        Frame { device: &self.device, shape: &self.shape, starts: batch.starts(), rows: batch.tokens().len() }
    }

    /// All tensors, always in the same order.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor<D>> {
        let Weights { embedding, layers, norm, output } = &self.weights;
        let layers = layers.iter().flat_map(|layer| {
            let Layer { attention_norm, query_key_value, attention_output, feed_norm, gate_up, down } = layer;
            [attention_norm, query_key_value, attention_output, feed_norm, gate_up, down]
        });
        std::iter::once(embedding).chain(layers).chain([norm]).chain(output)
    }

    /// The device, and all tensors in the same order, to be changed.
    pub(super) fn tensors_mut(&mut self) -> (&D, impl Iterator<Item = &mut Tensor<D>>) {
        let Weights { embedding, layers, norm, output } = &mut self.weights;
        let layers = layers.iter_mut().flat_map(|layer| {
            let Layer { attention_norm, query_key_value, attention_output, feed_norm, gate_up, down } = layer;
            [attention_norm, query_key_value, attention_output, feed_norm, gate_up, down]
        });
        (&self.device, std::iter::once(embedding).chain(layers).chain([norm]).chain(output))
    }
}

/// Puts the tensors of a GGUF file on a device.
struct OnDevice<'a, D> {
    device: &'a D,
    trains: Trains,
    gguf: FromGguf<'a>,
}

impl<D: Device> Source for OnDevice<'_, D> {
    type Matrix = Tensor<D>;
    type Vector = Tensor<D>;

    fn matrix(&mut self, site: &Site) -> Result<Tensor<D>, Error> {
        let values = self.gguf.rows(site)?;
        let trains = match self.trains {
            Trains::Layers if site.is_in_layer() => Trains::Yes,
            Trains::Layers => Trains::No,
            trains => trains,
        };
        Tensor::new(self.device, site.name(), (site.rows(), site.columns), &values, trains)
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor<D>, Error> {
        let values = self.gguf.vector(name, length)?;
        let trains = if self.trains == Trains::Yes { Trains::Yes } else { Trains::No };
        Ok(Tensor::new(self.device, name.to_owned(), (1, length), &values, trains)?.without_decay())
    }
}

#[cfg(test)]
#[path = "network/tests.rs"]
mod tests;
