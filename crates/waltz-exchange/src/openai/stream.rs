//! The chunks of a streamed answer, put together into the answer that a JSON body would have held.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::answer::{Answer, AnswerError, Choice, has_words, index_of, is_padding, reason_of};
use crate::json::Fields as _;

/// Puts the chunks of a stream together into one answer.
#[derive(Debug, Default)]
pub struct StreamAssembler {
    head: Map<String, Value>,
    /// What fields around the choices were changed to, in turn.
    changes: Vec<(String, Value)>,
    choices: BTreeMap<u32, Growing>,
}

/// How often a stream may change what it says of itself.
const MOST_CHANGES: usize = 4;

/// A choice of which more may come.
#[derive(Debug, Default)]
struct Growing {
    choice: Choice,
    /// Where the calls stand in the message, by the numbers that they bear.
    calls: BTreeMap<u64, usize>,
}

impl StreamAssembler {
    /// Whether a chunk belongs to this stream: it has the id that the stream began with, and adds nothing to
    /// a choice that has ended. A repeated piece of text cannot be told from a text that repeats itself.
    pub fn continues(&self, chunk: &Map<String, Value>) -> bool {
        if let (Some(known), Some(id)) = (id_of(&self.head), id_of(chunk))
            && known != id
        {
            return false;
        }
        let items = chunk.field("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        items.iter().filter_map(Value::as_object).all(|item| {
            let ended = self.choices.get(&index_of(item).unwrap_or(0)).is_some_and(Growing::has_ended);
            let adds = |name: &str| item.field(name).is_some_and(|value| !is_blank(value));
            !ended || !(adds("delta") || adds("finish_reason"))
        })
    }

    /// Whether the fields around the choices of a chunk say what those of the stream said so far. A model may be told by its
    /// whole name after a while; one that changes again and again could spell a text, word by word.
    pub fn keeps_head(&mut self, chunk: &Map<String, Value>) -> bool {
        for (name, value) in chunk.iter().filter(|(name, _)| !matches!(name.as_str(), "usage" | "choices")) {
            if self.changes.len() > MOST_CHANGES {
                return false;
            }
            // Words are read as they stood first.
            let read = self.head.field(name).filter(|read| !is_blank(read));
            if read.is_some_and(|read| read != value) && has_words(name, value) {
                return false;
            }
            let latest =
                self.changes.iter().rev().find(|(changed, _)| changed == name).map(|(_, value)| value);
            let held = latest.or_else(|| self.head.field(name));
            let same = |held: &Value| value == held || is_blank(value) || is_blank(held);
            if has_strings(value) && !held.is_none_or(same) {
                self.changes.push((name.clone(), value.clone()));
            }
        }
        self.changes.len() <= MOST_CHANGES
    }

    /// Takes one chunk. A field that changes its type is an error: what was judged must be what was sent.
    pub fn push(&mut self, chunk: Map<String, Value>) -> Result<(), AnswerError> {
        let mut items = Vec::new();
        for (name, value) in chunk {
            match name.as_str() {
                "choices" => match value {
                    Value::Array(found) => items = found,
                    Value::Null => {}
                    _ => return Err(AnswerError::Missing("choices")),
                },
                "obfuscation" => {}
                "p" if value.as_str().is_some_and(is_padding) => {}
                // Usage comes last, and counts all.
                "usage" => {
                    if !value.is_null() {
                        self.head.insert(name, value);
                    }
                }
                // The first one wins, so that a stream cannot change its identity. Some upstreams know theirs only after a
                // chunk or two.
                _ => {
                    let held = self.head.entry(name).or_insert(Value::Null);
                    if is_blank(held) {
                        *held = value;
                    }
                }
            }
        }
        for item in items {
            let Value::Object(mut item) = item else { return Err(AnswerError::Missing("choices")) };
            let index = index_of(&item).unwrap_or(0);
            let growing = self.choices.entry(index).or_default();
            let Growing { choice, calls } = growing;
            choice.index = index;
            match item.shift_remove("delta") {
                Some(Value::Object(delta)) => merge_delta(&mut choice.message, delta, calls)?,
                None | Some(Value::Null) => {}
                Some(_) => return Err(AnswerError::Missing("choices[].delta")),
            }
            if let Some(reason) = reason_of(item.shift_remove("finish_reason"))? {
                choice.finish_reason = Some(reason);
            }
            for (name, value) in item {
                if name == "logprobs" {
                    merge_logprobs(&mut choice.rest, value);
                } else if name != "index" {
                    merge_field(&mut choice.rest, name, value)?;
                }
            }
        }
        Ok(())
    }

    /// Whether every choice that began has ended.
    pub fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.values().all(Growing::has_ended)
    }

    /// The whole answer.
    pub fn finish(mut self) -> Result<Answer, AnswerError> {
        if self.choices.is_empty() {
            return Err(AnswerError::Missing("choices"));
        }
        self.head.insert("object".to_owned(), json!("chat.completion"));
        let mut choices: Vec<Choice> = self.choices.into_values().map(|growing| growing.choice).collect();
        for call in choices
            .iter_mut()
            .filter_map(|choice| choice.message.get_mut("tool_calls")?.as_array_mut())
            .flatten()
        {
            if let Some(call) = call.as_object_mut() {
                call.shift_remove("index");
            }
        }
        Ok(Answer { head: self.head, choices })
    }
}

