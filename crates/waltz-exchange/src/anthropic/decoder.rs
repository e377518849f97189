//! Anthropic events, turned into chat chunks while they come, for `StreamAssembler` and for clients that
//! speak OpenAI.
//!
//! A chunk is made as soon as its event is there, but for a block of thinking, whose signature comes
//! last: its words go on at once, the signed block when it stops.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{answer, thinking, tools, usage};
use crate::json;
use crate::openai::answer::AnswerError;
use crate::sse;

/// Why a stream cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An event is not what the API promises.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The upstream reported an error inside the stream.
    #[error("the upstream reported `{kind}` inside the stream: {message}")]
    Upstream {
        /// Anthropic's error type, such as `overloaded_error`.
        kind: String,
        /// The upstream's own words.
        message: String,
    },
}

/// Turns the events of one Anthropic stream into chat chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    created: i64,
    head: Map<String, Value>,
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    thoughts: usize,
    usage: Map<String, Value>,
    ended: bool,
}

/// A block that has begun and not stopped.
#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        block: Value,
        words: String,
    },
    Call {
        position: usize,
        input: Value,
        streamed: bool,
    },
    /// A call that the provider makes itself, and its input as far as it came.
    Note {
        block: Value,
        input: String,
    },
    Other,
}

impl Decoder {
    /// A decoder for one stream. Anthropic does not say when an answer was made, so that the caller
    /// does, in seconds since 1970.
    pub fn new(created: i64) -> Self {
        Self { created, ..Self::default() }
    }

    /// Whether `message_stop` came: a stream that ends without it was cut.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The tokens that were told so far: a stream that is cut or stopped cost them too.
    pub fn usage(&self) -> Option<Value> {
        (!self.usage.is_empty()).then(|| usage::to_chat(&self.usage))
    }

    /// Takes one event and returns the chunks that it makes: none, one or, at the end, the one with the
    /// usage. Events of unknown type are ignored, as the API asks; so is what comes after the end.
    pub fn push(&mut self, event: &sse::Event) -> Result<Vec<Map<String, Value>>, StreamError> {
        if self.ended || event.name == "ping" {
            return Ok(Vec::new());
        }
        let data = json::parse_object(event.data.as_bytes()).map_err(|_| AnswerError::Json)?;
        let kind = data.get("type").and_then(Value::as_str).unwrap_or(&event.name);
        let deltas = match kind {
            "message_start" => self.message_start(&data)?,
            "content_block_start" => self.block_start(&data)?,
            "content_block_delta" => self.block_delta(&data)?,
            "content_block_stop" => self.block_stop(&data)?,
            "message_delta" => return Ok(vec![self.message_delta(&data)?]),
            "message_stop" => {
                self.ended = true;
                let mut chunk = self.chunk(json!([]));
                chunk.insert("usage".to_owned(), usage::to_chat(&self.usage));
                return Ok(vec![chunk]);
            }
            "error" => return Err(upstream_error(&data)),
            _ => Vec::new(),
        };
        let choice = |delta: Value| json!([{"index": 0, "delta": delta, "finish_reason": null}]);
        Ok(deltas.into_iter().map(|delta| self.chunk(choice(delta))).collect())
    }

    fn message_start(&mut self, data: &Map<String, Value>) -> Result<Vec<Value>, AnswerError> {
        let message = data.get("message").and_then(Value::as_object);
        let message = message.ok_or(AnswerError::Missing("message"))?;
        self.head = answer::head_of(message, self.created);
        self.count(message);
        Ok(vec![json!({"role": "assistant", "content": null})])
    }

