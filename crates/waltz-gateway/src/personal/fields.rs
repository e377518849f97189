//! The texts of a request or an answer, wherever they stand in its JSON, and texts that are JSON themselves.

use std::borrow::Cow;

use serde_json::{Map, Value};
use waltz_exchange::json;
use waltz_screen::{Around, Vault, find_pii};

use super::data::{self, Names, Piece};
use super::{Changes, around};

/// Fields that must stay as they are: changed, they would name something else or nothing.
const NO_WORDS: [&str; 11] = [
    "model",
    "role",
    "type",
    "id",
    "tool_call_id",
    "tool_use_id",
    "url",
    "file_id",
    "signature",
    "format",
    // Tokens of the text, which go when it changes.
    "logprobs",
];

/// No key, number or address that anybody could know for one is a longer run of base64's signs.
const ENCODED: usize = 256;

/// Whether the strings of a field are words.
fn has_words(name: &str, value: &Value) -> bool {
    // A model's thinking bears a signature and is only good as it is.
    let signed = value.get("signature").is_some_and(Value::is_string)
        && value.get("type").is_some_and(|kind| kind == "thinking");
    // A field that is described can have any name: what stands in an object is looked at by its own.
    let names = NO_WORDS.contains(&name) && (!value.is_object() || name == "logprobs");
    !signed && !names && !value.as_str().is_some_and(is_encoded)
}

/// Whether a text is nothing but data in base64, by itself or in an address: nobody reads words in it.
fn is_encoded(text: &str) -> bool {
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&byte);
    match text.strip_prefix("data:").and_then(|address| address.split_once(";base64,")) {
        Some((kind, data)) => !kind.contains(['@', ' ']) && data.bytes().all(is_code),
        None => text.len() > ENCODED && text.bytes().all(is_code),
    }
}

/// Whether the name of a field may hold anything personal. Hardly any does.
fn may_be_personal(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// Calls `visit_text` with every text of a value. `is_json` says that the field `content` is a text in JSON;
/// such texts and the arguments of tool calls are visited value by value, each with its label.
pub(super) fn visit(name: &str, value: &Value, is_json: bool, visit_text: &mut dyn FnMut(&str)) {
    if is_input(name, value) {
        return visit_data(name, &value.to_string(), visit_text);
    }
    if !has_words(name, value) {
        return;
    }
    match value {
        Value::String(text) if is_data(name, text, is_json) => {
            visit_data(name, text, visit_text);
            if !is_sound(text) {
                visit_text(text);
            }
        }
        Value::String(text) => visit_text(text),
        Value::Array(items) => items.iter().for_each(|item| visit(name, item, is_json, visit_text)),
        Value::Object(fields) => visit_fields(fields, is_json, visit_text),
        _ => {}
    }
}

fn visit_data(name: &str, text: &str, visit_text: &mut dyn FnMut(&str)) {
    data::walk(name, text, &mut |piece| {
        match piece {
            Piece::Name(name) if may_be_personal(name) => visit_text(name),
            Piece::Name(_) => {}
            Piece::Value(name, written) => visit_text(&labelled(name, written)),
        }
        None
    });
}

/// Calls `visit_text` with every text of an object, and with names of its fields.
pub(super) fn visit_fields(fields: &Map<String, Value>, is_json: bool, visit_text: &mut dyn FnMut(&str)) {
    fields.keys().filter(|name| may_be_personal(name)).for_each(|name| visit_text(name));
    fields.iter().for_each(|(name, inner)| visit(name, inner, is_json, visit_text));
}

/// Rewrites every text of a value as the policy says. Returns whether any changed.
pub(super) fn rewrite(name: &str, value: &mut Value, is_json: bool, changes: &mut Changes<'_>) -> bool {
    if is_input(name, value) {
        let walked = data::walk(name, &value.to_string(), &mut |piece| rewritten(piece, changes));
        let other = walked.and_then(|walked| serde_json::from_str(&walked).ok());
        return other.map(|other| *value = other).is_some();
    }
    if !has_words(name, value) {
        return false;
    }
    match value {
        Value::String(text) => {
            let is_data = is_data(name, text, is_json);
            let walked =
                is_data.then(|| data::walk(name, text, &mut |piece| rewritten(piece, changes))).flatten();
            let left = walked.as_deref().unwrap_or(text);
            let again = (!is_data || !is_sound(text)).then(|| owned(changes.text(left))).flatten();
            replace_with(text, again.or(walked))
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |any, item| rewrite(name, item, is_json, changes) | any)
        }
        Value::Object(fields) => rewrite_fields(fields, is_json, changes),
        _ => false,
    }
}

/// Rewrites every text of an object, and names of its fields. Returns whether any changed.
pub(super) fn rewrite_fields(
    fields: &mut Map<String, Value>,
    is_json: bool,
    changes: &mut Changes<'_>,
) -> bool {
    let any = rewrite_names(fields, changes);
    fields.iter_mut().fold(any, |any, (name, inner)| rewrite(name, inner, is_json, changes) | any)
}

/// Rewrites the names of an object's fields. Returns whether any changed.
fn rewrite_names(fields: &mut Map<String, Value>, changes: &mut Changes<'_>) -> bool {
    let mut changed = false;
    if fields.keys().any(|name| may_be_personal(name)) {
        // Two addresses may have one mask, and neither value may be lost.
        let mut names = Names::default();
        for (name, value) in std::mem::take(fields) {
            let other =
                Some(&name).filter(|name| may_be_personal(name)).and_then(|name| owned(changes.text(name)));
            changed |= other.is_some();
            fields.insert(names.place(other.unwrap_or(name)), value);
        }
    }
    changed
}

/// What stands in place of a piece of data: every string and number is looked at with the name it stands under, which says
/// what it is.
fn rewritten(piece: Piece<'_>, changes: &mut Changes<'_>) -> Option<String> {
    match piece {
        Piece::Name(name) => {
            Some(name).filter(|name| may_be_personal(name)).and_then(|name| owned(changes.text(name)))
        }
        Piece::Value(name, written) => {
            let labelled = labelled(name, written);
            let label = labelled.len() - written.len();
            owned(changes.value(&labelled, label)).map(|mut other| other.split_off(label))
        }
    }
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

/// A text of data with what it is called before it: `card number: 4539 1488 0343 6467`.
fn labelled(name: &str, text: &str) -> String {
    let name = data::label(name);
    // A name that is personal itself is looked at by itself.
    if may_be_personal(name) && !find_pii(name).is_empty() {
        return text.to_owned();
    }
    format!("{}: {text}", name.replace(['_', '-'], " "))
}

/// Whether a text is meant to be JSON: the arguments of a tool call, or an answer in a form that was asked for.
fn is_data(name: &str, text: &str, is_json: bool) -> bool {
    let start = text.trim_start_matches(|sign: char| sign.is_whitespace() || sign == '\u{feff}');
    around(name, is_json) == Around::Json && start.starts_with(['{', '[', '"'])
}

/// Whether all parsers read a text in JSON alike. What they may read differently, as two equal keys, is also read as it is written.
fn is_sound(text: &str) -> bool {
    json::parse(text.as_bytes()).is_ok()
}

/// Whether a value is what a tool is called with, in Anthropic's form: data that is no text.
fn is_input(name: &str, value: &Value) -> bool {
    name == "input" && value.is_object()
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
