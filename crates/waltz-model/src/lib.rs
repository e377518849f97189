//! Small language models in process: pull, read, tokenise, generate, encode.

mod error;
mod gguf;
mod map;

pub use error::Error;
pub use gguf::{Gguf, TensorInfo, TensorType};
