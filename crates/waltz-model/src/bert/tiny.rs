//! A tiny encoder for tests: random weights by a seed, in a safetensors file.

use std::collections::HashMap;

use ::safetensors::tensor::TensorView;
use ::safetensors::{Dtype, serialize};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{MINILM, Place, Source, Weights};
use crate::{Error, Shape, TensorFile};

/// Two layers, two heads of 16. What Q8 needs is kept: widths are multiples of 32.
pub(crate) const TINY: Shape = Shape {
    layers: 2,
    width: 32,
    heads: 2,
    kv_heads: 2,
    head: 16,
    hidden: 64,
    vocabulary: 40,
    context: 24,
    ..MINILM
};

/// The token between texts.
pub(crate) const SEPARATOR: u32 = 3;

/// Writes random tensors under the names that are asked for.
struct Random {
    generator: ChaCha8Rng,
    tensors: Vec<(String, Vec<usize>, Vec<u8>)>,
}

impl Random {
    fn add(&mut self, place: &Place, shape: &[usize], middle: f32, bound: f32) {
        for name in &place.names {
            let count = shape.iter().product();
            let mut draw = || middle + self.generator.random_range(-bound..bound);
            let bytes = (0..count).flat_map(|_| draw().to_le_bytes()).collect();
            self.tensors.push((name.clone(), shape.to_vec(), bytes));
        }
    }
}

impl Source for Random {
    type Matrix = ();
    type Table = ();
    type Vector = ();

    fn matrix(&mut self, place: &Place) -> Result<(), Error> {
        self.add(place, &[place.rows, place.columns], 0.0, 0.4);
        Ok(())
    }

    fn table(&mut self, place: &Place) -> Result<(), Error> {
        self.add(place, &[place.rows, place.columns], 0.0, 1.0);
        Ok(())
    }

    fn vector(&mut self, place: &Place) -> Result<(), Error> {
        let is_gain = place.names[0].ends_with("LayerNorm.weight");
        self.add(place, &[place.columns], if is_gain { 1.0 } else { 0.0 }, 0.3);
        Ok(())
    }
}

/// The tiny encoder's file.
pub(crate) fn file(seed: u64) -> TensorFile {
    let mut random = Random { generator: ChaCha8Rng::seed_from_u64(seed), tensors: Vec::new() };
    Weights::gather(&TINY, &mut random).unwrap();
    let views: HashMap<&str, TensorView<'_>> = random
        .tensors
        .iter()
        .map(|(name, shape, bytes)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.safetensors");
    std::fs::write(&path, serialize(views, None).unwrap()).unwrap();
    TensorFile::read(&path).unwrap()
}

/// Tokens without a pattern; none is the separator but the last.
pub(crate) fn tokens(count: usize, seed: u32) -> Vec<u32> {
    let mut tokens: Vec<u32> =
        (0..count as u32).map(|at| 4 + (at * at * 7 + at * 5 + seed * 11) % 36).collect();
    tokens[count - 1] = SEPARATOR;
    tokens
}