    fn block_start(&mut self, data: &Map<String, Value>) -> Result<Vec<Value>, AnswerError> {
        if self.head.is_empty() {
            return Err(AnswerError::Missing("message_start"));
        }
        let index = index_of(data)?;
        let block = data.get("content_block").ok_or(AnswerError::Missing("content_block"))?;
        let field = |name: &str| block.get(name).and_then(Value::as_str);
        let mut deltas = Vec::new();
        let begun = match field("type") {
            Some("text") => {
                deltas.push(json!({"content": field("text").unwrap_or_default()}));
                Block::Text
            }
            Some("thinking" | "redacted_thinking") => {
                deltas.push(json!({ thinking::WORDS: thinking::words(block) }));
                Block::Thinking { block: thinking::plain(block), words: thinking::words(block).to_owned() }
            }
            Some("tool_use") => {
                let position = self.calls;
                self.calls += 1;
                let id = field("id").ok_or(AnswerError::Missing("content_block.id"))?;
                let name = field("name").ok_or(AnswerError::Missing("content_block.name"))?;
                let mut call = tools::call(id, name, "");
                call["index"] = json!(position);
                deltas.push(json!({"tool_calls": [call]}));
                let input = block.get("input").cloned().unwrap_or_default();
                Block::Call { position, input, streamed: false }
            }
            _ if answer::note_of(block).is_some() => {
                Block::Note { block: block.clone(), input: String::new() }
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, begun);
        Ok(deltas)
    }

    fn block_delta(&mut self, data: &Map<String, Value>) -> Result<Vec<Value>, AnswerError> {
        let block =
            self.blocks.get_mut(&index_of(data)?).ok_or(AnswerError::Missing("content_block_start"))?;
        let delta = data.get("delta").ok_or(AnswerError::Missing("delta"))?;
        let field = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        Ok(match (block, field("type")) {
            (Block::Text, "text_delta") => vec![json!({"content": field("text")})],
            (Block::Thinking { words, .. }, "thinking_delta") => {
                words.push_str(field("thinking"));
                vec![json!({ thinking::WORDS: field("thinking") })]
            }
            (Block::Thinking { block, .. }, "signature_delta") => {
                block["signature"] = json!(field("signature"));
                Vec::new()
            }
            (Block::Call { position, streamed, .. }, "input_json_delta") => {
                let piece = field("partial_json");
                *streamed |= !piece.is_empty();
                vec![arguments(*position, piece)]
            }
            (Block::Note { input, .. }, "input_json_delta") => {
                input.push_str(field("partial_json"));
                Vec::new()
            }
            _ => Vec::new(),
        })
    }

    fn block_stop(&mut self, data: &Map<String, Value>) -> Result<Vec<Value>, AnswerError> {
        let block =
            self.blocks.remove(&index_of(data)?).ok_or(AnswerError::Missing("content_block_start"))?;
        Ok(match block {
            Block::Thinking { mut block, words } => {
                if block["type"] == "thinking" {
                    block["thinking"] = json!(words);
                }
                let block = thinking::with_index(&block, self.thoughts);
                self.thoughts += 1;
                vec![json!({ thinking::BLOCKS: [block] })]
            }
            // A call without arguments sends no pieces; some upstreams send all with the start.
            Block::Call { position, input, streamed: false } => {
                vec![arguments(position, &tools::arguments_of(Some(&input)))]
            }
            Block::Note { mut block, input } => {
                if let Ok(input @ Value::Object(_)) = serde_json::from_str(&input) {
                    block["input"] = input;
                }
                vec![json!({ thinking::WORDS: answer::note_of(&block) })]
            }
            Block::Text | Block::Call { .. } | Block::Other => Vec::new(),
        })
    }

    fn message_delta(&mut self, data: &Map<String, Value>) -> Result<Map<String, Value>, AnswerError> {
        let delta = data.get("delta").and_then(Value::as_object).ok_or(AnswerError::Missing("delta"))?;
        self.count(data);
        let reason = delta.get("stop_reason").and_then(Value::as_str).map(answer::finish_reason);
        let mut choice = answer::kept_with_stop(delta);
        choice.insert("index".to_owned(), json!(0));
        choice.insert("delta".to_owned(), json!({}));
        choice.insert("finish_reason".to_owned(), json!(reason));
        Ok(self.chunk(json!([choice])))
    }

    /// Takes the counts of an event. They are totals; one that is left out keeps its earlier value.
    fn count(&mut self, holder: &Map<String, Value>) {
        if let Some(Value::Object(counts)) = holder.get("usage") {
            let told = counts.iter().filter(|(_, count)| !count.is_null());
            self.usage.extend(told.map(|(name, count)| (name.clone(), count.clone())));
        }
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = self.head.clone();
        chunk.insert("choices".to_owned(), choices);
        chunk
    }
}

fn arguments(position: usize, piece: &str) -> Value {
    json!({"tool_calls": [{"index": position, "function": {"arguments": piece}}]})
}

fn index_of(data: &Map<String, Value>) -> Result<u64, AnswerError> {
    data.get("index").and_then(Value::as_u64).ok_or(AnswerError::Missing("index"))
}

fn upstream_error(data: &Map<String, Value>) -> StreamError {
    let text = |name: &str| {
        let found = data.get("error").and_then(|error| error.get(name)?.as_str());
        found.unwrap_or_default().to_owned()
    };
    StreamError::Upstream { kind: text("type"), message: text("message") }
}
