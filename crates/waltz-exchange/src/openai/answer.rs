//! A chat answer: read from a JSON body or assembled from a stream, written as either.

use serde_json::{Map, Value, json};

use super::request::tool_call_text;
use crate::json;

/// An answer with its choices taken apart; every other field is kept as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// All top-level fields but `choices`: id, model, usage, fingerprint and whatever else came.
    pub head: Map<String, Value>,
    /// The choices in the order of their index.
    pub choices: Vec<Choice>,
}

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

/// Why an upstream's answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not JSON, or not strict JSON. The reason could quote the answer, so that it is not told.
    #[error("the upstream's answer is not valid JSON")]
    Json,
    /// A field that every answer must have is missing or of the wrong type.
    #[error("the upstream's answer has no usable `{0}`")]
    Missing(&'static str),
}

/// Top-level fields that hold no words of the answer.
pub const KNOWN_HEAD: [&str; 9] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "usage",
    "obfuscation",
    "provider",
];

/// Fields of a message that hold the model's thinking: its words before its blocks.
const THINKING: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"];

/// The finish reasons that clients know.
pub const FINISH_REASONS: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

impl Answer {
    /// Reads a JSON answer.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        let mut head = json::parse_answer(bytes).map_err(|_| AnswerError::Json)?;
        let Some(Value::Array(items)) = head.shift_remove("choices") else {
            return Err(AnswerError::Missing("choices"));
        };
        if items.is_empty() {
            return Err(AnswerError::Missing("choices"));
        }
        let mut choices = Vec::with_capacity(items.len());
        for (position, item) in items.into_iter().enumerate() {
            let Value::Object(mut rest) = item else { return Err(AnswerError::Missing("choices")) };
            let Some(Value::Object(message)) = rest.shift_remove("message") else {
                return Err(AnswerError::Missing("choices[].message"));
            };
            let readable = matches!(
                message.get("content"),
                None | Some(Value::Null | Value::String(_) | Value::Array(_))
            );
            if !readable {
                return Err(AnswerError::Missing("choices[].message.content"));
            }
            choices.push(Choice {
                index: index_of(&rest).unwrap_or(u32::try_from(position).unwrap_or(u32::MAX)),
                message,
                finish_reason: reason_of(rest.shift_remove("finish_reason"))?,
                rest,
            });
        }
        choices.sort_by_key(|choice| choice.index);
        Ok(Self { head, choices })
    }

    /// An answer that waltz writes itself, with one choice.
    pub fn written(id: String, created: i64, model: &str, text: &str) -> Self {
        let head = json!({"id": id, "object": "chat.completion", "created": created, "model": model});
        let mut choice = Choice::default();
        choice.message.insert("role".to_owned(), json!("assistant"));
        choice.replace_text(text, false);
        choice.rest.insert("logprobs".to_owned(), Value::Null);
        Self { head: into_object(head), choices: vec![choice] }
    }

    /// The answer's id.
    pub fn id(&self) -> Option<&str> {
        self.head.get("id").and_then(Value::as_str)
    }

    /// Prompt and completion tokens, when the upstream reported them.
    pub fn usage(&self) -> Option<(u64, u64)> {
        let usage = self.head.get("usage")?;
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        Some((count("prompt_tokens")?, count("completion_tokens")?))
    }

    /// Words in top-level fields that every client would pass over and some would show, such as citations.
    pub fn head_text(&self) -> String {
        let mut words = Vec::new();
        for (name, value) in &self.head {
            if !KNOWN_HEAD.contains(&name.as_str()) {
                collect_words(name, value, &mut words);
            }
        }
        words.join("\n")
    }

    /// Drops every top-level field that is not part of the form: it belonged to a text that was replaced.
    pub fn forget_unknown(&mut self) {
        self.head.retain(|name, _| KNOWN_HEAD.contains(&name.as_str()));
    }

    /// The answer as a JSON body.
    pub fn to_json(&self) -> Value {
        let mut body = Map::new();
        for (name, value) in &self.head {
            // `choices` stands before `usage`, where clients and people look for it.
            if name == "usage" {
                body.insert("choices".to_owned(), self.choices_json());
            }
            body.insert(name.clone(), value.clone());
        }
        if !body.contains_key("choices") {
            body.insert("choices".to_owned(), self.choices_json());
        }
        Value::Object(body)
    }

    /// The answer as stream chunks: role, text or tool calls, finish reason for each choice, and
    /// the usage chunk when the client asked for it.
    pub fn to_chunks(&self, include_usage: bool) -> Vec<Value> {
        let mut chunks = Vec::new();
        for choice in &self.choices {
            let mut logprobs = choice.rest.get("logprobs").filter(|logprobs| !logprobs.is_null());
            for delta in choice.deltas() {
                let mut part = json!({"index": choice.index, "delta": delta, "finish_reason": null});
                // They go with the first words; clients join them per choice.
                if part["delta"].get("role").is_none()
                    && let Some(logprobs) = logprobs.take()
                {
                    part["logprobs"] = logprobs.clone();
                }
                chunks.push(self.chunk(json!([part]), include_usage));
            }
            let finish = choice.finish_reason.as_deref().unwrap_or("stop");
            chunks.push(self.chunk(
                json!([{"index": choice.index, "delta": {}, "finish_reason": finish}]),
                include_usage,
            ));
        }
        if include_usage && let Some(usage) = self.head.get("usage") {
            let mut chunk = self.chunk(json!([]), false);
            chunk["usage"] = usage.clone();
            chunks.push(chunk);
        }
        chunks
    }

    /// The chunks that are left of the first choice after a beginning of its text was sent, and the usage.
    /// `None` when what was sent is not its beginning: nothing can follow then.
    pub fn chunks_after(&self, sent: &str) -> Option<Vec<Value>> {
        let mut rest = self.clone();
        rest.choices.truncate(1);
        for choice in &mut rest.choices {
            if let Some(Value::String(content)) = choice.message.get_mut("content") {
                *content = content.strip_prefix(sent)?.to_owned();
            }
        }
        let mut chunks = rest.to_chunks(self.head.contains_key("usage"));
        // The role went out with the beginning.
        chunks.retain(|chunk| chunk["choices"][0]["delta"].get("role").is_none());
        Some(chunks)
    }

    /// A chunk of this answer's stream with the given choices.
    pub fn chunk(&self, choices: Value, null_usage: bool) -> Value {
        let mut chunk = Map::new();
        for (name, value) in &self.head {
            if name != "usage" {
                chunk.insert(name.clone(), value.clone());
            }
        }
        chunk.insert("object".to_owned(), json!("chat.completion.chunk"));
        chunk.insert("choices".to_owned(), choices);
        if null_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        Value::Object(chunk)
    }

    fn choices_json(&self) -> Value {
        Value::Array(self.choices.iter().map(Choice::to_json).collect())
    }
}

