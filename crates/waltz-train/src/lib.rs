//! Learning from data: the judge, by `waltz train judge`, and adapters of a local model, by `waltz train sft`.
//!
//! Called by the program's `train` commands, on the thread of the caller; nothing here serves traffic.

mod error;
pub mod judge;
pub mod sft;

pub use error::Error;
