//! The real model against PyTorch: `tests/fixtures/train.json`, made by `make_train.py` beside it.

use serde_json::Value;

use super::tests::{cpu, gradients};
use super::{Batch, Cpu, Example, Keep, Lora, Network, Tensor, Trains, pack};
use crate::{LoraConfig, real};

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/train.json")).unwrap()
}

fn batch(fixture: &Value) -> Batch {
    let tokens = |list: &Value| -> Vec<u32> {
        list.as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
    };
    let example = |text: &Value| {
        let answer = tokens(&text[1]);
        let weights: Vec<f32> =
            (0..answer.len()).map(|index| if index % 2 == 0 { 1.0 } else { 0.5 }).collect();
        Example::weighted(&tokens(&text[0]), &answer, &weights)
    };
    let examples: Vec<Example> = fixture["texts"].as_array().unwrap().iter().map(example).collect();
    pack(&examples, 100).unwrap().remove(0)
}

/// Takes the batch forward and back, compares the loss, and returns the gradients of what trains.
fn back(
    network: &mut Network<Cpu>,
    mut lora: Option<&mut Lora<Cpu>>,
    fixture: &Value,
    kind: &str,
) -> Vec<(String, Vec<f32>)> {
    let batch = batch(fixture);
    let total: f32 = batch.weights().iter().sum();
    let slopes: Vec<f32> = batch.weights().iter().map(|weight| -weight / total).collect();
    let pass = network.forward(&batch, lora.as_deref(), Keep::Inputs).unwrap();
    let found = network.back(&batch, lora.as_deref_mut(), pass, &slopes).unwrap();
    let loss: f64 = found.iter().zip(&slopes).map(|(found, slope)| found * f64::from(*slope)).sum();
    let expected = fixture[kind]["loss"].as_f64().unwrap();
    assert!((loss - expected).abs() < 1e-5 * expected, "{kind}: the loss is {loss}, not {expected}");
    let base: Vec<&Tensor<Cpu>> = network.tensors().collect();
    let adapter = lora.iter().flat_map(|lora| lora.tensors());
    gradients(network.device(), base.into_iter().chain(adapter))
}

/// Compares length and entries of every gradient.
fn compare(found: &[(String, Vec<f32>)], expected: &Value) {
    assert_eq!(found.len(), expected.as_object().unwrap().len());
    let mut worst = 0.0_f64;
    for (name, gradient) in found {
        let numbers = expected[short(name)].as_array().unwrap_or_else(|| panic!("{name} is not there"));
        let numbers: Vec<f64> = numbers.iter().map(|number| number.as_f64().unwrap()).collect();
        let length = gradient.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        assert!(length > 0.0, "{name} has no gradient");
        worst = worst.max((length - numbers[0]).abs() / numbers[0]);
        // An entry may be far smaller than its neighbours, and then is not more exact than they are.
        let size = numbers[0] / (gradient.len() as f64).sqrt();
        for (part, expected) in numbers[1..].iter().enumerate() {
            let entry = f64::from(gradient[(gradient.len() - 1) * part / 4]);
            worst = worst.max((entry - expected).abs() / (size + expected.abs()));
        }
        assert!(worst < 1e-3, "{name}: {worst}");
    }
    println!("{} gradients are PyTorch's within {worst:.1e}", found.len());
}

/// What the fixture calls a tensor.
fn short(name: &str) -> String {
    let fused = name
        .replace("attn_q+", "qkv+")
        .replace("ffn_gate+", "gate_up+")
        .replace("attn_output", "output")
        .replace("ffn_down", "down")
        .replace("lora_", "");
    match (fused.split_once('+'), fused.rsplit_once('.')) {
        (Some((first, _)), Some((_, last))) if last == "a" || last == "b" => format!("{first}.{last}"),
        (Some((first, _)), _) => first.to_owned(),
        (None, _) => fused,
    }
}

/// The numbers that `make_train.py` gives an adapter.
fn noise(layer: usize, place: usize, kind: usize, length: usize) -> Vec<f32> {
    let divisor = if kind == 1 { 16_384.0 } else { 65_536.0 };
    let mixed =
        |index: usize| (index * 7919 + layer * 104_729 + place * 1_299_709 + kind * 15_485_863) % 2003;
    (0..length).map(|index| (mixed(index) as f32 - 1001.0) / divisor).collect()
}

#[test]
fn losses_and_gradients_of_all_weights_are_those_of_pytorch() {
    let Some(gguf) = real::smollm2() else { return };
    let fixture = fixture();
    let mut network = Network::from_gguf(cpu::<f32>(), &gguf, Trains::Yes).unwrap();
    let found = back(&mut network, None, &fixture, "full");
    compare(&found, &fixture["full"]["gradients"]);
}

#[test]
fn losses_and_gradients_of_an_adapter_are_those_of_pytorch() {
    let Some(gguf) = real::smollm2() else { return };
    let fixture = fixture();
    let mut network = Network::from_gguf(cpu::<f32>(), &gguf, Trains::No).unwrap();
    let config = LoraConfig {
        rank: fixture["rank"].as_u64().unwrap() as usize,
        alpha: fixture["alpha"].as_f64().unwrap() as f32,
    };
    let mut at = 0;
    let values = |site: &crate::weights::Site| {
        let (layer, place) = (at / 4, at % 4);
        at += 1;
        let a = noise(layer, place, 1, site.parts.len() * config.rank * site.columns);
        Ok((a, noise(layer, place, 2, site.rows() * config.rank)))
    };
    let mut lora = Lora::gather(network.device(), network.shape(), config, values).unwrap();
    let found = back(&mut network, Some(&mut lora), &fixture, "lora");
    compare(&found, &fixture["lora"]["gradients"]);
}
