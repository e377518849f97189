//! A chat request: checked where waltz relies on it, untouched elsewhere.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{ApiError, check};
use crate::json::{self, Fields as _};

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

    /// Every text-bearing field, in the order of the conversation: contents and their parts,
    /// refusals, names and arguments of tool calls, tool results, tool definitions, schemas and
    /// predictions.
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
        for name in ["tools", "functions", "response_format", "prediction"] {
            if let Some(value) = self.body.field(name) {
                let mut texts = Vec::new();
                collect_strings(value, &mut texts);
                fields.extend(texts.into_iter().map(|text| TextField {
                    speaker: Speaker::Operator,
                    message: None,
                    text: Cow::Borrowed(text),
                }));
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
            .filter(|field| field.message.is_some_and(|position| position >= start))
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

/// Hands on the texts of one message.
fn message_texts<'a>(message: &'a Value, mut push: impl FnMut(Cow<'a, str>)) {
    match message.field("content") {
        Some(Value::String(text)) => push(Cow::Borrowed(text.as_str())),
        Some(other) => written_strings(other, &mut push),
        None => {}
    }
    let reasoning = message.field("reasoning_content").and_then(Value::as_str).unwrap_or_default();
    for (name, value) in message.as_object().into_iter().flatten() {
        match name.as_str() {
            "content" | "tool_calls" | "function_call" => {}
            // The words of Anthropic's thinking stand there once more.
            "thinking_blocks" => written_strings(value, &mut |text: Cow<'a, str>| {
                if !reasoning.contains(&*text) {
                    push(text);
                }
            }),
            _ => written_field(name, value, &mut push),
        }
    }
    let calls = message.field("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    calls.iter().for_each(|call| push(Cow::Owned(tool_call_text(call))));
    if let Some(call) = message.field("function_call").and_then(function_text) {
        push(Cow::Owned(call));
    }
}

/// Fields of a message and its parts that hold what somebody wrote, even if it is one word.
const WRITTEN: [&str; 5] = ["text", "refusal", "reasoning_content", "reasoning", "filename"];

/// Hands on the strings of a value that are words: an upstream may make a prompt of any of them.
fn written_strings<'a>(value: &'a Value, push: &mut impl FnMut(Cow<'a, str>)) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, inner)| written_field(name, inner, push)),
        Value::Array(items) => items.iter().for_each(|inner| written_strings(inner, push)),
        Value::String(text) if has_words(text) => push(Cow::Borrowed(text)),
        _ => {}
    }
}

/// Whether a string has words. Names, addresses and encoded data have no blanks, or long lines between them.
fn has_words(text: &str) -> bool {
    let words = || text.split_whitespace().take(8);
    words().count() > 1 && words().any(|word| word.len() < 40)
}

fn written_field<'a>(name: &str, value: &'a Value, push: &mut impl FnMut(Cow<'a, str>)) {
    match value {
        Value::String(text) if WRITTEN.contains(&name) => push(Cow::Borrowed(text)),
        other => written_strings(other, push),
    }
}

/// A tool call as one text: its name, and the strings inside its arguments with escapes undone, so
/// that a rule reads what the tool would get. Arguments that parsers may read differently are read as they are
/// written. A call of a form waltz does not know is read string by string.
pub(super) fn tool_call_text(call: &Value) -> String {
    if let Some(text) = call.field("function").and_then(function_text) {
        return text;
    }
    if let Some(custom) = call.field("custom")
        && let (Some(name), Some(input)) =
            (custom.field("name").and_then(Value::as_str), custom.field("input").and_then(Value::as_str))
    {
        return format!("{name}: {input}");
    }
    let mut strings = Vec::new();
    collect_pairs(None, call, &mut strings);
    strings.join("; ")
}

fn function_text(function: &Value) -> Option<String> {
    let name = function.field("name").and_then(Value::as_str).unwrap_or_default();
    let parsed;
    let arguments = match function.field("arguments") {
        None | Some(Value::Null) => return Some(format!("{name}: ")),
        Some(Value::String(text)) => match json::parse(text.as_bytes()) {
            Ok(value) => {
                parsed = value;
                &parsed
            }
            Err(_) => return Some(format!("{name}: {text}")),
        },
        // Some upstreams send the arguments as an object.
        Some(other) => other,
    };
    let mut strings = Vec::new();
    collect_pairs(None, arguments, &mut strings);
    Some(format!("{name}: {}", strings.join("; ")))
}

/// Every string of a value with the name it stands under. A name without a value is a string as well.
fn collect_pairs(key: Option<&str>, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            object.iter().for_each(|(name, inner)| collect_pairs(Some(name), inner, out));
        }
        Value::Array(items) if !items.is_empty() => {
            // The name goes with the first item: told with each of a million, it would fill the memory.
            let names = std::iter::once(key).chain(std::iter::repeat(None));
            items.iter().zip(names).for_each(|(inner, key)| collect_pairs(key, inner, out));
        }
        Value::String(text) => out.push(key.map_or_else(|| text.clone(), |key| format!("{key} {text}"))),
        Value::Object(_) | Value::Array(_) | Value::Null => out.extend(key.map(str::to_owned)),
        other => out.push(key.map_or_else(|| other.to_string(), |key| format!("{key} {other}"))),
    }
}

fn collect_strings<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => object.values().for_each(|inner| collect_strings(inner, out)),
        Value::Array(items) => items.iter().for_each(|inner| collect_strings(inner, out)),
        Value::String(text) => out.push(text),
        _ => {}
    }
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
