//! A trained network brought to an adapter: the change of each projection as a product of two thin matrices.
//!
//! Subspace iteration finds the directions in which a matrix changed most (a truncated singular value
//! decomposition). It runs on the CPU, whatever the network trained on.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{Cpu, Device, Form, Grid, Network, Trainer};
use crate::adapter::Factors;
use crate::kernels::MatrixKind;
use crate::weights::{FromGguf, Site};
use crate::{AdapterFile, Error, Gguf, LoraConfig, Origin, Threads};

/// Rounds of subspace iteration: singular values of a change fall slowly, and each round sharpens them.
const ROUNDS: usize = 4;

impl<D: Device> Trainer<D> {
    /// What all weights of a network learned, as an adapter of its base, with the heads. `base` is the file that the
    /// network was loaded from.
    pub fn compressed(
        &self,
        network: &Network<D>,
        base: &Gguf,
        lora: LoraConfig,
        data: &str,
        seed: u64,
    ) -> Result<AdapterFile, Error> {
        lora.check().map_err(Error::training)?;
        if !network.trains() {
            return Err(Error::training("the base did not train, so that there is no change to compress"));
        }
        let cpu = Cpu::<f32>::new(Threads::for_this_machine());
        let mut source = FromGguf::new(base, MatrixKind::F32);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut layers = Vec::with_capacity(network.shape().layers);
        for layer in 0..network.shape().layers {
            let sites = Site::of_layer(network.shape(), layer);
            let mut pairs: [Factors; 4] = Default::default();
            for ((site, trained), pair) in sites.iter().zip(network.matrices(layer)?).zip(&mut pairs) {
                let before = source.rows(site)?;
                let change: Vec<f32> = trained.iter().zip(&before).map(|(now, then)| now - then).collect();
                *pair = factored(&cpu, site, &change, lora, &mut random)?;
            }
            layers.push(pairs);
        }
        let heads = match &self.heads {
            None => None,
            Some(heads) => {
                let [weights, bias] = heads.tensors();
                let device = network.device();
                Some((heads.config(), weights.values(device)?, bias.values(device)?))
            }
        };
        let origin = Origin { base: network.base().to_owned(), data: data.to_owned(), seed };
        Ok(AdapterFile::new(network.shape(), (Some(lora), layers), heads, origin, self.steps()))
    }
}

/// A and B of one matrix, each projection by itself.
fn factored(
    cpu: &Cpu<f32>,
    site: &Site,
    change: &[f32],
    lora: LoraConfig,
    random: &mut ChaCha8Rng,
) -> Result<Factors, Error> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let mut first = 0;
    for (_, rows) in &site.parts {
        let part = &change[first * site.columns..][..rows * site.columns];
        let (of_a, of_b) = thin(cpu, part, (*rows, site.columns), lora, random)?;
        a.extend(of_a);
        b.extend(of_b);
        first += rows;
    }
    Ok((a, b))
}

/// The best A (rank, columns) and B (rows, rank) with `alpha / rank * B A` near `change` (rows, columns). Both are of one
/// size, so that further training changes them alike.
fn thin(
    cpu: &Cpu<f32>,
    change: &[f32],
    (rows, columns): (usize, usize),
    LoraConfig { rank, alpha }: LoraConfig,
    random: &mut ChaCha8Rng,
) -> Result<Factors, Error> {
    let whole = (&change.to_vec(), Grid::whole(rows, columns));
    let mut right: Vec<f32> = (0..columns * rank).map(|_| random.random_range(-1.0..1.0)).collect();
    let mut left = vec![0.0; rows * rank];
    for _ in 0..ROUNDS {
        let from = (&right, Grid::whole(columns, rank));
        cpu.multiply(Form::Plain, 1.0, whole, from, 0.0, (&mut left, Grid::whole(rows, rank)))?;
        orthonormalise(&mut left, rank);
        let from = (&left, Grid::whole(rows, rank));
        cpu.multiply(Form::LeftTransposed, 1.0, whole, from, 0.0, (&mut right, Grid::whole(columns, rank)))?;
        orthonormalise(&mut right, rank);
    }
    // `left` spans what changed; A is the change seen from there.
    let from = (&right, Grid::whole(columns, rank));
    cpu.multiply(Form::Plain, 1.0, whole, from, 0.0, (&mut left, Grid::whole(rows, rank)))?;
    orthonormalise(&mut left, rank);
    let mut a = vec![0.0; rank * columns];
    let from = (&left, Grid::whole(rows, rank));
    cpu.multiply(Form::LeftTransposed, 1.0, from, whole, 0.0, (&mut a, Grid::whole(rank, columns)))?;
    let scale = alpha / rank as f32;
    for (direction, row) in a.chunks_exact_mut(columns).enumerate() {
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        let share = (length / scale).sqrt();
        let by = if share > 0.0 { 1.0 / (share * scale) } else { 0.0 };
        row.iter_mut().for_each(|value| *value *= by);
        left.iter_mut().skip(direction).step_by(rank).for_each(|value| *value *= share);
    }
    Ok((a, left))
}

/// Makes the columns of a matrix with `rank` columns orthogonal and of length 1, from left to right. A column that adds
/// nothing becomes zero.
fn orthonormalise(matrix: &mut [f32], rank: usize) {
    // Twice is enough: rounding leaves a little of the earlier columns after the first time.
    for _ in 0..2 {
        for column in 0..rank {
            for earlier in 0..column {
                let along: f32 = matrix.chunks_exact(rank).map(|row| row[column] * row[earlier]).sum();
                matrix.chunks_exact_mut(rank).for_each(|row| row[column] -= along * row[earlier]);
            }
            let length = matrix.chunks_exact(rank).map(|row| row[column] * row[column]).sum::<f32>().sqrt();
            let by = if length > 1e-12 { 1.0 / length } else { 0.0 };
            matrix.chunks_exact_mut(rank).for_each(|row| row[column] *= by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_low_rank_is_found_and_the_largest_part_of_another() {
        let (rows, columns, rank) = (40, 24, 3);
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut values =
            |count: usize| -> Vec<f32> { (0..count).map(|_| random.random_range(-1.0..1.0)).collect() };
        let (b, a, noise) = (values(rows * rank), values(rank * columns), values(rows * columns));
        let product = |b: &[f32], a: &[f32], scale: f32| -> Vec<f32> {
            let at = |index: usize| {
                let (row, column) = (index / columns, index % columns);
                scale * (0..rank).map(|at| b[row * rank + at] * a[at * columns + column]).sum::<f32>()
            };
            (0..rows * columns).map(at).collect()
        };
        let exact = product(&b, &a, 1.0);
        let noisy: Vec<f32> = exact.iter().zip(&noise).map(|(value, noise)| value + 0.01 * noise).collect();
        let cpu = Cpu::<f32>::new(Threads::new(2));
        let lora = LoraConfig { rank, alpha: 6.0 };
        for (change, most) in [(&exact, 1e-4), (&noisy, 0.02)] {
            let mut random = ChaCha8Rng::seed_from_u64(6);
            let (a, b) = thin(&cpu, change, (rows, columns), lora, &mut random).unwrap();
            let found = product(&b, &a, 2.0);
            let wrong =
                found.iter().zip(change).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max);
            assert!(wrong < most, "{wrong}");
        }
    }
}
