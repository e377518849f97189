//! A Messages request as a chat request, and the other way round.
//!
//! What only an Anthropic upstream understands (`thinking`, cache marks, signed thinking blocks, the
//! error mark of a tool result) stays in the chat form under its own name and reaches such an upstream;
//! [`for_openai`] takes it out for the others. Lost on the way between two that speak Anthropic are fields
//! that waltz does not know, those of `NOT_PASSED`, metadata but the user's id, citations, cache marks of
//! tool calls, and the order of a turn's blocks, which is thinking, text, calls in the chat form.

use serde_json::{Map, Value, json};

use super::error::invalid;
use super::{content, thinking, tools, turns};
use crate::openai::{ApiError, ChatRequest};

/// How many tokens an answer may have when a chat request sets no limit; Anthropic requires one.
pub const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The sampling fields, which [`from_chat`] passes on. Anthropic's own API refuses them since
/// `anthropic-version: 2026-10-21` and for models from Opus 4.7 on: remove them for such an upstream.
pub const SAMPLING_FIELDS: [&str; 3] = ["temperature", "top_p", "top_k"];

/// Fields without a chat form that an Anthropic upstream gets back as they came.
const PASSED_BACK: [&str; 5] = ["thinking", "output_config", "cache_control", "inference_geo", "speed"];

/// Further fields without a chat form, which no upstream gets: a judge does not read the instructions
/// they may hold, and they need request headers of their own.
const NOT_PASSED: [&str; 5] =
    ["container", "context_management", "diagnostics", "user_profile_id", "workspace_id"];

/// Fields of the chat form that would change how many answers come, or in what form.
const ONLY_CHAT: [&str; 15] = [
    "audio",
    "function_call",
    "functions",
    "logprobs",
    "max_completion_tokens",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "response_format",
    "safety_identifier",
    "stop",
    "stream_options",
    "top_logprobs",
    "web_search_options",
];

/// Reads a Messages request. The error names the field and what is allowed.
///
/// Thinking of earlier turns goes to `reasoning_content` and `thinking_blocks` of its message: a judge
/// can read it, and it is never sent as the assistant's text. `max_tokens` becomes
/// `max_completion_tokens`. A field that waltz does not know keeps its name, unless the chat form gives
/// that name a meaning, or it would let the provider call other hosts: then it is refused.
pub fn to_chat(body: Map<String, Value>) -> Result<ChatRequest, ApiError> {
    let mut chat = Map::new();
    let mut system = None;
    let mut messages = None;
    for (name, value) in body {
        if value.is_null() {
            continue;
        }
        match name.as_str() {
            "system" => system = content::system(value)?,
            "messages" => messages = Some(content::messages(value)?),
            "max_tokens" => {
                chat.insert("max_completion_tokens".to_owned(), max_tokens(value)?);
            }
            "stop_sequences" => {
                chat.insert("stop".to_owned(), stop_sequences(value)?);
            }
            "tools" => {
                chat.insert(name, tools::definitions_to_chat(value)?);
            }
            "tool_choice" => tools::choice_to_chat(&value, &mut chat)?,
            "metadata" => metadata_to_chat(value, &mut chat)?,
            "output_config" => output_config_to_chat(value, &mut chat)?,
            "service_tier" => {
                let tier = if value == "standard_only" { json!("default") } else { value };
                chat.insert(name, tier);
            }
            "stream" => {
                if value == true {
                    // An Anthropic stream always tells the usage.
                    chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
                }
                chat.insert(name, value);
            }
            "mcp_servers" => return Err(invalid("mcp_servers", "is not supported; leave it out")),
            field if ONLY_CHAT.contains(&field) => {
                return Err(invalid(field, "is no field of the Messages API; leave it out"));
            }
            _ => {
                chat.insert(name, value);
            }
        }
    }
    let Some(mut messages) = messages else {
        return Err(invalid("messages", "must be an array with at least one message"));
    };
    if !chat.contains_key("max_completion_tokens") {
        return Err(invalid("max_tokens", "is required: a whole number, 1 or more"));
    }
    if let Some(system) = system {
        messages.insert(0, system);
    }
    chat.insert("messages".to_owned(), Value::Array(messages));
    let mut request = ChatRequest::from_object(chat)?;
    request.set_anthropic(true);
    Ok(request)
}

