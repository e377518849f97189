//! The words of an answer: every string that somebody could read, under whatever name it stands, keys included. Called for
//! what a judge reads, and for each event of a stream to know whether it holds anything beside its text.

use serde_json::{Map, Value};

use crate::json::Fields as _;

/// Fields whose strings name something or are encoded data. Such a string is no text as long as it looks like that.
const NAMING: [&str; 14] = [
    "role",
    "type",
    "id",
    "object",
    "model",
    "system_fingerprint",
    "service_tier",
    "inference_geo",
    "provider",
    "severity",
    "data",
    "url",
    "format",
    "signature",
];

/// No id has more bytes, and no name of a model or a field.
const LONGEST_NAME: usize = 128;

/// Encoded data has at least so many letters and digits for each other sign. Words have about five.
const ENCODED_RUN: usize = 16;

/// The words in the fields around the choices of an answer or of a chunk.
pub fn head_words(head: &Map<String, Value>) -> Vec<&str> {
    let mut words = Vec::new();
    for (name, value) in head.iter().filter(|(name, _)| *name != "choices") {
        collect_field(name, value, &mut words);
    }
    words
}

/// The words of a field: its name where that is more than a name, and its value.
pub(super) fn collect_field<'a>(name: &'a str, value: &'a Value, words: &mut Vec<&'a str>) {
    if !is_name(name) {
        words.push(name);
    }
    collect_words(name, value, words);
}

/// The strings of a value that are words.
pub(super) fn collect_words<'a>(name: &str, value: &'a Value, words: &mut Vec<&'a str>) {
    match value {
        _ if fills(name, value) => {}
        // What they may hold is known; anything else is words, whatever it is called inside.
        _ if matches!(name, "p" | "obfuscation" | "usage") => collect_all(name, value, words),
        Value::String(text) => {
            let names = || NAMING.contains(&name) && (is_name(text) || is_encoded(text));
            if !text.is_empty() && !names() {
                words.push(text);
            }
        }
        // One of several names could be a word of a text.
        Value::Array(items) => items.iter().for_each(|item| collect_words("", item, words)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| collect_field(name, inner, words)),
        _ => {}
    }
}

/// Whether an event is only filled up by a value.
fn fills(name: &str, value: &Value) -> bool {
    let is_scrambled =
        |text: &str| text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    value.as_str().is_some_and(|text| match name {
        "p" => is_padding(text),
        "obfuscation" => is_scrambled(text),
        _ => false,
    })
}

/// Every string of a value, but for what a usage says of how it was served.
fn collect_all<'a>(name: &str, value: &'a Value, words: &mut Vec<&'a str>) {
    let serves = |text: &str| {
        let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        matches!(name, "service_tier" | "inference_geo") && text.len() <= 16 && text.bytes().all(is_sign)
    };
    match value {
        Value::String(text) if !text.is_empty() && !serves(text) => words.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_all("", item, words)),
        Value::Object(fields) => {
            for (name, inner) in fields {
                words.extend(Some(name.as_str()).filter(|name| !is_name(name)));
                collect_all(name, inner, words);
            }
        }
        _ => {}
    }
}

/// The words of a tool call beside the name and the arguments that are read with it.
pub(super) fn collect_odd_words<'a>(call: &'a Value, words: &mut Vec<&'a str>) {
    for (name, value) in call.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("function" | "custom", Value::Object(fields)) => {
                let known = |field: &str| matches!(field, "name" | "arguments" | "input");
                let odd = fields.iter().filter(|(field, value)| !known(field) || !value.is_string());
                odd.for_each(|(field, value)| collect_field(field, value, words));
            }
            _ => collect_field(name, value, words),
        }
    }
}

/// What log-probabilities say that the message does not: their tokens spell a text, which should be the message's own.
pub(super) fn spelled(logprobs: &Value, message: &Map<String, Value>) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut words = Vec::new();
    let Value::Object(lists) = logprobs else {
        collect_words("logprobs", logprobs, &mut words);
        return words.into_iter().map(str::to_owned).collect();
    };
    for (name, list) in lists {
        let Value::Array(items) = list else {
            collect_field(name, list, &mut words);
            continue;
        };
        if !is_name(name) {
            words.push(name);
        }
        let text: String = items.iter().filter_map(token).collect();
        let said = |value: &Value| value.as_str().is_some_and(|said| said.contains(text.trim()));
        if !text.trim().is_empty() && !message.values().any(said) {
            texts.push(text);
        }
        for (name, value) in items.iter().filter_map(Value::as_object).flatten() {
            if name != "token" {
                collect_phrases(name, value, &mut words);
            }
        }
    }
    texts.extend(words.into_iter().map(str::to_owned));
    texts
}

fn token(item: &Value) -> Option<&str> {
    item.as_str().or_else(|| item.field("token")?.as_str())
}

/// The strings that are more than a token. Alternatives to a token are single ones, and nobody reads them as a text.
fn collect_phrases<'a>(name: &'a str, value: &'a Value, words: &mut Vec<&'a str>) {
    let is_phrase = |text: &str| text.len() > LONGEST_NAME || text.split_whitespace().nth(1).is_some();
    words.extend(Some(name).filter(|name| is_phrase(name)));
    match value {
        Value::String(text) => words.extend(Some(text.as_str()).filter(|text| is_phrase(text))),
        Value::Array(items) => items.iter().for_each(|item| collect_phrases("", item, words)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| collect_phrases(name, inner, words)),
        _ => {}
    }
}

/// Whether a string is what some servers fill events up with: the alphabet in its order, again and again. It says nothing, however
/// long it is.
pub(in crate::openai) fn is_padding(text: &str) -> bool {
    let alphabets = [
        "abcdefghijklmnopqrstuvwxyz0123456789",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    ];
    alphabets
        .iter()
        .any(|alphabet| text.bytes().zip(alphabet.bytes().cycle()).all(|(sign, wanted)| sign == wanted))
}

/// Whether a value of a field has words.
pub(in crate::openai) fn has_words(name: &str, value: &Value) -> bool {
    let mut words = Vec::new();
    collect_words(name, value, &mut words);
    !words.is_empty()
}

/// Leaves the counts of a usage and nothing that could be words.
pub(super) fn keep_counts(usage: &mut Value) {
    let Value::Object(counts) = usage else { return };
    counts.retain(|name, count| {
        keep_counts(count);
        is_name(name) && !matches!(count, Value::String(_) | Value::Array(_))
    });
}

/// Whether a string looks like a name: short, and in one piece.
fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a string looks like encoded data: in one piece, and with hardly any sign between letters.
fn is_encoded(text: &str) -> bool {
    let signs = text.bytes().filter(|byte| !byte.is_ascii_alphanumeric()).count();
    signs * ENCODED_RUN <= text.len() && !text.contains(char::is_whitespace)
}
