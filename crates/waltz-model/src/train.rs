//! Training of small models: gradients, adapters and optimiser, on this machine's CPU.

mod cpu;
mod device;

pub use cpu::Cpu;
pub use device::{AdamW, AttentionShape, Device, Form, Grid, LogProbabilities, LossBack, Moments, Starts};
