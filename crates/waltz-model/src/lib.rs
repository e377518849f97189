//! Small language models in process: pull, read, tokenise, generate, encode.

mod constraint;
mod error;
mod gguf;
mod map;
#[cfg(test)]
mod real;
mod template;
mod tokenizer;

pub use constraint::{Constraint, TokenMask};
pub use error::Error;
pub use gguf::{Gguf, TensorInfo, TensorType};
pub use template::{Message, Role, Template};
pub use tokenizer::{Decoder, Part, Tokenizer};