/// Writes a Messages request for an Anthropic upstream that knows the model by the given name.
///
/// System and developer messages move to `system`, whatever their place. A `response_format` becomes an
/// instruction there, or `output_config.format` when the client spoke Anthropic. Not expressible and
/// left out: `n` above one (ask so many times), penalties, `seed`, `logit_bias`, `logprobs`, sound,
/// files by id, tools that the client does not run, texts of nothing but white space.
pub fn from_chat(request: &ChatRequest, model: &str) -> Map<String, Value> {
    let chat = request.body();
    let present = |name: &str| chat.get(name).filter(|value| !value.is_null());
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model));
    let limit = ["max_completion_tokens", "max_tokens"].iter().find_map(|name| present(name)?.as_u64());
    body.insert(
        "max_tokens".to_owned(),
        json!(limit.filter(|limit| *limit > 0).unwrap_or(DEFAULT_MAX_TOKENS)),
    );
    let mut conversation = turns::from_messages(request.messages());
    for name in PASSED_BACK {
        if let Some(value) = present(name) {
            body.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(Value::Object(config)) = body.get_mut("output_config") {
        // Only a format that stands in `response_format` was read by the judge.
        config.shift_remove("format");
    }
    if let Some(format) = present("response_format") {
        write_format(format, &mut body, &mut conversation.system);
    }
    if body.get("output_config").and_then(Value::as_object).is_some_and(Map::is_empty) {
        body.shift_remove("output_config");
    }
    if !conversation.system.is_empty() {
        body.insert("system".to_owned(), turns::content_of(conversation.system));
    }
    let messages = conversation.turns.into_iter().map(turns::Turn::into_json).collect();
    body.insert("messages".to_owned(), Value::Array(messages));
    let tools = tools::definitions_from_chat(request.tools());
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
        body.extend(tools::choice_from_chat(chat).map(|choice| ("tool_choice".to_owned(), choice)));
    }
    let stops: Vec<&Value> = match present("stop") {
        Some(Value::Array(stops)) => stops.iter().collect(),
        Some(stop) => vec![stop],
        None => Vec::new(),
    };
    let stops: Vec<&str> = stops.into_iter().filter_map(Value::as_str).collect();
    if !stops.is_empty() {
        body.insert("stop_sequences".to_owned(), json!(stops));
    }
    for name in SAMPLING_FIELDS {
        if let Some(value) = present(name) {
            // OpenAI's scale goes to 2, Anthropic's to 1.
            let too_warm = name == "temperature" && value.as_f64().is_some_and(|degree| degree > 1.0);
            body.insert(name.to_owned(), if too_warm { json!(1.0) } else { value.clone() });
        }
    }
    if let Some(subject) = request.subject() {
        body.insert("metadata".to_owned(), json!({"user_id": subject}));
    }
    match present("service_tier").and_then(Value::as_str) {
        Some("default" | "standard_only") => body.insert("service_tier".to_owned(), json!("standard_only")),
        Some("auto") => body.insert("service_tier".to_owned(), json!("auto")),
        _ => None,
    };
    if request.stream() {
        body.insert("stream".to_owned(), json!(true));
    }
    body
}

