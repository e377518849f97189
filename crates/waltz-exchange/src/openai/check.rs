//! What must hold for a chat request before waltz relies on it. Fields that waltz does not read are not
//! checked: they are the upstream's business.

use serde_json::{Map, Value};

use super::ApiError;
use crate::json::Fields as _;

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Checks the fields that waltz reads; the error names the field and what is allowed.
pub(super) fn chat_request(body: &Map<String, Value>) -> Result<(), ApiError> {
    check_model(body)?;
    check_messages(body)?;
    check_scalars(body)?;
    check_moderation(body)
}

/// A model's name: short, and safe to log and to index.
pub fn check_model(body: &Map<String, Value>) -> Result<(), ApiError> {
    let model = match body.field("model") {
        None => return Err(ApiError::invalid("you must provide a `model`", Some("model"))),
        Some(Value::String(model)) => model,
        Some(_) => return Err(ApiError::invalid("`model` must be a string", Some("model"))),
    };
    if model.is_empty() || model.len() > 256 || model.chars().any(char::is_control) {
        return Err(ApiError::invalid(
            "`model` must be 1 to 256 characters without control characters",
            Some("model"),
        ));
    }
    Ok(())
}

fn check_messages(body: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(Value::Array(messages)) = body.field("messages") else {
        return Err(ApiError::invalid("`messages` must be an array", Some("messages")));
    };
    if messages.is_empty() {
        return Err(ApiError::invalid("`messages` must hold at least one message", Some("messages")));
    }
    for (position, message) in messages.iter().enumerate() {
        let at = |field: &str| format!("messages[{position}]{field}");
        let Some(message) = message.as_object() else {
            return Err(ApiError::invalid(format!("`{}` must be an object", at("")), Some(&at(""))));
        };
        let role = message.field("role").and_then(Value::as_str);
        if !role.is_some_and(|role| ROLES.contains(&role)) {
            let message = format!("`{}` must be one of {}", at(".role"), ROLES.join(", "));
            return Err(ApiError::invalid(message, Some(&at(".role"))));
        }
        match message.field("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) if parts.iter().all(Value::is_object) => {}
            Some(_) => {
                let message = format!("`{}` must be a string, null or an array of parts", at(".content"));
                return Err(ApiError::invalid(message, Some(&at(".content"))));
            }
        }
    }
    Ok(())
}

fn check_scalars(body: &Map<String, Value>) -> Result<(), ApiError> {
    let present = |name: &str| body.field(name).filter(|value| !value.is_null());
    for name in ["stream", "logprobs"] {
        if present(name).is_some_and(|value| !value.is_boolean()) {
            return Err(ApiError::invalid(format!("`{name}` must be true or false"), Some(name)));
        }
    }
    if present("n").is_some_and(|count| !count.as_u64().is_some_and(|count| (1..=128).contains(&count))) {
        return Err(ApiError::invalid("`n` must be a whole number from 1 to 128", Some("n")));
    }
    for name in ["max_tokens", "max_completion_tokens"] {
        if present(name).is_some_and(|value| !value.is_u64()) {
            return Err(ApiError::invalid(format!("`{name}` must be a whole number, 0 or more"), Some(name)));
        }
    }
    for name in ["tools", "functions"] {
        if present(name).is_some_and(|value| !value.is_array()) {
            return Err(ApiError::invalid(format!("`{name}` must be an array"), Some(name)));
        }
    }
    for name in ["stream_options", "response_format", "metadata"] {
        if present(name).is_some_and(|value| !value.is_object()) {
            return Err(ApiError::invalid(format!("`{name}` must be an object"), Some(name)));
        }
    }
    for name in ["user", "safety_identifier"] {
        if present(name).is_some_and(|value| !value.is_string()) {
            return Err(ApiError::invalid(format!("`{name}` must be a string"), Some(name)));
        }
    }
    Ok(())
}

fn check_moderation(body: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(moderation) = body.field("moderation").filter(|value| !value.is_null()) else {
        return Ok(());
    };
    if !moderation.is_object() {
        return Err(ApiError::invalid("`moderation` must be an object", Some("moderation")));
    }
    for side in ["input", "output"] {
        let mode = moderation
            .field("policy")
            .and_then(|policy| policy.get(side))
            .and_then(|side| side.field("mode"));
        if mode.is_some_and(|mode| !matches!(mode.as_str(), Some("score" | "block"))) {
            let param = format!("moderation.policy.{side}.mode");
            return Err(ApiError::invalid(format!("`{param}` must be \"score\" or \"block\""), Some(&param)));
        }
    }
    Ok(())
}
