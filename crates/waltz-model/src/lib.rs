//! Small language models in process: pull, read, tokenise, generate, encode.

mod attention;
mod cache;
mod constraint;
mod error;
mod gguf;
mod kernels;
mod llama;
mod map;
mod packed;
mod quant;
#[cfg(test)]
mod real;
#[cfg(test)]
mod reference;
mod shape;
mod template;
#[cfg(test)]
mod tiny;
mod tokenizer;
mod weights;

pub use constraint::{Constraint, TokenMask};
pub use error::Error;
pub use gguf::{Gguf, TensorInfo, TensorType};
pub use kernels::{MatrixKind, Threads};
pub use llama::Model;
pub use shape::Shape;
pub use template::{Message, Role, Template};
pub use tokenizer::{Decoder, Part, Tokenizer};