/// Takes out of a request that came through [`to_chat`] what an OpenAI upstream refuses. Images and
/// files that a tool returned move into a user message after the results, where OpenAI allows them.
pub fn for_openai(mut request: ChatRequest) -> ChatRequest {
    request.set_anthropic(false);
    for name in PASSED_BACK.into_iter().chain(NOT_PASSED) {
        request.remove(name);
    }
    let mut messages = Vec::new();
    let mut attached: Vec<Value> = Vec::new();
    for mut message in request.messages().to_vec() {
        let is_tool = message.get("role").and_then(Value::as_str) == Some("tool");
        if !is_tool && !attached.is_empty() {
            messages.push(json!({"role": "user", "content": std::mem::take(&mut attached)}));
        }
        if let Value::Object(message) = &mut message {
            for name in [thinking::WORDS, thinking::BLOCKS, "is_error", "cache_control"] {
                message.shift_remove(name);
            }
            if let Some(Value::Array(parts)) = message.get_mut("content") {
                parts.iter_mut().filter_map(Value::as_object_mut).for_each(|part| {
                    part.shift_remove("cache_control");
                });
                if is_tool {
                    detach(parts, &mut attached);
                }
            }
        }
        messages.push(message);
    }
    if !attached.is_empty() {
        messages.push(json!({"role": "user", "content": attached}));
    }
    request.set("messages", Value::Array(messages));
    let mut tools = request.tools().to_vec();
    if !tools.is_empty() {
        for tool in tools.iter_mut().filter(|tool| tool.get("function").is_some()) {
            *tool = json!({"type": "function", "function": tool["function"].take()});
        }
        request.set("tools", Value::Array(tools));
    }
    request
}

fn detach(parts: &mut Vec<Value>, attached: &mut Vec<Value>) {
    let (texts, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(parts).into_iter().partition(|part| part.get("text").is_some());
    *parts = texts;
    if parts.is_empty() {
        parts.push(json!({"type": "text", "text": "[attached below]"}));
    }
    attached.extend(others);
}

fn max_tokens(value: Value) -> Result<Value, ApiError> {
    match value.as_u64() {
        Some(limit) if limit >= 1 => Ok(value),
        _ => Err(invalid("max_tokens", "must be a whole number, 1 or more")),
    }
}

fn stop_sequences(value: Value) -> Result<Value, ApiError> {
    match &value {
        Value::Array(items) if items.iter().all(Value::is_string) => Ok(value),
        _ => Err(invalid("stop_sequences", "must be an array of strings")),
    }
}

/// The user's id becomes the safety identifier; other entries stay, for waltz reads some of them.
fn metadata_to_chat(value: Value, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Value::Object(mut metadata) = value else { return Err(invalid("metadata", "must be an object")) };
    match metadata.shift_remove("user_id") {
        None | Some(Value::Null) => {}
        Some(user @ Value::String(_)) => {
            chat.insert("safety_identifier".to_owned(), user);
        }
        Some(_) => return Err(invalid("metadata.user_id", "must be a string")),
    }
    if !metadata.is_empty() {
        chat.insert("metadata".to_owned(), Value::Object(metadata));
    }
    Ok(())
}

/// The format moves to `response_format`, where the judge reads it; the rest stays, and says to
/// [`from_chat`] that the client spoke Anthropic.
fn output_config_to_chat(value: Value, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Value::Object(mut config) = value else { return Err(invalid("output_config", "must be an object")) };
    if let Some(format) = config.shift_remove("format").filter(|format| !format.is_null()) {
        let schema = format.get("schema").filter(|schema| schema.is_object());
        let (Some("json_schema"), Some(schema)) = (format.get("type").and_then(Value::as_str), schema) else {
            return Err(invalid("output_config.format", "must be {type: json_schema, schema}"));
        };
        let schema = json!({"name": "answer", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": schema});
        chat.insert("response_format".to_owned(), format);
    }
    chat.insert("output_config".to_owned(), Value::Object(config));
    Ok(())
}

fn write_format(format: &Value, body: &mut Map<String, Value>, system: &mut Vec<Value>) {
    let schema = format.get("json_schema").and_then(|outer| outer.get("schema"));
    let instruction = match (format.get("type").and_then(Value::as_str), schema) {
        (Some("json_schema"), Some(schema)) => {
            if let Some(Value::Object(config)) = body.get_mut("output_config") {
                config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
                return;
            }
            format!(
                "Answer with one JSON value that follows this JSON schema, and with nothing before or after \
                 it:\n{schema}"
            )
        }
        (Some("json_schema" | "json_object"), _) => {
            "Answer with one JSON object, and with nothing before or after it.".to_owned()
        }
        _ => return,
    };
    system.extend(turns::text_block(&instruction));
}
