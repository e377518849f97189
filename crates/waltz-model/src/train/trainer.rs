//! One training step: packed batches forward and back under an objective, then one update of what trains.

use super::heads::Heads;
use super::lora::Lora;
use super::optimiser::Optimiser;
use super::tensor::{Part, Tensor};
use super::{Batch, Device, Keep, Network};
use crate::Error;

/// What trains, and how far it is. The base is not part of it, so that several trainers can work on one base, one
/// after the other: an adapter of the conversation agent, another of the feedback agent.
pub struct Trainer<D: Device> {
    /// The adapter that trains; without one the network itself does.
    pub(super) lora: Option<Lora<D>>,
    /// Classifier heads that train with it.
    pub(super) heads: Option<Heads<D>>,
    optimiser: Optimiser,
    keep: Keep,
    /// Steps taken.
    pub(super) step: u32,
}

/// What is to become small.
pub enum Objective<'a> {
    /// Minus the mean log-probability of targets, each counting by its weight, over all batches of the step.
    Likelihood,
    /// A function of the log-probabilities of each batch's targets. [`Batch::sums`] and [`Batch::spread`] go to sequences and back. Values are added up over batches.
    LogProbabilities(&'a mut LossFunction<'a>),
    /// The heads' mean cross-entropy against labels from 0 to 1, one list (sequences x heads) per batch. A label
    /// that is not a number is unknown.
    Labels(&'a [Vec<f32>]),
}

/// Takes a batch's place in the step, the batch and the log-probabilities of its targets; returns the loss and its
/// derivative by each of them.
pub type LossFunction<'a> = dyn FnMut(usize, &Batch, &[f64]) -> (f64, Vec<f32>) + 'a;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Its number, from 1.
    pub step: u32,
    /// The loss before the update.
    pub loss: f64,
    /// The gradient's length before the clip.
    pub gradient: f64,
    /// The learning rate.
    pub rate: f32,
    /// Tokens read.
    pub tokens: usize,
}

impl<D: Device> Trainer<D> {
    /// Trains an adapter, or without one the network that [`Self::step`] is given, and heads where there are some.
    pub fn new(
        lora: Option<Lora<D>>,
        heads: Option<Heads<D>>,
        optimiser: Optimiser,
        keep: Keep,
    ) -> Result<Self, Error> {
        optimiser.check()?;
        if keep == Keep::Nothing {
            return Err(Error::training("nothing would be kept for the way back"));
        }
        Ok(Self { lora, heads, optimiser, keep, step: 0 })
    }

    /// The adapter, if one trains.
    pub fn lora(&self) -> Option<&Lora<D>> {
        self.lora.as_ref()
    }

    /// The heads, if some train.
    pub fn heads(&self) -> Option<&Heads<D>> {
        self.heads.as_ref()
    }

    /// Steps taken.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// How weights change.
    pub fn optimiser(&self) -> &Optimiser {
        &self.optimiser
    }

    /// The running mean of the gradient of everything that trains, by name. After the first step it points where the
    /// gradient did.
    pub fn momentum(&self, network: &Network<D>) -> Result<Vec<(String, Vec<f32>)>, Error> {
        let read =
            |tensor: &Tensor<D>| Ok((tensor.name.clone(), tensor.read(network.device(), Part::First)?));
        self.tensors(network).into_iter().map(read).collect()
    }

    /// The log-probability of each target as things stand, without a way back. The reference of an
    /// adapter is the base alone: [`Network::weigh`] without one.
    pub fn weigh(&self, network: &Network<D>, batch: &Batch) -> Result<Vec<f64>, Error> {
        network.weigh(batch, self.lora.as_ref())
    }

    /// The heads' logits of each sequence (sequences, heads).
    pub fn classify(&self, network: &Network<D>, batch: &Batch) -> Result<Vec<f32>, Error> {
        let Some(heads) = &self.heads else { return Err(no_heads()) };
        let pass = network.forward(batch, self.lora.as_ref(), Keep::Nothing)?;
        let pooled = network.pooled(batch, &pass, heads.pooling())?;
        heads.logits(network.device(), &pooled, batch.sequences())
    }

    /// Rescales the heads: for each the logit that becomes 0, and the distance from it that becomes 1.
    pub fn rescale_heads(&mut self, network: &Network<D>, scales: &[(f32, f32)]) -> Result<(), Error> {
        let Some(heads) = &mut self.heads else { return Err(no_heads()) };
        heads.rescale(network.device(), scales)
    }

    /// Takes one step over all batches, whose gradients add up.
    pub fn step(
        &mut self,
        network: &mut Network<D>,
        batches: &[Batch],
        mut objective: Objective<'_>,
    ) -> Result<Report, Error> {
        let step = next(self.step, batches)?;
        if self.lora.is_some() && network.trains() {
            return Err(Error::training("an adapter trains on a frozen base, and this base trains itself"));
        }
        if !self.trains_layers(network) && !matches!(objective, Objective::Labels(_)) {
            return Err(Error::training("nothing would change: the base is frozen and there is no adapter"));
        }
        let loss = self.gradients(network, batches, &mut objective);
        let optimiser = self.optimiser;
        let (device, mut tensors) = self.tensors_mut(network);
        let report = finish(device, &optimiser, (step, loss), batches, &mut tensors)?;
        self.step = step;
        Ok(report)
    }

