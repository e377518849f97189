//! The events of an Anthropic stream: written from a whole answer, written while chat chunks come in
//! ([`Encoder`]), and read into chat chunks ([`Decoder`]).
//!
//! `message_stop` is never among the events that a function returns, so that the gateway can hold it
//! back until the exchange is on record.

use serde_json::{Value, json};

pub use super::decoder::{Decoder, StreamError};
pub use super::encoder::Encoder;
use super::{answer, error_body};
use crate::openai::{Answer, ApiError};

/// One event for an Anthropic client.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The event's name, which its data repeats as `type`.
    pub name: &'static str,
    /// The data.
    pub data: Value,
}

impl Frame {
    /// The event as it goes on the wire. SDKs drop events without a name.
    pub fn encode(&self) -> String {
        format!("event: {}\ndata: {}\n\n", self.name, self.data)
    }
}

/// A whole answer as events, all but the last one: that is [`message_stop`].
pub fn to_events(answer: &Answer) -> Vec<Frame> {
    let mut message = answer::to_message(answer);
    let end = message_delta(&message);
    let blocks = message["content"].take();
    let mut frames = vec![message_start(message)];
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        frames.extend(block_frames(index, block));
    }
    frames.push(end);
    frames
}

/// The event that ends a stream.
pub fn message_stop() -> Frame {
    Frame { name: "message_stop", data: json!({"type": "message_stop"}) }
}

/// An error after the stream began.
pub fn error_event(error: &ApiError) -> Frame {
    Frame { name: "error", data: error_body(error) }
}

/// The first event: the message with neither content nor end.
pub(super) fn message_start(mut message: Value) -> Frame {
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["stop_sequence"] = Value::Null;
    message["usage"]["output_tokens"] = json!(0);
    Frame { name: "message_start", data: json!({"type": "message_start", "message": message}) }
}

/// The event that tells why the message ended, what it cost, and what waltz adds. The counts are totals.
pub(super) fn message_delta(message: &Value) -> Frame {
    let mut data = json!({
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]},
        "usage": message["usage"],
    });
    for name in answer::ADDED_FIELDS {
        if let Some(value) = message.get(name) {
            data[name] = value.clone();
        }
    }
    Frame { name: "message_delta", data }
}

/// A whole block: its start, what it holds, its stop.
pub(super) fn block_frames(index: usize, block: &Value) -> Vec<Frame> {
    let mut start = block.clone();
    let mut deltas = Vec::new();
    match block["type"].as_str() {
        Some("text") => {
            start["text"] = json!("");
            deltas.push(json!({"type": "text_delta", "text": block["text"]}));
        }
        Some("tool_use") => {
            start["input"] = json!({});
            deltas.push(json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}));
        }
        Some("thinking") => {
            start["thinking"] = json!("");
            start["signature"] = json!("");
            deltas.push(json!({"type": "thinking_delta", "thinking": block["thinking"]}));
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        }
        _ => {}
    }
    let mut frames = vec![block_start(index, start)];
    frames.extend(deltas.into_iter().map(|delta| block_delta(index, delta)));
    frames.push(block_stop(index));
    frames
}

/// The start of a block.
pub(super) fn block_start(index: usize, block: Value) -> Frame {
    let data = json!({"type": "content_block_start", "index": index, "content_block": block});
    Frame { name: "content_block_start", data }
}

/// More of a block.
pub(super) fn block_delta(index: usize, delta: Value) -> Frame {
    let data = json!({"type": "content_block_delta", "index": index, "delta": delta});
    Frame { name: "content_block_delta", data }
}

/// The end of a block.
pub(super) fn block_stop(index: usize) -> Frame {
    Frame { name: "content_block_stop", data: json!({"type": "content_block_stop", "index": index}) }
}
