//! Small language models in process: pull, read, tokenise, generate, encode.

mod attention;
mod cache;
mod constraint;
mod error;
mod generate;
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
mod sample;
mod shape;
mod template;
#[cfg(test)]
mod tiny;
mod tokenizer;
mod weights;
mod worker;

pub use constraint::{Constraint, TokenMask};
pub use error::Error;
pub use generate::{Ask, EndReason, Piece, Pooling};
pub use gguf::{Gguf, TensorInfo, TensorType};
pub use kernels::{MatrixKind, Threads};
pub use llama::Model;
pub use sample::{Sampling, TokenChance};
pub use shape::Shape;
pub use template::{Message, Role, Template};
pub use tokenizer::{Decoder, Part, Tokenizer};
pub use worker::{Refusal, Room, RoomSettings};
