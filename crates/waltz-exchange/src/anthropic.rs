//! The Anthropic wire form: requests, answers, streams and errors of `/v1/messages`.
//!
//! Everything here is a pure conversion to or from the chat form of [`crate::openai`], which is what
//! the rest of waltz works on. The gateway calls it at its two edges: for a client that speaks
//! Anthropic, and for an upstream that does. What the chat form cannot say is refused by name on the
//! way in and documented where it is left out.

pub mod answer;
mod content;
mod decoder;
mod encoder;
mod error;
pub mod request;
pub mod stream;
mod thinking;
mod tools;
mod turns;
mod usage;

pub use error::{error_body, error_status};

#[cfg(test)]
mod tests;
