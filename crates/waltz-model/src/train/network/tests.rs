use super::*;
use crate::cache::Cache;
use crate::llama::Turn;
use crate::tiny::Tiny;
use crate::train::Optimiser;
use crate::train::tensor::Part;
use crate::train::tests::{batch, cpu, difference, examples, from, gradients, lora, tiny, tokens};
use crate::train::{Cpu, Example, pack};
use crate::{Adapter, MatrixKind, Model, Threads};

/// Slopes without a pattern: a loss that no symmetry makes easy.
fn slopes(batch: &Batch) -> Vec<f32> {
    (0..batch.targets().len()).map(|index| ((index * 37) % 11) as f32 / 5.0 - 0.8).collect()
}

/// The loss that the slopes belong to.
fn loss(network: &Network<Cpu<f64>>, lora: Option<&Lora<Cpu<f64>>>, batch: &Batch) -> f64 {
    let found = network.weigh(batch, lora).unwrap();
    found.iter().zip(slopes(batch)).map(|(found, slope)| found * f64::from(slope)).sum()
}

/// The gradient of the loss, tensor by tensor.
fn back(
    network: &mut Network<Cpu<f64>>,
    mut lora: Option<&mut Lora<Cpu<f64>>>,
    batch: &Batch,
    keep: Keep,
) -> Vec<(String, Vec<f32>)> {
    let pass = network.forward(batch, lora.as_deref(), keep).unwrap();
    network.back(batch, lora.as_deref_mut(), pass, &slopes(batch)).unwrap();
    match lora {
        Some(lora) => gradients(network.device(), lora.tensors()),
        None => gradients(network.device(), network.tensors()),
    }
}

/// Some entries of a tensor: the largest gradient, and a few others.
fn sample(gradient: &[f32]) -> Vec<usize> {
    let largest =
        (0..gradient.len()).max_by(|one, other| gradient[*one].abs().total_cmp(&gradient[*other].abs()));
    [largest.unwrap(), gradient.len() / 3, gradient.len() - 1].to_vec()
}

/// Changes one number of the tensor with this index; returns what it was changed by.
fn nudge(tensor: &mut Tensor<Cpu<f64>>, device: &Cpu<f64>, entry: usize, by: f32) -> f64 {
    let mut values = tensor.values(device).unwrap();
    let before = values[entry];
    values[entry] += by;
    let change = f64::from(values[entry]) - f64::from(before);
    tensor.write(device, Part::Weights, &values).unwrap();
    change
}

fn check(name: &str, entry: usize, found: f32, expected: f64, size: f64) {
    let error = (f64::from(found) - expected).abs();
    assert!(error < 1e-5 * size + 1e-9, "{name}[{entry}]: {found} is not {expected}");
}

#[test]
fn gradients_of_all_weights_are_those_of_finite_differences() {
    let batch = batch();
    let mut network = tiny::<f64>(Trains::Yes);
    let found = back(&mut network, None, &batch, Keep::Most);
    assert_eq!(found.len(), 2 + 2 * 6);
    for (index, (name, gradient)) in found.iter().enumerate() {
        let size = gradient.iter().fold(0.0_f64, |size, value| size.max(f64::from(value.abs())));
        for entry in sample(gradient) {
            let expected = difference(1.0 / 1024.0, |by| {
                let (device, mut tensors) = network.tensors_mut();
                let tensor = tensors.nth(index).unwrap();
                let before = tensor.values(device).unwrap();
                let change = nudge(tensor, device, entry, by);
                drop(tensors);
                let loss = loss(&network, None, &batch);
                let (device, mut tensors) = network.tensors_mut();
                tensors.nth(index).unwrap().write(device, Part::Weights, &before).unwrap();
                (loss, change)
            });
            check(name, entry, gradient[entry], expected, size);
        }
    }
}

#[test]
fn gradients_of_an_adapter_are_those_of_finite_differences() {
    let batch = batch();
    let mut network = tiny::<f64>(Trains::No);
    let mut adapter = lora(&network, 3);
    let found = back(&mut network, Some(&mut adapter), &batch, Keep::Most);
    assert_eq!(found.len(), 2 * 4 * 2);
    let device = cpu::<f64>();
    for (index, (name, gradient)) in found.iter().enumerate() {
        let size = gradient.iter().fold(0.0_f64, |size, value| size.max(f64::from(value.abs())));
        for entry in sample(gradient) {
            let expected = difference(1.0 / 1024.0, |by| {
                let tensor = adapter.tensors_mut().nth(index).unwrap();
                let before = tensor.values(&device).unwrap();
                let change = nudge(tensor, &device, entry, by);
                let loss = loss(&network, Some(&adapter), &batch);
                adapter.tensors_mut().nth(index).unwrap().write(&device, Part::Weights, &before).unwrap();
                (loss, change)
            });
            check(name, entry, gradient[entry], expected, size);
        }
    }
    assert_eq!(gradients(network.device(), network.tensors()), [], "a frozen tensor has no gradient");
}

