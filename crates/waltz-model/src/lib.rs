//! Small language models in process.

mod constraint;

pub use constraint::{Constraint, TokenMask};
