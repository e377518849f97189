//! One choice of an answer: the words in it, and its forms as JSON and as pieces of a stream.

use serde_json::{Map, Value, json};

use super::words::{collect_field, collect_odd_words, collect_words, spelled};
use crate::json::Fields as _;
use crate::openai::request::tool_call_text;

/// One choice of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Its index.
    pub index: u32,
    /// The message.
    pub message: Map<String, Value>,
    /// Why it ended; a value waltz does not know is kept.
    pub finish_reason: Option<String>,
    /// All other fields of the choice, such as `logprobs`.
    pub rest: Map<String, Value>,
}

/// Fields of a message that hold the model's thinking: its words before its blocks.
const THINKING: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"];

impl Choice {
    /// Everything in the choice that a person or a tool would read: the content first, then every other
    /// field that holds words, known or not, and the tool calls last.
    pub fn text(&self) -> String {
        // Most answers are a text and nothing else.
        if let Some(text) = self.plain_text() {
            return text.to_owned();
        }
        let mut parts = Vec::new();
        if let Some(content) = self.message.field("content") {
            collect_words("content", content, &mut parts);
        }
        for (name, value) in &self.message {
            let read_below = name == "tool_calls" && value.is_array();
            if name != "content" && !read_below {
                collect_field(name, value, &mut parts);
            }
        }
        self.tool_calls().iter().for_each(|call| collect_odd_words(call, &mut parts));
        for (name, value) in self.rest.iter().filter(|(name, _)| *name != "logprobs") {
            collect_field(name, value, &mut parts);
        }
        let spelled = self.rest.field("logprobs").map(|logprobs| spelled(logprobs, &self.message));
        parts.extend(spelled.iter().flatten().map(String::as_str));
        let acts = self.acts();
        parts.extend((!acts.is_empty()).then_some(acts.as_str()));
        parts.join("\n")
    }

    /// What the message says to whoever asked: its content, or else its refusal. Thoughts, calls and whatever else a
    /// judge reads are left out.
    pub fn said(&self) -> Option<String> {
        let part =
            |part: &Value| (part["type"] == "text").then(|| part["text"].as_str().map(str::to_owned))?;
        let content = match self.message.field("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => parts.iter().filter_map(part).collect(),
            _ => String::new(),
        };
        let refusal = || self.message.field("refusal").and_then(Value::as_str).unwrap_or_default().to_owned();
        let said = if content.is_empty() { refusal() } else { content };
        (!said.is_empty()).then_some(said)
    }

    /// What the choice would do: its tool calls as one text, empty when there are none.
    pub fn acts(&self) -> String {
        let mut acts: Vec<String> = self.tool_calls().iter().map(tool_call_text).collect();
        if let Some(call) = self.message.field("function_call").filter(|call| call.is_object()) {
            acts.push(tool_call_text(&json!({"function": call})));
        }
        acts.join("\n")
    }

    /// What the message says, without a copy where it is a text and nothing else.
    pub fn into_text(mut self) -> String {
        if self.plain_text().is_none() {
            return self.text();
        }
        match self.message.get_mut("content") {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        }
    }

    /// The text of a message that has a role and a text and nothing else.
    fn plain_text(&self) -> Option<&str> {
        let alone = self.message.iter().all(|(name, value)| match name.as_str() {
            "content" => true,
            "role" => value == "assistant",
            _ => value.is_null(),
        });
        let rest = self.rest.iter().all(|(name, value)| name == "index" && value.is_u64() || value.is_null());
        (alone && rest).then(|| self.message.field("content").and_then(Value::as_str)).flatten()
    }

    /// Whether the reason for its end came.
    pub(crate) fn has_ended(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The tool calls of the message.
    pub fn tool_calls(&self) -> &[Value] {
        self.message.field("tool_calls").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Puts a new text in place of everything the message said: tool calls, reasoning, log-probabilities
    /// and fields that waltz does not know belong to the old text and go with it. `as_refusal` puts it
    /// where structured clients look.
    pub fn replace_text(&mut self, text: &str, as_refusal: bool) {
        self.message.clear();
        self.message.insert("role".to_owned(), json!("assistant"));
        let (content, refusal) =
            if as_refusal { (Value::Null, json!(text)) } else { (json!(text), Value::Null) };
        self.message.insert("content".to_owned(), content);
        self.message.insert("refusal".to_owned(), refusal);
        self.finish_reason = Some("stop".to_owned());
        self.rest.clear();
        self.rest.insert("logprobs".to_owned(), Value::Null);
    }

    pub(super) fn to_json(&self) -> Value {
        let mut body = Map::new();
        body.insert("index".to_owned(), json!(self.index));
        body.insert("message".to_owned(), Value::Object(self.message.clone()));
        for (name, value) in &self.rest {
            if name != "index" {
                body.insert(name.clone(), value.clone());
            }
        }
        body.insert("finish_reason".to_owned(), json!(self.finish_reason));
        Value::Object(body)
    }

    pub(super) fn deltas(&self) -> Vec<Value> {
        let role = self.message.field("role").cloned().unwrap_or_else(|| json!("assistant"));
        let mut deltas = vec![json!({"role": role, "content": ""})];
        // Clients show what comes as it comes: thinking before what it led to, and what is done last.
        let place = |name: &str| match THINKING.iter().position(|thinking| *thinking == name) {
            Some(position) => position,
            None => THINKING.len() + usize::from(name == "tool_calls" || name == "function_call"),
        };
        let mut fields: Vec<(&String, &Value)> = self.message.iter().collect();
        fields.sort_by_key(|(name, _)| place(name));
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                ("tool_calls", Value::Array(calls)) => {
                    for (position, call) in calls.iter().enumerate() {
                        let mut call = call.clone();
                        if let Some(call) = call.as_object_mut() {
                            call.insert("index".to_owned(), json!(position));
                        }
                        deltas.push(json!({"tool_calls": [call]}));
                    }
                }
                (_, Value::String(text)) if text.is_empty() => {}
                (_, value) => deltas.push(json!({ name.as_str(): value })),
            }
        }
        deltas
    }
}
