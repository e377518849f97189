//! Between what trains and the file that serves it.

use super::lora::Pair;
use super::{Device, Heads, Keep, Lora, Network, Optimiser, Trainer};
use crate::weights::Site;
use crate::{AdapterFile, Error, HeadsConfig, Origin};

impl<D: Device> Trainer<D> {
    /// What was learned so far, as a file for serving: the adapter, the heads, or both. `data` is a fingerprint of
    /// what it was learned from.
    pub fn adapter(&self, network: &Network<D>, data: &str, seed: u64) -> Result<AdapterFile, Error> {
        if network.trains() {
            return Err(Error::training("the base itself trained, and an adapter's file does not hold it"));
        }
        let device = network.device();
        let mut layers = Vec::new();
        if let Some(lora) = &self.lora {
            let read =
                |pair: &Pair<D>| -> Result<_, Error> { Ok((pair.a.values(device)?, pair.b.values(device)?)) };
            for [one, two, three, four] in &lora.layers {
                layers.push([read(one)?, read(two)?, read(three)?, read(four)?]);
            }
        }
        let heads = match &self.heads {
            None => None,
            Some(heads) => {
                let [weights, bias] = heads.tensors();
                Some((heads.config(), weights.values(device)?, bias.values(device)?))
            }
        };
        if self.lora.is_none() && heads.is_none() {
            return Err(Error::training("nothing trained; there is no adapter to write"));
        }
        let origin = Origin { base: network.base().to_owned(), data: data.to_owned(), seed };
        let lora = (self.lora.as_ref().map(Lora::config), layers);
        let file = AdapterFile::new(network.shape(), lora, heads, origin, self.steps());
        match file.is_sound() {
            true => Ok(file),
            false => Err(Error::training("the adapter holds numbers that are too large or not finite")),
        }
    }

    /// Begins a new run with what a file holds; one that was made for another base is refused.
    pub fn from_adapter(
        network: &Network<D>,
        file: &AdapterFile,
        optimiser: Optimiser,
        keep: Keep,
    ) -> Result<Self, Error> {
        file.note().origin.check_base("the adapter", network.base())?;
        let (device, shape) = (network.device(), network.shape());
        let lora = match file.note().lora {
            None => None,
            Some(config) => {
                let mut pairs = file.layers.iter().flatten();
                let next = |_: &Site| {
                    pairs.next().cloned().ok_or_else(|| Error::training("the adapter has too few layers"))
                };
                Some(Lora::gather(device, shape, config, next)?)
            }
        };
        let heads = match (&file.note().heads, &file.heads) {
            (Some(HeadsConfig { names, pooling }), Some((weights, bias))) => {
                Some(Heads::from_values(device, shape, names.clone(), *pooling, (weights, bias))?)
            }
            _ => None,
        };
        Self::new(lora, heads, optimiser, keep)
    }
}
