//! The texts of a request or an answer, wherever they stand in its JSON, and texts that are JSON themselves.

use std::borrow::Cow;

use serde_json::Value;
use waltz_exchange::json;
use waltz_screen::{Around, Vault};

use super::{Changes, around};

/// Fields that are names and data, not words: changed, they would mean something else or nothing.
const NO_WORDS: [&str; 13] = [
    "model",
    "role",
    "type",
    "id",
    "tool_call_id",
    "tool_use_id",
    "name",
    "url",
    "data",
    "file_data",
    "file_id",
    "signature",
    "format",
];

/// Whether the strings of a field are words.
fn has_words(name: &str, value: &Value) -> bool {
    // A model's thinking bears a signature and is only good as it is.
    let signed = value.get("signature").is_some_and(Value::is_string)
        && value.get("type").is_some_and(|kind| kind == "thinking");
    !signed && !NO_WORDS.contains(&name) && !value.as_str().is_some_and(is_encoded)
}

/// Whether a text is an address that holds its data itself, in base64: nobody reads words in it.
fn is_encoded(text: &str) -> bool {
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&byte);
    let data = text.strip_prefix("data:").and_then(|address| address.split_once(";base64,"));
    data.is_some_and(|(kind, data)| !kind.contains(['@', ' ']) && data.bytes().all(is_code))
}

/// Calls `visit_text` with every text of a value. `is_json` says that the field `content` is a text in JSON;
/// such texts and the arguments of tool calls are visited value by value, each with its label.
pub(super) fn visit(name: &str, value: &Value, is_json: bool, visit_text: &mut dyn FnMut(&str)) {
    if !has_words(name, value) {
        return;
    }
    match value {
        Value::String(text) => match inner_json(name, text, is_json) {
            Some(inner) => visit_data(name, &inner, visit_text),
            None => visit_text(text),
        },
        Value::Array(items) => items.iter().for_each(|item| visit(name, item, is_json, visit_text)),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, inner)| visit(name, inner, is_json, visit_text))
        }
        _ => {}
    }
}

fn visit_data(name: &str, value: &Value, visit_text: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit_text(&labelled(name, text)),
        Value::Number(number) => visit_text(&labelled(name, &number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| visit_data(name, item, visit_text)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| visit_data(name, inner, visit_text)),
        _ => {}
    }
}

/// Rewrites every text of a value as the policy says. Returns whether any changed.
pub(super) fn rewrite(name: &str, value: &mut Value, is_json: bool, changes: &mut Changes<'_>) -> bool {
    if !has_words(name, value) {
        return false;
    }
    match value {
        Value::String(text) => {
            let other = match inner_json(name, text, is_json) {
                Some(mut inner) => rewrite_data(name, &mut inner, changes).then(|| inner.to_string()),
                None => owned(changes.text(text)),
            };
            replace_with(text, other)
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |any, item| rewrite(name, item, is_json, changes) | any)
        }
        Value::Object(fields) => {
            fields.iter_mut().fold(false, |any, (name, inner)| rewrite(name, inner, is_json, changes) | any)
        }
        _ => false,
    }
}

/// Rewrites data: every string and number with the name it stands under, which says what it is.
fn rewrite_data(name: &str, value: &mut Value, changes: &mut Changes<'_>) -> bool {
    let written = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            return items.iter_mut().fold(false, |any, item| rewrite_data(name, item, changes) | any);
        }
        Value::Object(fields) => {
            return fields
                .iter_mut()
                .fold(false, |any, (name, inner)| rewrite_data(name, inner, changes) | any);
        }
        _ => return false,
    };
    let labelled = labelled(name, &written);
    let label = labelled.len() - written.len();
    let Some(mut other) = owned(changes.value(&labelled, label)) else { return false };
    *value = Value::String(other.split_off(label));
    true
}

/// Puts values in place of their placeholders. Returns whether any was there.
pub(super) fn restored(name: &str, value: &mut Value, vault: &Vault, is_json: bool) -> bool {
    match value {
        Value::String(text) => {
            let other = owned(vault.restore(text, around(name, is_json)));
            replace_with(text, other)
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |any, item| restored(name, item, vault, is_json) | any)
        }
        Value::Object(fields) => {
            fields.iter_mut().fold(false, |any, (name, inner)| restored(name, inner, vault, is_json) | any)
        }
        _ => false,
    }
}

/// A text of data with what it is called before it: `card number: 4111 1111 1111 1111`.
fn labelled(name: &str, text: &str) -> String {
    format!("{}: {text}", name.replace(['_', '-'], " "))
}

/// A text that is JSON: the arguments of a tool call, or an answer in a form that was asked for.
fn inner_json(name: &str, text: &str, is_json: bool) -> Option<Value> {
    if around(name, is_json) == Around::Text {
        return None;
    }
    // What parsers may read differently, as two equal keys, is read as it is written.
    json::parse(text.as_bytes()).ok().filter(|value| value.is_object() || value.is_array())
}

fn owned(text: Cow<'_, str>) -> Option<String> {
    if let Cow::Owned(changed) = text { Some(changed) } else { None }
}

fn replace_with(text: &mut String, other: Option<String>) -> bool {
    let changed = other.is_some();
    if let Some(other) = other {
        *text = other;
    }
    changed
}
