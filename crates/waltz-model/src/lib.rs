//! Small language models in process: pull, read, tokenise, generate, encode.

mod catalogue;
mod constrain;
mod constraint;
mod error;
mod gguf;
mod map;
mod models;
mod pull;
#[cfg(test)]
mod real;
mod template;
mod tokenizer;

pub use catalogue::{KNOWN, KnownFile, KnownModel, ModelName};
pub use constrain::{Field, FieldKind, ObjectConstraint, Schema, TokenIndex};
pub use constraint::{Constraint, TokenMask};
pub use error::Error;
pub use gguf::{Gguf, TensorInfo, TensorType};
pub use models::{Models, Progress, Step, Stored, StoredFile};
pub use pull::{PullSettings, pull};
pub use template::{Message, Role, Template};
pub use tokenizer::{Decoder, Part, Tokenizer};
