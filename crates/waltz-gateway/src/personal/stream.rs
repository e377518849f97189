//! Values go back into a stream chunk by chunk. An end of a text that could become a placeholder waits for
//! the next chunk; when its choice ends, what waits goes with the last one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waltz_screen::{Restorer, Vault};

use super::around;

/// The texts of one stream on their way to the client.
#[derive(Debug)]
pub struct Restoring {
    vault: Arc<Vault>,
    is_json: bool,
    texts: BTreeMap<Path, Restorer>,
}

/// Where a text stands: the index of its choice and the way through the delta.
type Path = (u64, Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    /// An element of an array, by its own `index` or else its place.
    Element(u64),
}

impl Restoring {
    /// The values of a request; `is_json` says that the answer's text is JSON.
    pub fn new(vault: Arc<Vault>, is_json: bool) -> Self {
        Self { vault, is_json, texts: BTreeMap::new() }
    }

    /// A chunk as it goes to the client.
    pub fn chunk(&mut self, data: &str) -> String {
        let Ok(Value::Object(mut chunk)) = serde_json::from_str(data) else { return data.to_owned() };
        for choice in chunk.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
            self.choice(choice);
        }
        Value::Object(chunk).to_string()
    }

    fn choice(&mut self, choice: &mut Value) {
        let Some(choice) = choice.as_object_mut() else { return };
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
        if let Some(delta) = choice.get_mut("delta") {
            self.pass("", delta, &mut (index, Vec::new()));
        }
        let ended = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
        if !ended {
            return;
        }
        let delta = choice.entry("delta").or_insert_with(|| json!({}));
        for ((_, path), restorer) in self.texts.iter_mut().filter(|((owner, _), _)| *owner == index) {
            let left = restorer.finish();
            if !left.is_empty() {
                append(delta, path, &left);
            }
        }
    }

    fn pass(&mut self, name: &str, value: &mut Value, path: &mut Path) {
        match value {
            Value::String(text) if !matches!(name, "role" | "type" | "id") => {
                let around = around(name, self.is_json);
                let restorer = self.texts.entry(path.clone()).or_default();
                *text = restorer.push(&self.vault, text, around);
            }
            Value::Array(items) => {
                for (place, item) in items.iter_mut().enumerate() {
                    let own = item.get("index").and_then(Value::as_u64);
                    path.1.push(Step::Element(own.unwrap_or(place as u64)));
                    self.pass(name, item, path);
                    path.1.pop();
                }
            }
            Value::Object(fields) => {
                for (name, inner) in fields {
                    path.1.push(Step::Field(name.clone()));
                    self.pass(name, inner, path);
                    path.1.pop();
                }
            }
            _ => {}
        }
    }
}

/// Adds to the text at the end of a path, which is made where it is missing.
fn append(value: &mut Value, path: &[Step], text: &str) {
    match path.split_first() {
        None => {
            let before = value.as_str().unwrap_or_default();
            *value = Value::String(format!("{before}{text}"));
        }
        Some((Step::Field(name), rest)) => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            append(&mut value[name.as_str()], rest, text);
        }
        Some((Step::Element(index), rest)) => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            let Some(items) = value.as_array_mut() else { return };
            let known =
                items.iter().position(|item| item.get("index").and_then(Value::as_u64) == Some(*index));
            let place = known.unwrap_or_else(|| {
                items.push(json!({"index": index}));
                items.len() - 1
            });
            append(&mut items[place], rest, text);
        }
    }
}
