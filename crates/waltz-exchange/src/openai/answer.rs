//! A chat answer: read from a JSON body or assembled from a stream, written as either.

mod choice;
mod words;

use serde_json::{Map, Value, json};

use crate::json::{self, Fields as _};
pub use choice::Choice;
pub use words::head_words;
pub(super) use words::{has_words, is_padding};

/// An answer with its choices taken apart; every other field is kept as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// All top-level fields but `choices`: id, model, usage, fingerprint and whatever else came.
    pub head: Map<String, Value>,
    /// The choices in the order of their index.
    pub choices: Vec<Choice>,
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

/// The top-level fields of the form, which hold no words of the answer: what has words in them is read like any other.
pub const KNOWN_HEAD: [&str; 13] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "usage",
    "obfuscation",
    "p",
    "provider",
    "prompt_filter_results",
    "timings",
    "x_groq",
];

/// More tokens than any answer has.
const MOST_TOKENS: u64 = 1 << 40;

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
                message.field("content"),
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
        // Two choices of one number cannot be told apart, on record or by a client: then their order counts.
        if choices.windows(2).any(|pair| pair[0].index == pair[1].index) {
            (0..).zip(&mut choices).for_each(|(position, choice)| choice.index = position);
        }
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
        self.head.field("id").and_then(Value::as_str)
    }

    /// Prompt and completion tokens, when the upstream reported them.
    pub fn usage(&self) -> Option<(u64, u64)> {
        let usage = self.head.field("usage")?;
        // What no answer can have is not counted in full: sums of it would run over.
        let count =
            |name: &str| usage.field(name).and_then(Value::as_u64).map(|count| count.min(MOST_TOKENS));
        Some((count("prompt_tokens")?, count("completion_tokens")?))
    }

    /// Words in top-level fields that every client would pass over and some would show, such as citations.
    pub fn head_text(&self) -> String {
        head_words(&self.head).join("\n")
    }

    /// Drops every top-level field that is not part of the form, and what has words in those that are: they belonged to
    /// a text that was replaced.
    pub fn forget_unknown(&mut self) {
        self.head.retain(|name, value| {
            if name == "usage" {
                words::keep_counts(value);
            }
            let mut found = Vec::new();
            words::collect_words(name, value, &mut found);
            KNOWN_HEAD.contains(&name.as_str()) && found.is_empty()
        });
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
            let mut logprobs = choice.rest.field("logprobs").filter(|logprobs| !logprobs.is_null());
            for delta in choice.deltas() {
                let mut part = json!({"index": choice.index, "delta": delta, "finish_reason": null});
                // They go with the first words; clients join them per choice.
                if part["delta"].field("role").is_none()
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
        if include_usage && let Some(usage) = self.head.field("usage") {
            let mut chunk = self.chunk(json!([]), false);
            chunk["usage"] = usage.clone();
            chunks.push(chunk);
        }
        chunks
    }

    /// The chunks that are left of the first choice after a beginning of its text was sent, and the usage if it is wanted.
    /// `None` when what was sent is not its beginning: nothing can follow then.
    pub fn chunks_after(&self, sent: &str, include_usage: bool) -> Option<Vec<Value>> {
        let mut rest = self.clone();
        rest.choices.truncate(1);
        for choice in &mut rest.choices {
            if let Some(Value::String(content)) = choice.message.get_mut("content") {
                *content = content.strip_prefix(sent)?.to_owned();
            }
        }
        let mut chunks = rest.to_chunks(include_usage);
        // The role went out with the beginning.
        chunks.retain(|chunk| chunk["choices"][0]["delta"].field("role").is_none());
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

/// A finish reason is a word; anything else is not for clients to see.
pub(crate) fn reason_of(value: Option<Value>) -> Result<Option<String>, AnswerError> {
    let Some(reason) = text_of(value) else { return Ok(None) };
    let word = (1..=32).contains(&reason.len())
        && reason.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if word { Ok(Some(reason)) } else { Err(AnswerError::Missing("finish_reason")) }
}

pub(super) fn index_of(fields: &Map<String, Value>) -> Option<u32> {
    fields.field("index").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok())
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
