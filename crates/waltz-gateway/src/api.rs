//! Endpoints beside the chat path. Each file is one resource.

pub mod admin;
pub mod body;
pub mod count_tokens;
pub mod embeddings;
pub mod evaluate;
pub mod health;
pub mod metrics;
pub mod models;
pub mod moderations;
pub mod outcomes;
pub mod pass_through;
pub mod plan;
pub mod run;
pub mod sessions;
pub mod switch;