    fn gradients(
        &mut self,
        network: &mut Network<D>,
        batches: &[Batch],
        objective: &mut Objective<'_>,
    ) -> Result<f64, Error> {
        let total: f64 = batches.iter().flat_map(Batch::weights).map(|weight| f64::from(weight.abs())).sum();
        let trains_layers = self.trains_layers(network);
        let keep = if trains_layers { self.keep } else { Keep::Nothing };
        let known = match (&*objective, &self.heads) {
            (Objective::Labels(labels), Some(heads)) => known(batches, labels, heads.names().len())?,
            (Objective::Labels(_), None) => return Err(no_heads()),
            _ => 0,
        };
        let mut loss = 0.0;
        for (index, batch) in batches.iter().enumerate() {
            let pass = network.forward(batch, self.lora.as_ref(), keep)?;
            loss += match objective {
                Objective::Likelihood => {
                    if total == 0.0 {
                        return Err(Error::training("no token of the step counts"));
                    }
                    let slope = |weight: &f32| (-f64::from(*weight) / total) as f32;
                    let slopes: Vec<f32> = batch.weights().iter().map(slope).collect();
                    let found = network.back(batch, self.lora.as_mut(), pass, &slopes)?;
                    let weighted =
                        found.iter().zip(batch.weights()).map(|(found, weight)| found * f64::from(*weight));
                    -weighted.sum::<f64>() / total
                }
                Objective::LogProbabilities(function) => {
                    let found = network.log_probabilities(batch, &pass)?;
                    let (loss, slopes) = function(index, batch, &found);
                    network.back(batch, self.lora.as_mut(), pass, &slopes)?;
                    loss
                }
                Objective::Labels(labels) => {
                    let Some(heads) = &mut self.heads else { return Err(no_heads()) };
                    let pooling = heads.pooling();
                    let pooled = network.pooled(batch, &pass, pooling)?;
                    let found = heads.back(network.device(), &pooled, &labels[index], 1.0 / known as f64)?;
                    if trains_layers {
                        let to_pooled = (pooling, &found.to_pooled);
                        network.back_pooled(batch, self.lora.as_mut(), pass, to_pooled)?;
                    }
                    found.loss
                }
            };
        }
        Ok(loss)
    }

    /// Whether anything before the heads changes. Heads alone can train on a frozen base.
    fn trains_layers(&self, network: &Network<D>) -> bool {
        self.lora.is_some() || network.trains()
    }

    /// Everything that trains, always in the same order.
    pub(super) fn tensors<'a>(&'a self, network: &'a Network<D>) -> Vec<&'a Tensor<D>> {
        let adapter = self.lora.iter().flat_map(Lora::tensors);
        let heads = self.heads.iter().flat_map(Heads::tensors);
        let all = network.tensors().chain(adapter).chain(heads);
        all.filter(|tensor| tensor.gradient().is_some()).collect()
    }

    /// The device, and everything that trains in the same order, to be changed.
    pub(super) fn tensors_mut<'a>(
        &'a mut self,
        network: &'a mut Network<D>,
    ) -> (&'a D, Vec<&'a mut Tensor<D>>) {
        let adapter = self.lora.iter_mut().flat_map(Lora::tensors_mut);
        let heads = self.heads.iter_mut().flat_map(Heads::tensors_mut);
        let (device, base) = network.tensors_mut();
        let all = base.chain(adapter).chain(heads);
        (device, all.filter(|tensor| tensor.gradient().is_some()).collect())
    }
}

/// The number of the step after `taken` steps.
pub(super) fn next(taken: u32, batches: &[Batch]) -> Result<u32, Error> {
    if batches.is_empty() {
        return Err(Error::training("a step without batches"));
    }
    let further = || Error::training(format!("after {taken} steps no further one can be counted"));
    taken.checked_add(1).ok_or_else(further)
}

/// Updates all tensors by the gradients that a step added up on the way to its loss. Where that failed or is not
/// finite, nothing changes.
pub(super) fn finish<D: Device>(
    device: &D,
    optimiser: &Optimiser,
    (step, loss): (u32, Result<f64, Error>),
    batches: &[Batch],
    tensors: &mut [&mut Tensor<D>],
) -> Result<Report, Error> {
    let loss = match loss {
        Ok(loss) if loss.is_finite() => loss,
        // Whatever was added up before things went wrong must not become part of the next step.
        other => {
            for tensor in tensors {
                tensor.forget(device)?;
            }
            return Err(match other {
                Ok(loss) => Error::training(format!("the loss of step {step} is {loss}")),
                Err(error) => error,
            });
        }
    };
    let gradient = optimiser.step(device, step, tensors)?;
    let tokens = batches.iter().map(|batch| batch.tokens().len()).sum();
    Ok(Report { step, loss, gradient, rate: optimiser.rate_at(step), tokens })
}

/// How many labels of a step are known. One list for each batch and nothing else, so that the mean is over what is
/// learned from.
pub(super) fn known(batches: &[Batch], labels: &[Vec<f32>], heads: usize) -> Result<usize, Error> {
    if labels.len() != batches.len() {
        let (found, expected) = (labels.len(), batches.len());
        return Err(Error::training(format!(
            "{found} lists of labels; expected one for each of {expected} batches"
        )));
    }
    for (index, (batch, own)) in batches.iter().zip(labels).enumerate() {
        let expected = batch.sequences() * heads;
        if own.len() != expected {
            let found = own.len();
            return Err(Error::training(format!("batch {index} has {found} labels; expected {expected}")));
        }
    }
    let known: Vec<f32> = labels.iter().flatten().copied().filter(|label| !label.is_nan()).collect();
    if known.is_empty() || known.iter().any(|label| !(0.0..=1.0).contains(label)) {
        return Err(Error::training("labels must be from 0 to 1, and some must be known"));
    }
    Ok(known.len())
}

fn no_heads() -> Error {
    Error::training("there are no heads to classify with")
}

#[cfg(test)]
#[path = "trainer/tests.rs"]
mod tests;
