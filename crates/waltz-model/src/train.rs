//! Training a model in process: packed batches, the network's way forward and back over a [`Device`], adapters and
//! full weights, the optimiser, and the files that a run leaves.

mod adapter;
mod batch;
mod checkpoint;
mod compress;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod encoder;
mod heads;
mod linear;
mod lora;
mod network;
mod optimiser;
mod pool;
mod tensor;
mod trainer;

pub use batch::{Batch, Example, fingerprint, labelled_fingerprint, pack};
pub use checkpoint::Checkpoint;
pub use cpu::Cpu;
pub use device::{
    AdamW, AttentionShape, Device, Form, Grid, LayerNorm, LogProbabilities, LossBack, Moments, Sight, Starts,
};
pub use encoder::{Encoder, EncoderTrainer};
pub use heads::Heads;
pub use lora::Lora;
pub use network::{Keep, Network, Pass};
pub use optimiser::Optimiser;
pub use tensor::{Tensor, Trains};
pub use trainer::{LossFunction, Objective, Report, Trainer};

#[cfg(test)]
mod real;
#[cfg(test)]
pub(crate) mod tests;
