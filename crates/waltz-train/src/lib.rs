//! Learning from data: the judge, by `waltz train judge`, and adapters of a local model, by `waltz train sft`. Measuring what
//! came of it: `waltz eval`. Making better variants of an agent: `waltz variants evolve`.
//!
//! Called by the program's `train`, `eval` and `variants` commands; nothing here serves traffic.

mod error;
pub mod evaluate;
pub mod evolve;
mod held;
pub mod judge;
pub mod leak;
mod lines;
mod log;
pub mod sft;

pub use error::Error;