#[test]
fn a_layer_that_is_computed_again_gives_the_same_bits() {
    let batch = batch();
    for trains in [Trains::Yes, Trains::No] {
        let mut found = [Keep::Most, Keep::Inputs].map(|keep| {
            let mut network = tiny::<f64>(trains);
            let mut adapter = (trains == Trains::No).then(|| lora(&network, 3));
            back(&mut network, adapter.as_mut(), &batch, keep)
        });
        assert!(!found[0].is_empty());
        assert_eq!(std::mem::take(&mut found[0]), found[1]);
    }
    let mut network = tiny::<f64>(Trains::Yes);
    let pass = network.forward(&batch, None, Keep::Nothing).unwrap();
    assert!(network.back(&batch, None, pass, &slopes(&batch)).is_err(), "there is no way back");
}

#[test]
fn packed_sequences_are_what_they_are_alone() {
    let batch = batch();
    let mut network = tiny::<f64>(Trains::Yes);
    let together = network.weigh(&batch, None).unwrap();
    let all = back(&mut network, None, &batch, Keep::Most);
    let mut alone = Vec::new();
    let mut first = 0;
    let mut summed: Vec<Vec<f64>> = all.iter().map(|(_, gradient)| vec![0.0; gradient.len()]).collect();
    for example in examples() {
        let single = &pack(&[example], 100).unwrap()[0];
        let slopes = &slopes(&batch)[first..][..single.targets().len()];
        first += slopes.len();
        let mut network = tiny::<f64>(Trains::Yes);
        let pass = network.forward(single, None, Keep::Most).unwrap();
        alone.extend(network.back(single, None, pass, slopes).unwrap());
        for (sum, (_, gradient)) in summed.iter_mut().zip(gradients(network.device(), network.tensors())) {
            sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += f64::from(value));
        }
    }
    assert_eq!(together, alone, "log-probabilities have the same bits");
    for ((name, gradient), sum) in all.iter().zip(summed) {
        for (value, sum) in gradient.iter().zip(sum) {
            assert!(
                (f64::from(*value) - sum).abs() < 1e-6 * (1.0 + sum.abs()),
                "{name}: {value} is not {sum}"
            );
        }
    }
}

/// The serving engine's log-probabilities of a batch's targets, text by text.
fn served(model: &Model, adapter: Option<&Adapter>, batch: &Batch) -> Vec<f64> {
    let threads = Threads::new(2);
    let vocabulary = model.shape().vocabulary;
    let mut logits = Vec::new();
    for ends in batch.starts().windows(2) {
        let mut cache = Cache::new(model.cache_shape());
        let tokens = &batch.tokens()[ends[0]..ends[1]];
        let rows = model.step(&threads, &mut [Turn { tokens, cache: &mut cache, adapter }]);
        logits.extend(model.logits(&threads, &rows));
    }
    let chance = |(row, target): (&u32, &u32)| {
        let row = &logits[*row as usize * vocabulary..][..vocabulary];
        let sum = row.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln();
        f64::from(row[*target as usize]) - sum
    };
    batch.rows().iter().zip(batch.targets()).map(chance).collect()
}

#[test]
fn the_network_computes_what_the_engine_serves_with_an_adapter_and_without() {
    let file = Tiny::new();
    let (network, model) = (from::<f32>(&file.gguf(), Trains::No), file.model(MatrixKind::F32));
    let batch = batch();
    let adapter = lora(&network, 5);
    let trainer = crate::train::Trainer::new(Some(adapter), None, Optimiser::default(), Keep::Most).unwrap();
    let written = trainer.adapter(&network, "data", 5).unwrap();
    let serving = Adapter::new(&written, model.shape());
    let near = |found: Vec<f64>, expected: Vec<f64>| {
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
        }
    };
    near(network.weigh(&batch, None).unwrap(), served(&model, None, &batch));
    near(trainer.weigh(&network, &batch).unwrap(), served(&model, Some(&serving), &batch));
    let moved = trainer.weigh(&network, &batch).unwrap()[0] - network.weigh(&batch, None).unwrap()[0];
    assert!(moved.abs() > 1e-2, "the adapter changes something: {moved}");
}

#[test]
fn a_new_adapter_changes_nothing() {
    let network = tiny::<f32>(Trains::No);
    let adapter = Lora::new(network.device(), network.shape(), Default::default(), 1).unwrap();
    let batch = batch();
    assert_eq!(network.weigh(&batch, Some(&adapter)).unwrap(), network.weigh(&batch, None).unwrap());
}

#[test]
fn a_text_without_targets_has_no_gradient_and_wrong_slopes_are_refused() {
    let mut network = tiny::<f64>(Trains::Yes);
    let empty = pack(&[Example::text(&tokens(5, 1))], 10).unwrap().remove(0);
    let pass = network.forward(&empty, None, Keep::Most).unwrap();
    assert!(network.back(&empty, None, pass, &[]).unwrap().is_empty());
    assert!(
        gradients(network.device(), network.tensors()).iter().all(|(_, all)| all.iter().all(|g| *g == 0.0))
    );
    let batch = batch();
    let pass = network.forward(&batch, None, Keep::Most).unwrap();
    assert!(network.back(&batch, None, pass, &[1.0]).unwrap_err().to_string().contains("1 slopes for 25"));
}
