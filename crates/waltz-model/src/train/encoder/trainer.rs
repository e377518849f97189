//! An encoder and its heads, trained together as a classifier.

use super::super::heads::Heads;
use super::super::optimiser::Optimiser;
use super::super::tensor::{Part, Tensor};
use super::super::trainer::{finish, known, next};
use super::super::{Batch, Device, Report};
use super::Encoder;
use crate::generate::Pooling;
use crate::{EncoderFile, Error, Origin};

/// A classifier in training: all weights of an encoder, and heads on the mean of its states.
pub struct EncoderTrainer<D: Device> {
    pub(super) encoder: Encoder<D>,
    pub(super) heads: Heads<D>,
    optimiser: Optimiser,
    /// What calibration found and [`Self::rescale_heads`] did to each head.
    calibration: Vec<(f32, f32)>,
    step: u32,
}

impl<D: Device> EncoderTrainer<D> {
    /// Trains an encoder with new heads, random by the seed.
    pub fn new(
        encoder: Encoder<D>,
        head_names: Vec<String>,
        optimiser: Optimiser,
        seed: u64,
    ) -> Result<Self, Error> {
        optimiser.check()?;
        let heads = Heads::new(&encoder.device, &encoder.shape, head_names, Pooling::Mean, seed)?;
        Ok(Self { encoder, heads, optimiser, calibration: Vec::new(), step: 0 })
    }

    /// The encoder.
    pub fn encoder(&self) -> &Encoder<D> {
        &self.encoder
    }

    /// Steps taken.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// Takes one step over all batches towards their labels from 0 to 1, one list (sequences x heads) per batch. A
    /// label that is not a number is unknown.
    pub fn step(&mut self, batches: &[Batch], labels: &[Vec<f32>]) -> Result<Report, Error> {
        let step = next(self.step, batches)?;
        let loss = self.gradients(batches, labels);
        let optimiser = self.optimiser;
        let Self { encoder, heads, .. } = self;
        let mut tensors: Vec<&mut Tensor<D>> = encoder.weights.all_mut().chain(heads.tensors_mut()).collect();
        let report = finish(&encoder.device, &optimiser, (step, loss), batches, &mut tensors)?;
        self.step = step;
        Ok(report)
    }

    pub(super) fn gradients(&mut self, batches: &[Batch], labels: &[Vec<f32>]) -> Result<f64, Error> {
        let known = known(batches, labels, self.heads.names().len())?;
        let mut loss = 0.0;
        for (batch, labels) in batches.iter().zip(labels) {
            let pass = self.encoder.forward(batch, true)?;
            let pooled = self.encoder.pooled(batch, &pass)?;
            let found = self.heads.back(&self.encoder.device, &pooled, labels, 1.0 / known as f64)?;
            self.encoder.back_pooled(batch, pass, &found.to_pooled)?;
            loss += found.loss;
        }
        Ok(loss)
    }

    /// The heads' logits of each sequence (sequences, heads).
    pub fn classify(&self, batch: &Batch) -> Result<Vec<f32>, Error> {
        let pass = self.encoder.forward(batch, false)?;
        let pooled = self.encoder.pooled(batch, &pass)?;
        self.heads.logits(&self.encoder.device, &pooled, batch.sequences())
    }

    /// Rescales the heads: for each the logit that becomes 0, and the distance from it that becomes 1.
    pub fn rescale_heads(&mut self, scales: &[(f32, f32)]) -> Result<(), Error> {
        self.heads.rescale(&self.encoder.device, scales)?;
        self.calibration = scales.to_vec();
        Ok(())
    }

    /// The running mean of the gradient of everything that trains, by name. After the first step it points where the
    /// gradient did.
    pub fn momentum(&self) -> Result<Vec<(String, Vec<f32>)>, Error> {
        let device = &self.encoder.device;
        let read = |tensor: &Tensor<D>| Ok((tensor.name.clone(), tensor.read(device, Part::First)?));
        self.encoder.weights.all().chain(self.heads.tensors()).map(read).collect()
    }

    /// The classifier as it serves: bytes with scales. `data` is the fingerprint of what it learned from.
    pub fn save(&self, data: &str, seed: u64) -> Result<EncoderFile, Error> {
        let Self { encoder, heads, calibration, .. } = self;
        let Encoder { device, shape, base, separator, weights } = encoder;
        let origin = Origin { base: base.clone(), data: data.to_owned(), seed };
        let values: Vec<Vec<f32>> =
            weights.all().map(|tensor| tensor.values(device)).collect::<Result<_, _>>()?;
        let [of_weights, of_bias] = heads.tensors();
        let heads = (heads.names().to_vec(), of_weights.values(device)?, of_bias.values(device)?);
        EncoderFile::pack(shape, values, heads, (calibration.clone(), *separator, origin))
    }
}
