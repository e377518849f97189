//! What the tests of training share.

use super::tensor::Part;
use super::{
    Batch, Cpu, Device, EncoderTrainer, Example, Keep, Lora, Network, Optimiser, Tensor, Trainer, Trains,
    pack,
};
use crate::kernels::{Number, Threads};
use crate::tiny::{Tiny, VOCABULARY};
use crate::{AdapterFile, Gguf, LoraConfig};

pub(crate) const CONFIG: LoraConfig = LoraConfig { rank: 4, alpha: 6.0 };

/// Learns quickly.
pub(crate) const OPTIMISER: Optimiser = Optimiser {
    rate: 1e-2,
    warm_up: 2,
    steps: 60,
    lowest: 0.1,
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-8,
    decay: 0.01,
    clip: 1.0,
};

/// The CPU on two threads.
pub(crate) fn cpu<T: Number>() -> Cpu<T> {
    Cpu::new(Threads::new(2))
}

/// The tiny model.
pub(crate) fn tiny<T: Number>(trains: Trains) -> Network<Cpu<T>> {
    from(&Tiny::new().gguf(), trains)
}

pub(crate) fn from<T: Number>(gguf: &Gguf, trains: Trains) -> Network<Cpu<T>> {
    Network::from_gguf(cpu(), gguf, trains).unwrap()
}

/// The tiny encoder with two new heads.
pub(crate) fn tiny_classifier() -> EncoderTrainer<Cpu<f32>> {
    super::encoder::tests::trainer(cpu(), OPTIMISER)
}

/// Tokens without a pattern.
pub(crate) fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| ((index * 131 + index * index * 7 + seed * 17) % VOCABULARY) as u32).collect()
}

/// Three texts of different lengths; the answers' tokens count differently.
pub(crate) fn examples() -> Vec<Example> {
    let example = |prompt, answer: usize, seed| {
        let weights: Vec<f32> = (0..answer).map(|index| 0.5 + (index % 3) as f32).collect();
        Example::weighted(&tokens(prompt, seed), &tokens(answer, seed + 50), &weights)
    };
    vec![example(5, 9, 1), example(1, 3, 2), example(20, 13, 3)]
}

/// The texts in one batch.
pub(crate) fn batch() -> Batch {
    pack(&examples(), 100).unwrap().remove(0)
}

/// An adapter whose B is not zero, so that both A and B have a gradient.
pub(crate) fn lora<D: Device>(network: &Network<D>, seed: u64) -> Lora<D> {
    let mut lora = Lora::new(network.device(), network.shape(), CONFIG, seed).unwrap();
    for (index, tensor) in lora.tensors_mut().enumerate().filter(|(index, _)| index % 2 == 1) {
        let noise = |at: usize| ((at * 7919 + index * 31) % 199) as f32 / 1000.0 - 0.1;
        let values: Vec<f32> = (0..tensor.length()).map(noise).collect();
        tensor.write(network.device(), Part::Weights, &values).unwrap();
    }
    lora
}

/// The file of such an adapter of the tiny model.
pub(crate) fn adapter_file(seed: u64) -> AdapterFile {
    let network = tiny::<f32>(Trains::No);
    let trainer = Trainer::new(Some(lora(&network, seed)), None, OPTIMISER, Keep::Most).unwrap();
    trainer.adapter(&network, "noise", seed).unwrap()
}

/// The slope of a function that returns its value and its argument, by finite differences; a second pair at half the
/// distance makes it more exact.
pub(crate) fn difference(step: f32, mut at: impl FnMut(f32) -> (f64, f64)) -> f64 {
    let mut slope = |step: f32| {
        let ((high, right), (low, left)) = (at(step), at(-step));
        (high - low) / (right - left)
    };
    (4.0 * slope(step / 2.0) - slope(step)) / 3.0
}

/// All numbers of tensors.
pub(crate) fn values<'a, D: Device + 'a>(
    device: &D,
    tensors: impl IntoIterator<Item = &'a Tensor<D>>,
) -> Vec<Vec<f32>> {
    tensors.into_iter().map(|tensor| tensor.values(device).unwrap()).collect()
}

/// All gradients of tensors that train.
pub(crate) fn gradients<'a, D: Device + 'a>(
    device: &D,
    tensors: impl IntoIterator<Item = &'a Tensor<D>>,
) -> Vec<(String, Vec<f32>)> {
    let read = |tensor: &'a Tensor<D>| {
        tensor.gradient().map(|gradient| (tensor.name.clone(), device.read_floats(gradient).unwrap()))
    };
    tensors.into_iter().filter_map(read).collect()
}
