//! A chat request: checked where waltz relies on it, untouched elsewhere.

mod texts;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{ApiError, check};
use crate::json::{self, Fields as _};
pub(super) use texts::tool_call_text;
use texts::{collect_strings, message_texts, written_field};

/// The body of `POST /v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    body: Map<String, Value>,
    is_anthropic: bool,
}

/// Who wrote a text of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The operator or developer: instructions and tool definitions.
    Operator,
    /// The end user.
    User,
    /// The model, in an earlier turn.
    Assistant,
    /// A tool's result.
    Tool,
}

impl Speaker {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One text-bearing field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextField<'a> {
    /// Who wrote it.
    pub speaker: Speaker,
    /// Position of its message; `None` for fields outside the conversation.
    pub message: Option<usize>,
    /// The text.
    pub text: Cow<'a, str>,
}

impl TextField<'_> {
    /// Whether it stands in a message from the given position on, or outside the conversation: then it holds now.
    pub fn is_since(&self, start: usize) -> bool {
        self.message.is_none_or(|position| position >= start)
    }
}

/// The `moderation` parameter of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// What to do about the input.
    pub input: ModerationMode,
    /// What to do about the output.
    pub output: ModerationMode,
}

/// What to do about text that is flagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModerationMode {
    /// Report scores only.
    Score,
    /// Refuse it.
    Block,
}

impl ChatRequest {
    /// A request that waltz makes itself; the model is filled in when it is sent.
    pub fn new(model: &str, messages: Value) -> Self {
        let fields = [("model".to_owned(), Value::from(model)), ("messages".to_owned(), messages)];
        Self { body: Map::from_iter(fields), is_anthropic: false }
    }

