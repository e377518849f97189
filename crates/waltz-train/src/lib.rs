//! Learning from data: adapters of a local model, by `waltz train sft`.
//!
//! Called by the program's `train` commands, on the thread of the caller; nothing here serves traffic.

mod error;
pub mod sft;

pub use error::Error;
