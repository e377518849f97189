//! The messages of a chat request, written as the turns of an Anthropic conversation.
//!
//! Anthropic has two speakers that take turns: tool results belong to the user's turn, instructions
//! stand outside of the conversation, and a text must hold more than white space.

use serde_json::{Map, Value, json};

use super::content::TOOL_ERROR;
use super::{thinking, tools};

/// A conversation in Anthropic's form.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// The texts of all system and developer messages, wherever they stood, as blocks.
    pub(super) system: Vec<Value>,
    /// The turns, user and assistant in alternation.
    pub(super) turns: Vec<Turn>,
}

/// What one speaker says before the other one does.
#[derive(Debug)]
pub(super) struct Turn {
    role: &'static str,
    blocks: Vec<Value>,
}

impl Turn {
    /// The turn as a message.
    pub(super) fn into_json(self) -> Value {
        json!({"role": self.role, "content": content_of(self.blocks)})
    }
}

/// Converts all messages.
pub(super) fn from_messages(messages: &[Value]) -> Conversation {
    let mut conversation = Conversation::default();
    for message in messages.iter().filter_map(Value::as_object) {
        let content = blocks_of(message.get("content"));
        match message.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => conversation.system.extend(content),
            Some("assistant") => conversation.add("assistant", assistant_blocks(message, content)),
            Some("tool") => conversation.add("user", vec![tool_result(message, content)]),
            _ => conversation.add("user", content),
        }
    }
    conversation
}

/// The content of a turn or of the system prompt: a string when it is one plain text.
pub(super) fn content_of(mut blocks: Vec<Value>) -> Value {
    match blocks.as_mut_slice() {
        [Value::Object(only)] if only.len() == 2 && only.contains_key("text") => {
            only.shift_remove("text").unwrap_or_default()
        }
        _ => Value::Array(blocks),
    }
}

/// A text as a block; Anthropic refuses texts of nothing but white space.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

impl Conversation {
    fn add(&mut self, role: &'static str, blocks: Vec<Value>) {
        if blocks.is_empty() {
            return;
        }
        match self.turns.last_mut() {
            Some(turn) if turn.role == role => turn.blocks.extend(blocks),
            _ => self.turns.push(Turn { role, blocks }),
        }
    }
}

fn assistant_blocks(message: &Map<String, Value>, content: Vec<Value>) -> Vec<Value> {
    let mut blocks = thinking::blocks_of(message);
    blocks.extend(content);
    blocks.extend(message.get("refusal").and_then(Value::as_str).and_then(text_block));
    if let Some(call) = message.get("function_call").filter(|call| call.is_object()) {
        // The form of before tools has no ids to pair call and result by; both are told as text.
        let field = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
        blocks.extend(text_block(&format!("[called {}] {}", field("name"), field("arguments"))));
    }
    let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    blocks.extend(calls.iter().filter_map(tools::block_from_call));
    blocks
}

fn tool_result(message: &Map<String, Value>, mut content: Vec<Value>) -> Value {
    let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
    let mut block = json!({"type": "tool_result", "tool_use_id": tools::anthropic_id(id)});
    if message.get("is_error").and_then(Value::as_bool) == Some(true) {
        block["is_error"] = json!(true);
        if let Some(first) = content.first_mut() {
            let text = first.get("text").and_then(Value::as_str).unwrap_or_default();
            let rest = text.strip_prefix(TOOL_ERROR).map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
            match rest.map(str::to_owned) {
                Some(rest) if rest.trim().is_empty() => drop(content.remove(0)),
                Some(rest) => first["text"] = json!(rest),
                None => {}
            }
        }
    }
    if !content.is_empty() {
        block["content"] = content_of(content);
    }
    if let Some(mark) = message.get("cache_control").filter(|mark| mark.is_object()) {
        block["cache_control"] = mark.clone();
    }
    block
}

/// The content of a chat message as blocks.
fn blocks_of(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::String(text)) => text_block(text).into_iter().collect(),
        Some(Value::Array(parts)) => parts.iter().filter_map(block_of).collect(),
        _ => Vec::new(),
    }
}

fn block_of(part: &Value) -> Option<Value> {
    let mut block = match part.get("type").and_then(Value::as_str) {
        Some("image_url") => image(part.get("image_url")?.get("url")?.as_str()?),
        Some("file") => document(part.get("file")?),
        Some("input_audio") => json!({"type": "text", "text": "[audio that this model cannot hear]"}),
        _ => ["text", "refusal"].iter().find_map(|name| text_block(part.get(name)?.as_str()?))?,
    };
    if let Some(mark) = part.get("cache_control").filter(|mark| mark.is_object()) {
        block["cache_control"] = mark.clone();
    }
    Some(block)
}

fn image(url: &str) -> Value {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let source = match data {
        Some((media, data)) => json!({"type": "base64", "media_type": media, "data": data}),
        None => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

fn document(file: &Value) -> Value {
    let field = |name: &str| file.get(name).and_then(Value::as_str);
    let name = field("filename").unwrap_or("document.pdf");
    let data = field("file_data").and_then(|data| data.strip_prefix("data:application/pdf;base64,"));
    let source = match (data, field("file_url")) {
        (Some(data), _) => json!({"type": "base64", "media_type": "application/pdf", "data": data}),
        (None, Some(url)) => json!({"type": "url", "url": url}),
        _ => return json!({"type": "text", "text": format!("[file {name} that this model cannot read]")}),
    };
    json!({"type": "document", "source": source, "title": name})
}
