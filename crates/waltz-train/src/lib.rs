//! Learning from data. So far: the linear judge, by `waltz train judge`.
//!
//! Called by the program's `train` commands, on the thread of the caller; nothing here serves traffic.

mod error;
pub mod judge;

pub use error::Error;
