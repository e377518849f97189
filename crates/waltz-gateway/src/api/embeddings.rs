//! `POST /v1/embeddings`: passed through to the upstream that serves the model, and recorded.

use std::collections::HashMap;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use waltz_coach::upstream::Call;
use waltz_exchange::openai::ApiError;

use crate::api::pass_through::PassThrough;

/// The path.
pub const EMBEDDINGS: &str = "/v1/embeddings";

/// How such a request is passed through.
pub const PASS: PassThrough = PassThrough {
    purpose: "embeddings",
    call: Call::Embeddings,
    check,
    targets: |_, targets| Ok(targets.to_vec()),
    answer,
};

fn check(body: &Map<String, Value>) -> Result<(), ApiError> {
    if body.get("input").is_none_or(Value::is_null) {
        return Err(ApiError::invalid("`input` must be a string or an array", Some("input")));
    }
    Ok(())
}

fn answer(bytes: Bytes) -> Result<Bytes, &'static str> {
    // Vectors are many values; nothing of them is needed but that they are an object.
    match serde_json::from_slice::<HashMap<String, IgnoredAny>>(&bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err("not a JSON object"),
    }
}
