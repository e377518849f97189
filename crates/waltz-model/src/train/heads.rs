//! Classifier heads: some yes-or-no questions about a text, answered from its pooled state after the last norm, and
//! their binary cross-entropy.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::linear::{self, Onto};
use super::tensor::Part;
use super::{Device, Form, Grid, Tensor, Trains};
use crate::generate::Pooling;
use crate::{Error, HeadsConfig, Shape};

/// Heads in training.
pub struct Heads<D: Device> {
    /// What each head asks, such as `prompt_harm`.
    names: Vec<String>,
    pooling: Pooling,
    /// (heads, width).
    weights: Tensor<D>,
    /// (1, heads).
    bias: Tensor<D>,
}

/// The loss of a batch, and its gradient by the pooled states.
pub(super) struct HeadLoss<D: Device> {
    /// Summed over sequences and heads.
    pub(super) loss: f64,
    /// (sequences, width).
    pub(super) to_pooled: D::Numbers,
}

impl<D: Device> Heads<D> {
    /// New heads with small random weights by the seed.
    pub fn new(
        device: &D,
        shape: &Shape,
        names: Vec<String>,
        pooling: Pooling,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let bound = 1.0 / (shape.width as f32).sqrt();
        let values: Vec<f32> =
            (0..names.len() * shape.width).map(|_| random.random_range(-bound..bound)).collect();
        let bias = vec![0.0; names.len()];
        Self::from_values(device, shape, names, pooling, (&values, &bias))
    }

    /// Heads with these weights (heads, width) and biases (heads).
    pub(super) fn from_values(
        device: &D,
        shape: &Shape,
        names: Vec<String>,
        pooling: Pooling,
        (weights, bias): (&[f32], &[f32]),
    ) -> Result<Self, Error> {
        let config = HeadsConfig { names, pooling };
        config.check().map_err(Error::training)?;
        let [of_weights, of_bias] = Self::sizes(shape, &config);
        let tensor = |(name, size), values: &[f32]| Tensor::new(device, name, size, values, Trains::Yes);
        let (weights, bias) = (tensor(of_weights, weights)?, tensor(of_bias, bias)?.without_decay());
        let HeadsConfig { names, pooling } = config;
        Ok(Self { names, pooling, weights, bias })
    }

    /// Names and sizes of both tensors.
    pub(super) fn sizes(
        shape: &Shape,
        HeadsConfig { names, .. }: &HeadsConfig,
    ) -> [(String, (usize, usize)); 2] {
        let count = names.len();
        [("heads.weight".to_owned(), (count, shape.width)), ("heads.bias".to_owned(), (1, count))]
    }

    /// What the heads ask.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What the heads ask, and of what.
    pub(super) fn config(&self) -> HeadsConfig {
        HeadsConfig { names: self.names.clone(), pooling: self.pooling }
    }

    /// How a text becomes one row.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The logits of pooled states (sequences, heads).
    pub(super) fn logits(
        &self,
        device: &D,
        pooled: &D::Numbers,
        sequences: usize,
    ) -> Result<Vec<f32>, Error> {
        let count = self.names.len();
        let mut logits = device.numbers(sequences * count)?;
        linear::forward(device, sequences, pooled, (&self.weights, None), Onto::Nothing, &mut logits)?;
        let (mut logits, bias) = (device.read(&logits)?, self.bias.values(device)?);
        for row in logits.chunks_exact_mut(count) {
            row.iter_mut().zip(&bias).for_each(|(logit, bias)| *logit += bias);
        }
        Ok(logits)
    }

    /// The loss against labels from 0 to 1 (sequences, heads), and its way back; `scale` multiplies both. A label
    /// that is not a number is unknown and does not count.
    pub(super) fn back(
        &mut self,
        device: &D,
        pooled: &D::Numbers,
        labels: &[f32],
        scale: f64,
    ) -> Result<HeadLoss<D>, Error> {
        let count = self.names.len();
        let sequences = labels.len() / count;
        let mut loss = 0.0;
        let mut slopes = vec![0.0; labels.len()];
        let logits = self.logits(device, pooled, sequences)?;
        for ((logit, label), slope) in logits.iter().zip(labels).zip(&mut slopes) {
            if !label.is_nan() {
                let (logit, label) = (f64::from(*logit), f64::from(*label));
                loss += scale * cross_entropy(logit, label);
                *slope = (scale * (1.0 / (1.0 + (-logit).exp()) - label)) as f32;
            }
        }
        let slopes = device.load(&slopes)?;
        let mut to_pooled = device.numbers(sequences * self.weights.columns)?;
        let weights = (&mut self.weights, None);
        linear::back(device, sequences, pooled, weights, &slopes, Onto::Nothing, &mut to_pooled)?;
        if let Some(to_bias) = self.bias.gradient_mut() {
            let ones = device.load(&vec![1.0; sequences])?;
            let (left, right) =
                ((&ones, Grid::whole(1, sequences)), (&slopes, Grid::whole(sequences, count)));
            device.accumulate(Form::Plain, 1.0, left, right, (to_bias, Grid::whole(1, count)))?;
        }
        Ok(HeadLoss { loss, to_pooled })
    }

    /// Moves each head's zero to `zero` of its logits so far and makes a step of `step` one: what calibration found.
    pub(super) fn rescale(&mut self, device: &D, scales: &[(f32, f32)]) -> Result<(), Error> {
        if scales.len() != self.names.len() || scales.iter().any(|(_, step)| !step.is_normal()) {
            let (found, expected) = (scales.len(), self.names.len());
            return Err(Error::training(format!(
                "{found} scales for {expected} heads, or a step of nothing"
            )));
        }
        let (mut weights, mut bias) = (self.weights.values(device)?, self.bias.values(device)?);
        let rows = weights.chunks_exact_mut(self.weights.columns).zip(&mut bias);
        for ((row, bias), (zero, step)) in rows.zip(scales) {
            row.iter_mut().for_each(|weight| *weight /= step);
            *bias = (*bias - zero) / step;
        }
        // Both or neither.
        let weights = self.weights.load(device, Part::Weights, &weights)?;
        let bias = self.bias.load(device, Part::Weights, &bias)?;
        self.weights.put(weights);
        self.bias.put(bias);
        Ok(())
    }

    /// Both tensors.
    pub(super) fn tensors(&self) -> [&Tensor<D>; 2] {
        [&self.weights, &self.bias]
    }

    /// Both tensors, to be changed.
    pub(super) fn tensors_mut(&mut self) -> [&mut Tensor<D>; 2] {
        [&mut self.weights, &mut self.bias]
    }
}

/// `-(y ln p + (1 - y) ln (1 - p))` with `p = sigmoid(logit)`, in the form that never overflows.
fn cross_entropy(logit: f64, label: f64) -> f64 {
    logit.max(0.0) - logit * label + (-logit.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_the_formula_and_never_overflows() {
        for (logit, label) in [(0.3_f64, 1.0_f64), (-2.0, 0.0), (1.5, 0.25)] {
            let chance = 1.0 / (1.0 + (-logit).exp());
            let expected = -(label * chance.ln() + (1.0 - label) * (1.0 - chance).ln());
            assert!((cross_entropy(logit, label) - expected).abs() < 1e-12);
        }
        assert_eq!(cross_entropy(1e4, 0.0), 1e4);
        assert_eq!(cross_entropy(-1e4, 0.0), 0.0);
    }
}