    /// Reads and checks a body. Fields that waltz does not know are kept as they are.
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let body = json::parse_object(bytes).map_err(|error| {
            ApiError::invalid(format!("the request body is not valid JSON: {error}"), None)
        })?;
        Self::from_object(body)
    }

    /// Checks a body that was parsed already.
    pub fn from_object(body: Map<String, Value>) -> Result<Self, ApiError> {
        check::chat_request(&body)?;
        Ok(Self { body, is_anthropic: false })
    }

    /// The model that was asked for.
    pub fn model(&self) -> &str {
        self.body.field("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The conversation.
    pub fn messages(&self) -> &[Value] {
        self.body.field("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Whether a stream was asked for.
    pub fn stream(&self) -> bool {
        self.flag("stream")
    }

    /// Whether the stream should end with a usage chunk.
    pub fn include_usage(&self) -> bool {
        self.body
            .field("stream_options")
            .and_then(|options| options.field("include_usage"))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }

    /// How many choices were asked for.
    pub fn choice_count(&self) -> u64 {
        self.body.field("n").and_then(Value::as_u64).unwrap_or(1)
    }

    /// Whether the answer's text must be JSON.
    pub fn wants_json(&self) -> bool {
        let format = self
            .body
            .field("response_format")
            .and_then(|format| format.field("type"))
            .and_then(Value::as_str);
        format.is_some_and(|kind| kind != "text")
    }

    /// Whether the answer must follow a schema or be JSON, or may call a strict tool: such clients
    /// parse the text, so that a refusal belongs into `message.refusal`.
    pub fn is_structured(&self) -> bool {
        let strict_tool = self.tools().iter().any(|tool| {
            tool.field("function").and_then(|function| function.field("strict")).and_then(Value::as_bool)
                == Some(true)
        });
        self.wants_json() || strict_tool
    }

    /// The tools that are offered.
    pub fn tools(&self) -> &[Value] {
        self.body.field("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The end user: `safety_identifier`, or the older `user`.
    pub fn subject(&self) -> Option<&str> {
        let field =
            |name: &str| self.body.field(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        field("safety_identifier").or_else(|| field("user"))
    }

    /// A string in `metadata`, such as `session_id` or `task_type`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.body.field("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str)
    }

    /// The `moderation` parameter, when it was given.
    pub fn moderation(&self) -> Option<Moderation> {
        let moderation = self.body.field("moderation")?.as_object()?;
        let mode = |side: &str| {
            let mode = moderation
                .field("policy")
                .and_then(|policy| policy.get(side))
                .and_then(|side| side.field("mode"));
            if mode.and_then(Value::as_str) == Some("block") {
                ModerationMode::Block
            } else {
                ModerationMode::Score
            }
        };
        Some(Moderation { input: mode("input"), output: mode("output") })
    }

    /// Every text-bearing field, in the order of the conversation: contents and their parts, refusals, names and
    /// arguments of tool calls, tool results; then tool definitions and schemas, which are the operator's, and documents,
    /// predictions and suffixes, which are material as a tool's result is.
    pub fn texts(&self) -> Vec<TextField<'_>> {
        let mut fields = Vec::with_capacity(self.messages().len());
        for (position, message) in self.messages().iter().enumerate() {
            let speaker = match message.field("role").and_then(Value::as_str) {
                Some("user") => Speaker::User,
                Some("assistant") => Speaker::Assistant,
                Some("tool" | "function") => Speaker::Tool,
                _ => Speaker::Operator,
            };
            message_texts(message, |text| fields.push(TextField { speaker, message: Some(position), text }));
        }
        for (name, value) in &self.body {
            let mut push = |speaker, text| fields.push(TextField { speaker, message: None, text });
            match name.as_str() {
                // What the model is to work with; nobody asks for anything there.
                "documents" | "prediction" | "suffix" => {
                    written_field(name, value, &mut |text| push(Speaker::Tool, text));
                }
                "tools" | "functions" | "response_format" => {
                    let mut texts = Vec::new();
                    collect_strings(value, &mut texts);
                    texts.into_iter().for_each(|text| push(Speaker::Operator, Cow::Borrowed(text)));
                }
                // Whoever writes the other fields writes system messages too: instructions, lists of banned words.
                _ => {}
            }
        }
        fields
    }

    /// The position of the first message of the current turn: what came after the last assistant
    /// message that called no tool. Tool results of the turn belong to it.
    pub fn turn_start(&self) -> usize {
        let ended = self.messages().iter().rposition(|message| {
            message.field("role").and_then(Value::as_str) == Some("assistant")
                && message.field("tool_calls").and_then(Value::as_array).is_none_or(Vec::is_empty)
        });
        ended.map_or(0, |position| position + 1)
    }

    /// What the user asks for now: the user's texts of the current turn, else the last user text.
    pub fn user_request(&self) -> String {
        let start = self.turn_start();
        let texts = self.texts();
        let user = |field: &&TextField<'_>| field.speaker == Speaker::User;
        let current: Vec<&str> = texts
            .iter()
            .filter(user)
            .filter(|field| field.is_since(start))
            .map(|field| field.text.as_ref())
            .collect();
        if current.is_empty() {
            return texts.iter().rev().find(user).map(|field| field.text.to_string()).unwrap_or_default();
        }
        current.join("\n")
    }

    /// The body as it is, to be sent on.
    pub fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    /// The body, taken out.
    pub fn into_body(self) -> Map<String, Value> {
        self.body
    }

    /// Whether the client spoke Anthropic's form: the body then holds fields that OpenAI upstreams refuse.
    pub fn is_anthropic(&self) -> bool {
        self.is_anthropic
    }

    /// Says whether the body holds what only an Anthropic upstream understands.
    pub(crate) fn set_anthropic(&mut self, is_anthropic: bool) {
        self.is_anthropic = is_anthropic;
    }

    /// Sets a top-level field.
    pub fn set(&mut self, name: &str, value: Value) {
        self.body.insert(name.to_owned(), value);
    }

    /// Removes a top-level field.
    pub fn remove(&mut self, name: &str) {
        self.body.shift_remove(name);
    }

    /// Appends a message to the conversation.
    pub fn push_message(&mut self, message: Value) {
        if let Some(Value::Array(messages)) = self.body.get_mut("messages") {
            messages.push(message);
        }
    }

    fn flag(&self, name: &str) -> bool {
        self.body.field(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
