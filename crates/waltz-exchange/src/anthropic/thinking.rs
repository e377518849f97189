//! Thinking blocks beside the text of a message.
//!
//! The words of the model's thinking stand under `reasoning_content`, where a judge reads them, and the
//! signed blocks under `thinking_blocks`, so that an Anthropic upstream gets back what it signed. Blocks
//! are written only while they say exactly what `reasoning_content` says: nobody can hide words in them
//! from the judge, and a text that was replaced does not keep the thinking of the old one.

use serde_json::{Map, Value, json};

/// The field of a message that holds the words of its thinking.
pub(super) const WORDS: &str = "reasoning_content";
/// The field of a message that holds the signed blocks.
pub(super) const BLOCKS: &str = "thinking_blocks";

/// Whether a block is the model's thinking.
pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"))
}

/// The words of a block; a redacted one has none that can be read.
pub(super) fn words(block: &Value) -> &str {
    block.get("thinking").and_then(Value::as_str).unwrap_or_default()
}

/// Puts thinking into a message. A message without thinking gets no field. Each block bears its index:
/// OpenAI's stream helpers raise on a list whose items have none.
pub(super) fn keep(message: &mut Map<String, Value>, blocks: &[Value], notes: &str) {
    if blocks.is_empty() && notes.is_empty() {
        return;
    }
    let mut text: String = blocks.iter().map(words).collect();
    text.push_str(notes);
    message.insert(WORDS.to_owned(), json!(text));
    if !blocks.is_empty() {
        let indexed = blocks.iter().enumerate().map(|(index, block)| with_index(block, index)).collect();
        message.insert(BLOCKS.to_owned(), Value::Array(indexed));
    }
}

/// A block with its place in the message.
pub(super) fn with_index(block: &Value, index: usize) -> Value {
    let mut block = plain(block);
    block["index"] = json!(index);
    block
}

/// The blocks that may be written for a message, with nothing in them but what Anthropic knows.
pub(super) fn blocks_of(message: &Map<String, Value>) -> Vec<Value> {
    let (Some(Value::String(text)), Some(Value::Array(blocks))) = (message.get(WORDS), message.get(BLOCKS))
    else {
        return Vec::new();
    };
    let said: String = blocks.iter().map(words).collect();
    if said != *text || !blocks.iter().all(is_thinking) {
        return Vec::new();
    }
    blocks.iter().map(plain).collect()
}

/// A block with nothing in it but what Anthropic knows.
pub(super) fn plain(block: &Value) -> Value {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("type") == "redacted_thinking" {
        json!({"type": "redacted_thinking", "data": text("data")})
    } else {
        json!({"type": "thinking", "thinking": text("thinking"), "signature": text("signature")})
    }
}
