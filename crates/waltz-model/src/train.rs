//! Training a model in process: packed batches, the network's way forward and back over a [`Device`], adapters and
//! full weights, the optimiser, and the files that a run leaves.

mod batch;
mod device;
mod linear;
mod lora;
mod network;
mod tensor;

pub use batch::{Batch, Example, pack};
pub use device::{AdamW, AttentionShape, Device, Form, Grid, LogProbabilities, LossBack, Moments, Starts};
pub use lora::{Lora, LoraConfig};
pub use network::{Keep, Network, Pass};
pub use tensor::{Tensor, Trains};
