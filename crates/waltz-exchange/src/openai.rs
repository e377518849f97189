//! The OpenAI wire form: requests and answers of `/v1/chat/completions`, and its error body.
//!
//! Requests and answers are kept as the JSON objects that came, so that a field waltz does not know
//! passes through untouched; typed accessors read what waltz needs.

pub mod answer;
pub mod check;
pub mod error;
pub mod request;
pub mod stream;

pub use answer::{Answer, Choice};
pub use error::{ApiError, Retry, status_inside};
pub use request::{ChatRequest, Moderation, ModerationMode, Speaker, TextField};
pub use stream::StreamAssembler;