impl Choice {
    /// Everything in the choice that a person or a tool would read: the content first, then every other
    /// field that holds words, known or not, and the tool calls last.
    pub fn text(&self) -> String {
        // Most answers are a text and nothing else.
        if let Some(text) = self.plain_text() {
            return text.to_owned();
        }
        let mut parts = Vec::new();
        if let Some(content) = self.message.get("content") {
            collect_words("content", content, &mut parts);
        }
        for (name, value) in &self.message {
            let read_below = name == "tool_calls" && value.is_array();
            if name != "content" && !read_below {
                collect_words(name, value, &mut parts);
            }
        }
        self.tool_calls().iter().for_each(|call| collect_odd_words(call, &mut parts));
        for (name, value) in &self.rest {
            if name != "logprobs" {
                collect_words(name, value, &mut parts);
            }
        }
        let acts = self.acts();
        parts.extend((!acts.is_empty()).then_some(acts.as_str()));
        parts.join("\n")
    }

    /// What the choice would do: its tool calls as one text, empty when there are none.
    pub fn acts(&self) -> String {
        let mut acts: Vec<String> = self.tool_calls().iter().map(tool_call_text).collect();
        if let Some(call) = self.message.get("function_call").filter(|call| call.is_object()) {
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
        let rest = self.rest.iter().all(|(name, value)| name == "logprobs" || value.is_null());
        (alone && rest).then(|| self.message.get("content").and_then(Value::as_str)).flatten()
    }

    /// Whether the reason for its end came.
    pub(super) fn has_ended(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The tool calls of the message.
    pub fn tool_calls(&self) -> &[Value] {
        self.message.get("tool_calls").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Puts a new text in place of everything the message said: tool calls, reasoning, log-probabilities
    /// and fields that waltz does not know belong to the old text and go with it. `as_refusal` puts it
    /// where structured clients look.
    pub fn replace_text(&mut self, text: &str, as_refusal: bool) {
        self.message.retain(|name, _| name == "role");
        let (content, refusal) =
            if as_refusal { (Value::Null, json!(text)) } else { (json!(text), Value::Null) };
        self.message.insert("content".to_owned(), content);
        self.message.insert("refusal".to_owned(), refusal);
        self.finish_reason = Some("stop".to_owned());
        self.rest.clear();
        self.rest.insert("logprobs".to_owned(), Value::Null);
    }

    fn to_json(&self) -> Value {
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

    fn deltas(&self) -> Vec<Value> {
        let role = self.message.get("role").cloned().unwrap_or_else(|| json!("assistant"));
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

/// The strings of a value that are words. Identifiers, addresses and encoded data hold no blank; a string
/// with one is read under whatever name it stands.
fn collect_words<'a>(name: &str, value: &'a Value, words: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => {
            let data = matches!(name, "role" | "type" | "id" | "data" | "url" | "format" | "signature");
            if !text.is_empty() && (!data || text.contains(char::is_whitespace)) {
                words.push(text);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_words(name, item, words)),
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| collect_words(name, inner, words)),
        _ => {}
    }
}

/// The words of a tool call beside the name and the arguments that [`tool_call_text`] reads.
fn collect_odd_words<'a>(call: &'a Value, words: &mut Vec<&'a str>) {
    for (name, value) in call.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("function" | "custom", Value::Object(fields)) => {
                let known = |field: &str| matches!(field, "name" | "arguments" | "input");
                let odd = fields.iter().filter(|(field, value)| !known(field) || !value.is_string());
                odd.for_each(|(field, value)| collect_words(field, value, words));
            }
            _ => collect_words(name, value, words),
        }
    }
}

/// A finish reason is a word; anything else is not for clients to see.
pub(crate) fn reason_of(value: Option<Value>) -> Result<Option<String>, AnswerError> {
    let Some(reason) = text_of(value) else { return Ok(None) };
    let word = (1..=32).contains(&reason.len())
        && reason.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if word { Ok(Some(reason)) } else { Err(AnswerError::Missing("finish_reason")) }
}

pub(super) fn index_of(fields: &Map<String, Value>) -> Option<u32> {
    fields.get("index").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok())
}

pub(super) fn text_of(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
#[path = "answer/tests.rs"]
mod tests;
