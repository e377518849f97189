//! Bodies of requests, read strictly: every endpoint takes an object.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use waltz_exchange::json;
use waltz_exchange::openai::ApiError;

/// A body that must be an object.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    json::parse_object(body)
        .map_err(|error| ApiError::invalid(format!("the request body is not valid JSON: {error}"), None))
}

/// A body that must be an object with the fields of a type.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    json::read(object(body)?)
        .map_err(|error| ApiError::invalid(format!("the request body cannot be read: {error}"), None))
}
