//! An answer as an Anthropic message, and a message as an answer.
//!
//! The chat form keeps texts, tool calls and thinking apart, so that the order between them is always
//! thinking, text, tool calls. Blocks of tools that the provider ran itself have no chat form: their
//! calls are told in `reasoning_content` for the judge, their results are left out.

use serde_json::{Map, Value, json};

use super::{thinking, tools, usage};
use crate::json;
use crate::openai::answer::{AnswerError, reason_of};
use crate::openai::{Answer, Choice};

/// The fields that waltz adds to an answer; they stand on the message under the same names.
pub(super) const ADDED_FIELDS: [&str; 2] = ["waltz", "moderation"];

/// The answer as a message. A message has one choice: the first.
pub fn to_message(answer: &Answer) -> Value {
    let text = |name: &str| answer.head.get(name).and_then(Value::as_str).unwrap_or_default();
    let choice = answer.choices.first();
    let (reason, sequence) = choice.map_or_else(|| (json!("end_turn"), Value::Null), stop_of);
    let mut message = json!({
        "id": text("id"),
        "type": "message",
        "role": "assistant",
        "model": text("model"),
        "content": choice.map(blocks_of).unwrap_or_default(),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage::to_anthropic(answer.head.get("usage")),
    });
    for name in ADDED_FIELDS {
        if let Some(value) = answer.head.get(name) {
            message[name] = value.clone();
        }
    }
    message
}

/// Reads a message. Anthropic does not say when it was made, so that the caller does, in seconds since
/// 1970.
pub fn from_message(bytes: &[u8], created: i64) -> Result<Answer, AnswerError> {
    let mut body = json::parse_answer(bytes).map_err(|_| AnswerError::Json)?;
    let Some(Value::Array(blocks)) = body.shift_remove("content") else {
        return Err(AnswerError::Missing("content"));
    };
    let mut head = head_of(&body, created);
    head.insert("object".to_owned(), json!("chat.completion"));
    if let Some(Value::Object(counts)) = body.get("usage") {
        head.insert("usage".to_owned(), usage::to_chat(counts));
    }
    let mut choice = Choice { message: message_of(&blocks)?, ..Choice::default() };
    choice.finish_reason = reason_of(body.shift_remove("stop_reason"))?.as_deref().map(finish_reason);
    choice.rest = kept_with_stop(&body);
    Ok(Answer { head, choices: vec![choice] })
}

/// The head of an answer or of its chunks.
pub(super) fn head_of(body: &Map<String, Value>, created: i64) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("id".to_owned(), body.get("id").cloned().unwrap_or_default());
    head.insert("object".to_owned(), json!("chat.completion.chunk"));
    head.insert("created".to_owned(), json!(created));
    head.insert("model".to_owned(), body.get("model").cloned().unwrap_or_default());
    head
}

/// OpenAI's reason for Anthropic's. A turn that was paused is not complete, like one cut at its limit.
pub(super) fn finish_reason(stop_reason: &str) -> String {
    let reason = match stop_reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        other => other,
    };
    reason.to_owned()
}

/// What else is known about the end, kept beside the finish reason.
pub(super) fn kept_with_stop(body: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for name in ["stop_sequence", "stop_details"] {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            kept.insert(name.to_owned(), value.clone());
        }
    }
    kept
}

/// A call that the provider made itself, told as text; `None` for other blocks.
pub(super) fn note_of(block: &Value) -> Option<String> {
    let kind = block.get("type").and_then(Value::as_str)?;
    if kind == "tool_use" || !kind.ends_with("tool_use") {
        return None;
    }
    let name = block.get("name").and_then(Value::as_str).unwrap_or_default();
    Some(format!("[{kind} {name}] {}\n", tools::arguments_of(block.get("input"))))
}

fn message_of(blocks: &[Value]) -> Result<Map<String, Value>, AnswerError> {
    let mut text: Option<String> = None;
    let mut thoughts = Vec::new();
    let mut notes = String::new();
    let mut calls = Vec::new();
    for block in blocks {
        let field = |name: &str| block.get(name).and_then(Value::as_str);
        match field("type").ok_or(AnswerError::Missing("content[].type"))? {
            "text" => {
                let more = field("text").ok_or(AnswerError::Missing("content[].text"))?;
                text.get_or_insert_default().push_str(more);
            }
            "tool_use" => {
                let id = field("id").ok_or(AnswerError::Missing("content[].id"))?;
                let name = field("name").ok_or(AnswerError::Missing("content[].name"))?;
                calls.push(tools::call(id, name, &tools::arguments_of(block.get("input"))));
            }
            _ if thinking::is_thinking(block) => thoughts.push(block.clone()),
            _ => notes.push_str(&note_of(block).unwrap_or_default()),
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(text));
    thinking::keep(&mut message, &thoughts, &notes);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Ok(message)
}

fn blocks_of(choice: &Choice) -> Vec<Value> {
    let mut blocks = thinking::blocks_of(&choice.message);
    let mut say = |text: &str| {
        if !text.is_empty() {
            blocks.push(json!({"type": "text", "text": text}));
        }
    };
    match choice.message.get("content") {
        Some(Value::String(text)) => say(text),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").or(part.get("refusal"))?.as_str());
            texts.for_each(&mut say);
        }
        _ => {}
    }
    say(refusal_of(choice).unwrap_or_default());
    let function = choice.message.get("function_call").filter(|call| call.is_object());
    if let Some(function) = function {
        // The form of before tools has no ids; there is one call at most.
        blocks.extend(tools::block_from_call(&json!({"id": "call_0", "function": function})));
    }
    blocks.extend(choice.tool_calls().iter().filter_map(tools::block_from_call));
    blocks
}

fn refusal_of(choice: &Choice) -> Option<&str> {
    choice.message.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Anthropic's reason for the end of a choice, and the stop sequence that it met.
fn stop_of(choice: &Choice) -> (Value, Value) {
    let reason = choice.finish_reason.as_deref().unwrap_or("stop");
    if refusal_of(choice).is_some() {
        return (json!("refusal"), Value::Null);
    }
    let acts =
        !choice.tool_calls().is_empty() || choice.message.get("function_call").is_some_and(Value::is_object);
    let sequence = choice.rest.get("stop_sequence").filter(|sequence| sequence.is_string());
    match reason {
        // OpenAI says `stop` when the client named the tool to call; a client of Anthropic would not
        // run it.
        "stop" if acts => (json!("tool_use"), Value::Null),
        "stop" if sequence.is_some() => (json!("stop_sequence"), sequence.cloned().unwrap_or_default()),
        "stop" => (json!("end_turn"), Value::Null),
        "length" => (json!("max_tokens"), Value::Null),
        "tool_calls" | "function_call" => (json!("tool_use"), Value::Null),
        "content_filter" => (json!("refusal"), Value::Null),
        other => (json!(other), Value::Null),
    }
}
