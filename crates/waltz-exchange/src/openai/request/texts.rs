//! The texts in the JSON of a request, wherever they stand.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{self, Fields as _};

/// Hands on the texts of one message.
pub(super) fn message_texts<'a>(message: &'a Value, mut push: impl FnMut(Cow<'a, str>)) {
    match message.field("content") {
        Some(Value::String(text)) => push(Cow::Borrowed(text.as_str())),
        Some(other) => written_strings(other, &mut push),
        None => {}
    }
    let reasoning = message.field("reasoning_content").and_then(Value::as_str).unwrap_or_default();
    for (name, value) in message.as_object().into_iter().flatten() {
        match name.as_str() {
            "content" | "tool_calls" | "function_call" => {}
            // The words of Anthropic's thinking stand there once more.
            "thinking_blocks" => written_strings(value, &mut |text: Cow<'a, str>| {
                if !reasoning.contains(&*text) {
                    push(text);
                }
            }),
            _ => written_field(name, value, &mut push),
        }
    }
    let calls = message.field("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    calls.iter().for_each(|call| push(Cow::Owned(tool_call_text(call))));
    if let Some(call) = message.field("function_call").and_then(function_text) {
        push(Cow::Owned(call));
    }
}

/// Fields of a message and its parts that hold what somebody wrote, even if it is one word.
const WRITTEN: [&str; 5] = ["text", "refusal", "reasoning_content", "reasoning", "filename"];

/// Hands on the strings of a value that are words: an upstream may make a prompt of any of them.
fn written_strings<'a>(value: &'a Value, push: &mut impl FnMut(Cow<'a, str>)) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, inner)| written_field(name, inner, push)),
        Value::Array(items) => items.iter().for_each(|inner| written_strings(inner, push)),
        Value::String(text) if has_words(text) => push(Cow::Borrowed(text)),
        _ => {}
    }
}

/// Whether a string has words. Names, addresses and encoded data have no blanks, or long lines between them.
fn has_words(text: &str) -> bool {
    let words = || text.split_whitespace().take(8);
    words().count() > 1 && words().any(|word| word.len() < 40)
}

/// Hands on the words of a field: those of its name, and those of its value.
pub(super) fn written_field<'a>(name: &'a str, value: &'a Value, push: &mut impl FnMut(Cow<'a, str>)) {
    if has_words(name) {
        push(Cow::Borrowed(name));
    }
    match value {
        Value::String(text) if WRITTEN.contains(&name) => push(Cow::Borrowed(text)),
        other => written_strings(other, push),
    }
}

/// A tool call as one text: its name, and the strings inside its arguments with escapes undone, so
/// that a rule reads what the tool would get. Arguments that parsers may read differently are read as they are
/// written. A call of a form waltz does not know is read string by string.
pub(in crate::openai) fn tool_call_text(call: &Value) -> String {
    if let Some(text) = call.field("function").and_then(function_text) {
        return text;
    }
    if let Some(custom) = call.field("custom")
        && let (Some(name), Some(input)) =
            (custom.field("name").and_then(Value::as_str), custom.field("input").and_then(Value::as_str))
    {
        return format!("{name}: {input}");
    }
    let mut strings = Vec::new();
    collect_pairs(None, call, &mut strings);
    strings.join("; ")
}

fn function_text(function: &Value) -> Option<String> {
    let name = function.field("name").and_then(Value::as_str).unwrap_or_default();
    let parsed;
    let arguments = match function.field("arguments") {
        None | Some(Value::Null) => return Some(format!("{name}: ")),
        Some(Value::String(text)) => match json::parse(text.as_bytes()) {
            Ok(value) => {
                parsed = value;
                &parsed
            }
            Err(_) => return Some(format!("{name}: {text}")),
        },
        // Some upstreams send the arguments as an object.
        Some(other) => other,
    };
    let mut strings = Vec::new();
    collect_pairs(None, arguments, &mut strings);
    Some(format!("{name}: {}", strings.join("; ")))
}

/// Every string of a value with the name it stands under. A name without a value is a string as well.
fn collect_pairs(key: Option<&str>, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            object.iter().for_each(|(name, inner)| collect_pairs(Some(name), inner, out));
        }
        Value::Array(items) if !items.is_empty() => {
            // The name goes with the first item: told with each of a million, it would fill the memory.
            let names = std::iter::once(key).chain(std::iter::repeat(None));
            items.iter().zip(names).for_each(|(inner, key)| collect_pairs(key, inner, out));
        }
        Value::String(text) => out.push(key.map_or_else(|| text.clone(), |key| format!("{key} {text}"))),
        Value::Object(_) | Value::Array(_) | Value::Null => out.extend(key.map(str::to_owned)),
        other => out.push(key.map_or_else(|| other.to_string(), |key| format!("{key} {other}"))),
    }
}

/// Every string of a value.
pub(super) fn collect_strings<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => object.values().for_each(|inner| collect_strings(inner, out)),
        Value::Array(items) => items.iter().for_each(|inner| collect_strings(inner, out)),
        Value::String(text) => out.push(text),
        _ => {}
    }
}
