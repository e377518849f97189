//! Small language models in process: pull, read, tokenise, generate, encode.

mod adapter;
mod attention;
mod bert;
mod cache;
mod catalogue;
pub mod connection;
mod constrain;
mod constraint;
mod encoder;
mod error;
mod generate;
mod gguf;
mod kernels;
mod llama;
mod map;
mod minilm;
mod models;
mod neural;
mod packed;
mod pull;
mod quant;
#[cfg(test)]
mod real;
#[cfg(test)]
mod reference;
mod safetensors;
mod sample;
mod shape;
mod template;
#[cfg(test)]
mod tiny;
mod tokenizer;
pub mod train;
mod weights;
mod wordpiece;
mod worker;

pub use adapter::{Adapter, AdapterFile, AdapterNote, Agent, AgentAdapters, HeadsConfig, LoraConfig, Origin};
pub use catalogue::{KNOWN, KnownFile, KnownModel, ModelName};
pub use constrain::{Field, FieldKind, MOST_BYTES, MOST_VALUES, ObjectConstraint, Schema, TokenIndex};
pub use constraint::{Constraint, TokenMask};
pub use encoder::{Encoder, EncoderFile, EncoderNote, EncoderTokenizer};
pub use error::Error;
pub use generate::{Ask, EndReason, Piece, Pooling};
pub use gguf::{Gguf, TensorInfo, TensorType};
pub use kernels::{MatrixKind, Number, Threads};
pub use llama::Model;
pub use minilm::{EMBEDDING, MiniLm};
pub use models::{Models, PinnedFile, Progress, Step, Stored, StoredFile};
pub use neural::{Excerpt, QUESTIONS, Turns};
pub use pull::{Proxies, PullSettings, pull};
pub use safetensors::{TensorFile, Tensors};
pub use sample::{Sampling, TokenChance};
pub use shape::Shape;
pub use template::{Message, Role, Template, with_system};
pub use tokenizer::{Decoder, Part, Tokenizer};
pub use worker::{Refusal, Room, RoomSettings};
