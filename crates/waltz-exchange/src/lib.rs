//! The vocabulary of waltz: what an exchange is made of, as plain data, and the wire forms of the
//! APIs it speaks. Every other crate depends on this one; this one depends on none of ours.
//!
//! Nothing here does I/O, reads a clock or draws a random number except the two functions in
//! [`id`] that make new identifiers.

pub mod anthropic;
pub mod category;
pub mod embedding;
pub mod id;
pub mod json;
pub mod openai;
pub mod outcome;
pub mod policy;
pub mod proposal;
pub mod record;
pub mod release;
pub mod rollback;
pub mod score;
pub mod sse;
pub mod trajectory;
pub mod variant;
pub mod verdict;

pub use category::Category;
pub use embedding::Embedding;
pub use outcome::Outcome;
pub use policy::{Depth, Risk};
pub use record::{Decision, ExchangeRecord, PastCoaching};
pub use trajectory::Trajectory;
pub use verdict::{Issue, Level, Span, Verdict, VerdictState};