impl Growing {
    fn has_ended(&self) -> bool {
        self.choice.has_ended()
    }
}

fn id_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.field("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// Whether a string stands anywhere in a value.
fn has_strings(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(items) => items.iter().any(has_strings),
        Value::Object(fields) => fields.values().any(has_strings),
        _ => false,
    }
}

/// Whether a value says nothing: null, empty, or made of such values alone.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_blank),
        Value::Object(fields) => fields.iter().all(|(name, value)| name == "role" || is_blank(value)),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn merge_delta(
    message: &mut Map<String, Value>,
    delta: Map<String, Value>,
    places: &mut BTreeMap<u64, usize>,
) -> Result<(), AnswerError> {
    for (name, value) in delta {
        match (name.as_str(), value) {
            ("role", Value::String(role)) => {
                message.entry(name).or_insert(Value::String(role));
            }
            ("tool_calls", Value::Array(calls)) => {
                let held = message.entry(name).or_insert_with(|| json!([]));
                if held.is_null() {
                    *held = json!([]);
                }
                calls.into_iter().for_each(|call| merge_tool_call(held, call, places));
            }
            (_, value) => merge_field(message, name, value)?,
        }
    }
    Ok(())
}

/// Adds a value to a field: texts and lists grow, objects are joined, and nothing that came is ever
/// replaced.
fn merge_field(fields: &mut Map<String, Value>, name: String, value: Value) -> Result<(), AnswerError> {
    match (fields.get_mut(&name), value) {
        (None, value) => {
            fields.insert(name, value);
        }
        (Some(held @ Value::Null), value) => *held = value,
        (Some(_), Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
        (Some(held @ Value::Object(_)), Value::Object(more)) => merge_fields(held, more),
        (Some(held), value) if *held == value => {}
        (Some(Value::Number(_) | Value::Bool(_)), Value::Number(_) | Value::Bool(_)) => {}
        (Some(_), _) => return Err(AnswerError::Missing("field of one type")),
    }
    Ok(())
}

/// Adds a fragment to the call of the same index.
fn merge_tool_call(held: &mut Value, call: Value, places: &mut BTreeMap<u64, usize>) {
    let (Value::Array(calls), Value::Object(fragment)) = (held, call) else { return };
    let index = fragment.field("index").and_then(Value::as_u64);
    let known = index.and_then(|index| places.get(&index).copied()).and_then(|place| calls.get_mut(place));
    match known {
        Some(call) => merge_fields(call, fragment),
        None => {
            places.extend(index.map(|index| (index, calls.len())));
            calls.push(Value::Object(fragment));
        }
    }
}

fn merge_fields(held: &mut Value, more: Map<String, Value>) {
    let Value::Object(fields) = held else { return };
    for (name, value) in more {
        match (fields.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more))
                if matches!(name.as_str(), "arguments" | "input") =>
            {
                text.push_str(&more);
            }
            (Some(inner @ Value::Object(_)), Value::Object(more)) => merge_fields(inner, more),
            (Some(Value::String(_)), Value::String(_)) => {}
            (_, value) => {
                fields.insert(name, value);
            }
        }
    }
}

fn merge_logprobs(rest: &mut Map<String, Value>, value: Value) {
    match (rest.get_mut("logprobs"), value) {
        (Some(Value::Object(held)), Value::Object(more)) => {
            for (name, value) in more {
                match (held.get_mut(&name), value) {
                    (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
                    (_, value) => {
                        held.insert(name, value);
                    }
                }
            }
        }
        (Some(Value::Object(_)), _) => {}
        (_, value) => {
            rest.insert("logprobs".to_owned(), value);
        }
    }
}
