//! Learning from data: the judge, by `waltz train judge`, and adapters of a local model, by `waltz train sft`. Measuring what
//! came of it: `waltz eval`.
//!
//! Called by the program's `train` and `eval` commands; nothing here serves traffic.

mod error;
pub mod evaluate;
mod held;
pub mod judge;
pub mod leak;
mod lines;
pub mod sft;

pub use error::Error;
