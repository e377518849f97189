//! The chunks of a streamed answer, put together into the answer that a JSON body would have held.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::answer::{Answer, AnswerError, Choice, index_of, text_of};

/// Puts the chunks of a stream together into one answer.
#[derive(Debug, Default)]
pub struct StreamAssembler {
    head: Map<String, Value>,
    choices: BTreeMap<u32, Choice>,
}

impl StreamAssembler {
    /// Takes one chunk. Returns what the chunk added to the texts, per choice.
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
                // The first chunk wins, so that a stream cannot change its identity; usage comes last.
                "usage" => {
                    if !value.is_null() {
                        self.head.insert(name, value);
                    }
                }
                _ => {
                    self.head.entry(name).or_insert(value);
                }
            }
        }
        for item in items {
            let Value::Object(mut item) = item else { return Err(AnswerError::Missing("choices")) };
            let index = index_of(&item).unwrap_or(0);
            let choice = self.choices.entry(index).or_insert_with(|| Choice { index, ..Choice::default() });
            if let Some(Value::Object(delta)) = item.shift_remove("delta") {
                merge_delta(&mut choice.message, delta);
            }
            if let Some(reason) = text_of(item.shift_remove("finish_reason")) {
                choice.finish_reason = Some(reason);
            }
            for (name, value) in item {
                if name == "logprobs" {
                    merge_logprobs(&mut choice.rest, value);
                } else if name != "index" {
                    choice.rest.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// Whether every choice that began has ended.
    pub fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.values().all(|choice| choice.finish_reason.is_some())
    }

    /// Whether nothing at all was assembled.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// The whole answer.
    pub fn finish(mut self) -> Result<Answer, AnswerError> {
        if self.choices.is_empty() {
            return Err(AnswerError::Missing("choices"));
        }
        self.head.insert("object".to_owned(), json!("chat.completion"));
        Ok(Answer { head: self.head, choices: self.choices.into_values().collect() })
    }
}

fn merge_delta(message: &mut Map<String, Value>, delta: Map<String, Value>) {
    for (name, value) in delta {
        match (message.get_mut(&name), value) {
            (_, Value::Null) => {
                message.entry(name).or_insert(Value::Null);
            }
            (Some(Value::String(text)), Value::String(more)) if name != "role" => text.push_str(&more),
            (_, Value::Array(calls)) if name == "tool_calls" => {
                let held = message.entry(name).or_insert_with(|| json!([]));
                calls.into_iter().for_each(|call| merge_tool_call(held, call));
            }
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (Some(held @ Value::Object(_)), Value::Object(more)) => merge_fields(held, more),
            (Some(Value::String(_)), _) if name == "role" => {}
            (_, value) => {
                message.insert(name, value);
            }
        }
    }
}

fn merge_tool_call(held: &mut Value, call: Value) {
    let (Value::Array(calls), Value::Object(mut call)) = (held, call) else { return };
    let position = call.shift_remove("index").and_then(|index| index.as_u64()).unwrap_or(calls.len() as u64);
    // An absurd index must not make the list grow to it.
    let position = usize::try_from(position).unwrap_or(usize::MAX).min(calls.len());
    if position == calls.len() {
        calls.push(json!({}));
    }
    merge_fields(&mut calls[position], call);
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
