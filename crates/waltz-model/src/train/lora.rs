//! Low-rank adapters (LoRA): each projection's output gains `(alpha / rank) * (input A^T) B^T`.
//! <https://arxiv.org/abs/2106.09685>.
//!
//! Projections that share a matrix share two buffers here too: the A of queries, keys and values lie one below
//! the other, and so do their B. Files name each projection by itself (`adapter.rs`).

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{Device, Tensor, Trains};
use crate::adapter::Factors;
use crate::weights::Site;
use crate::{Error, LoraConfig, Shape};

/// An adapter in training.
pub struct Lora<D: Device> {
    config: LoraConfig,
    /// The matrices of each layer in the order of [`Site::of_layer`].
    pub(super) layers: Vec<[Pair<D>; 4]>,
}

/// What an adapter adds to one matrix.
pub(super) struct Pair<D: Device> {
    /// (parts x rank, columns).
    pub(super) a: Tensor<D>,
    /// (rows of all parts, rank).
    pub(super) b: Tensor<D>,
    /// Rows of each part.
    pub(super) parts: Vec<usize>,
    /// Numbers between A and B.
    pub(super) rank: usize,
    /// `alpha / rank`.
    pub(super) scale: f32,
}

impl<D: Device> Lora<D> {
    /// A new adapter, which changes nothing yet: A is random by the seed, B zero.
    pub fn new(device: &D, shape: &Shape, config: LoraConfig, seed: u64) -> Result<Self, Error> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        Self::gather(device, shape, config, |site| {
            // Kaiming-uniform with a slope of sqrt(5), which is 1 / sqrt(columns).
            let bound = 1.0 / (site.columns as f32).sqrt();
            let length = site.parts.len() * config.rank * site.columns;
            let a = (0..length).map(|_| random.random_range(-bound..bound)).collect();
            Ok((a, vec![0.0; site.rows() * config.rank]))
        })
    }

    /// Puts an adapter together from the A and B of each matrix.
    pub(super) fn gather(
        device: &D,
        shape: &Shape,
        config: LoraConfig,
        mut values: impl FnMut(&Site) -> Result<Factors, Error>,
    ) -> Result<Self, Error> {
        let LoraConfig { rank, alpha } = config;
        config.check().map_err(|reason| Error::training(format!("an adapter cannot be made: {reason}")))?;
        let mut pair = |site: &Site| -> Result<Pair<D>, Error> {
            let (a, b) = values(site)?;
            let [(name_a, size_a), (name_b, size_b)] = pair_sizes(site, rank);
            Ok(Pair {
                a: Tensor::new(device, name_a, size_a, &a, Trains::Yes)?,
                b: Tensor::new(device, name_b, size_b, &b, Trains::Yes)?,
                parts: site.parts.iter().map(|(_, rows)| *rows).collect(),
                rank,
                scale: alpha / rank as f32,
            })
        };
        let mut layers = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let [one, two, three, four] = Site::of_layer(shape, layer);
            layers.push([pair(&one)?, pair(&two)?, pair(&three)?, pair(&four)?]);
        }
        Ok(Self { config, layers })
    }

    /// Names and sizes of all tensors of an adapter, in their order.
    pub(super) fn sizes(shape: &Shape, LoraConfig { rank, .. }: LoraConfig) -> Vec<(String, (usize, usize))> {
        let sites = (0..shape.layers).flat_map(|layer| Site::of_layer(shape, layer));
        sites.flat_map(|site| pair_sizes(&site, rank)).collect()
    }

    /// Its size.
    pub fn config(&self) -> LoraConfig {
        self.config
    }

    /// All of its tensors, always in the same order.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor<D>> {
        self.layers.iter().flatten().flat_map(|pair| [&pair.a, &pair.b])
    }

    /// All of its tensors, always in the same order.
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor<D>> {
        self.layers.iter_mut().flatten().flat_map(|pair| [&mut pair.a, &mut pair.b])
    }
}

/// Names and sizes of the A and B of one matrix.
fn pair_sizes(site: &Site, rank: usize) -> [(String, (usize, usize)); 2] {
    let name = site.name();
    [
        (format!("{name}.lora_a"), (site.parts.len() * rank, site.columns)),
        (format!("{name}.lora_b"), (site.rows(), rank)),
    ]
}
