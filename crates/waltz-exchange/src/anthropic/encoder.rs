//! Chat chunks, turned into Anthropic events while they come.
//!
//! Text goes on at once. Tool calls are held until the answer ends: OpenAI may mix the pieces of several
//! calls, Anthropic's blocks come one after the other, and a call is judged whole. Thinking goes on
//! block by block, and only signed (see the module on thinking).

use serde_json::{Map, Value, json};

use super::stream::{
    Frame, block_delta, block_frames, block_start, block_stop, message_delta, message_start,
};
use super::{answer, thinking};
use crate::openai::answer::AnswerError;
use crate::openai::{Answer, StreamAssembler};

/// Turns the chunks of one chat stream into events. Only the first choice is told.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Everything but the texts that were told already.
    held: StreamAssembler,
    started: bool,
    in_text: bool,
    refused: bool,
    next_index: usize,
    /// The words of thinking for which no signed block came yet.
    thought: String,
}

impl Encoder {
    /// Takes one chunk and returns the events that it makes.
    pub fn push(&mut self, mut chunk: Map<String, Value>) -> Result<Vec<Frame>, AnswerError> {
        let mut frames = Vec::new();
        let mut first = None;
        if let Some(Value::Array(choices)) = chunk.get_mut("choices") {
            choices.retain(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
            first = choices.first_mut().and_then(|choice| choice.get_mut("delta")).map(Value::take);
            if !choices.is_empty() {
                self.start(&chunk, &mut frames);
            }
        }
        if let Some(Value::Object(mut delta)) = first {
            self.think(&mut delta, &mut frames);
            for name in ["content", "refusal"] {
                let said = delta.shift_remove(name);
                self.refused |=
                    name == "refusal" && said.as_ref().is_some_and(|said| !text_of(said).is_empty());
                self.say(&said.as_ref().map(text_of).unwrap_or_default(), &mut frames);
            }
            chunk["choices"][0]["delta"] = Value::Object(delta);
        }
        self.held.push(chunk)?;
        Ok(frames)
    }

    /// The rest of the events, all but `message_stop`: tool calls, the reason for the end, the usage.
    pub fn finish(mut self) -> Result<Vec<Frame>, AnswerError> {
        let mut frames = Vec::new();
        self.stop_text(&mut frames);
        let answer = std::mem::take(&mut self.held).finish()?;
        let mut message = answer::to_message(&answer);
        for block in message["content"].as_array().into_iter().flatten() {
            self.whole_block(block, &mut frames);
        }
        if self.refused {
            message["stop_reason"] = json!("refusal");
            message["stop_sequence"] = Value::Null;
        }
        frames.push(message_delta(&message));
        Ok(frames)
    }

    fn start(&mut self, chunk: &Map<String, Value>, frames: &mut Vec<Frame>) {
        if !self.started {
            self.started = true;
            let head = chunk.iter().filter(|(name, _)| *name != "choices");
            let head = head.map(|(name, value)| (name.clone(), value.clone())).collect();
            frames.push(message_start(answer::to_message(&Answer { head, choices: Vec::new() })));
        }
    }

    fn think(&mut self, delta: &mut Map<String, Value>, frames: &mut Vec<Frame>) {
        if let Some(Value::String(words)) = delta.shift_remove(thinking::WORDS) {
            self.thought.push_str(&words);
        }
        let Some(Value::Array(blocks)) = delta.shift_remove(thinking::BLOCKS) else { return };
        for block in &blocks {
            // Its words went on before it, for the judge; a block may say nothing else.
            match self.thought.strip_prefix(thinking::words(block)) {
                Some(rest) if thinking::is_thinking(block) => {
                    self.thought = rest.to_owned();
                    self.stop_text(frames);
                    self.whole_block(&thinking::plain(block), frames);
                }
                _ => self.thought.clear(),
            }
        }
    }

    fn say(&mut self, text: &str, frames: &mut Vec<Frame>) {
        if text.is_empty() {
            return;
        }
        if !self.in_text {
            self.in_text = true;
            frames.push(block_start(self.next_index, json!({"type": "text", "text": ""})));
        }
        frames.push(block_delta(self.next_index, json!({"type": "text_delta", "text": text})));
    }

    fn stop_text(&mut self, frames: &mut Vec<Frame>) {
        if self.in_text {
            self.in_text = false;
            frames.push(block_stop(self.next_index));
            self.next_index += 1;
        }
    }

    fn whole_block(&mut self, block: &Value, frames: &mut Vec<Frame>) {
        frames.extend(block_frames(self.next_index, block));
        self.next_index += 1;
    }
}

/// The text of a delta's content, which some upstreams send as parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}
