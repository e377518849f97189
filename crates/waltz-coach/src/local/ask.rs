//! Reads what a chat request asks of a local model.

use std::sync::Arc;

use serde_json::{Map, Value};
use waltz_model::{Adapter, Ask, Message, ObjectConstraint, Role, Sampling, with_system};

use super::{Language, Trouble, form};

/// Answers of a request that does not say how long they may be.
const USUAL_TOKENS: usize = 512;
/// Choices of one request.
const MOST_CHOICES: u64 = 8;

/// What a request asks for.
pub(super) struct Wanted {
    /// One per choice.
    pub(super) asks: Vec<Ask>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) logprobs: bool,
}

/// Reads a request. Long messages and large forms take a while: async threads leave it to others.
pub(super) fn wanted(
    language: &Language,
    adapter: Option<&Arc<Adapter>>,
    body: &Map<String, Value>,
    deadline: std::time::Instant,
) -> Result<Wanted, Trouble> {
    let context = language.room.context();
    let too_long = |what: &str, tokens: usize| {
        let limit = format!("this model's maximum context length is {context} tokens");
        Trouble::Invalid(format!("{limit}, and the messages are {what}{tokens} tokens"))
    };
    let messages = messages(body)?;
    // Two control tokens stand around each message. Tokens take many times the room of their text.
    let least = |message: &Message| 2 + language.tokenizer.least_tokens(&message.content);
    let least: usize = messages.iter().map(least).sum();
    if least >= context {
        return Err(too_long("at least ", least));
    }
    let tokens = language.template.encode(&messages, &language.tokenizer);
    let Some(left) = context.checked_sub(tokens.len()).filter(|left| *left > 0) else {
        return Err(too_long("", tokens.len()));
    };
    let limit = whole(body, "max_completion_tokens")?.or(whole(body, "max_tokens")?);
    if limit == Some(0) {
        return Err(Trouble::Invalid("`max_tokens` must be at least 1".to_owned()));
    }
    let limit = limit.map_or(USUAL_TOKENS, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let max_tokens = limit.min(left);
    let logprobs = body.get("logprobs").and_then(Value::as_bool).unwrap_or(false);
    let top = u8::try_from(whole(body, "top_logprobs")?.unwrap_or(0).min(20)).unwrap_or(20);
    let choices = whole(body, "n")?.unwrap_or(1);
    if !(1..=MOST_CHOICES).contains(&choices) {
        return Err(Trouble::Invalid(format!("`n` must be 1 to {MOST_CHOICES} for this model")));
    }
    let sampling = sampling(body)?;
    let stop = stop(body)?;
    let form = form::schema(language, body)?;
    if let Some(form) = form.as_ref().filter(|form| form.least_tokens() > max_tokens) {
        let least = form.least_tokens();
        return Err(Trouble::Invalid(format!(
            "the wanted form takes at least {least} tokens; the answer may have {max_tokens}"
        )));
    }
    let asks = (0..choices).map(|choice| Ask {
        tokens: tokens.clone(),
        // Each choice has its own chance, and the same one again for the same seed.
        sampling: Sampling { seed: sampling.seed.wrapping_add(choice), ..sampling },
        max_tokens,
        stop: stop.clone(),
        constraint: form
            .as_ref()
            .map(|form| Box::new(ObjectConstraint::new(form.clone(), language.index().clone())) as Box<_>),
        deadline: Some(deadline),
        logprobs: logprobs.then_some(top),
        adapter: adapter.cloned(),
    });
    let options = body.get("stream_options").and_then(|options| options.get("include_usage"));
    Ok(Wanted {
        asks: asks.collect(),
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: options.and_then(Value::as_bool).unwrap_or(false),
        logprobs,
    })
}

fn messages(body: &Map<String, Value>) -> Result<Vec<Message>, Trouble> {
    let given = body.get("messages").and_then(Value::as_array);
    let mut messages = Vec::new();
    for message in given.into_iter().flatten() {
        let role = match message.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => Role::System,
            Some("assistant") => Role::Assistant,
            Some("tool" | "function") => Role::Tool,
            _ => Role::User,
        };
        messages.push(Message { role, content: content(message.get("content"))? });
    }
    Ok(with_system(messages))
}

/// The text of a message. A small language model reads nothing else.
fn content(content: Option<&Value>) -> Result<String, Trouble> {
    match content {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for part in parts {
                let Some(more) = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str)
                else {
                    return Err(Trouble::Invalid("this model reads text only".to_owned()));
                };
                text.push_str(more);
            }
            Ok(text)
        }
        _ => Ok(String::new()),
    }
}

/// What the request says, and for the rest what suits a small model: a little chance, no rare words.
fn sampling(body: &Map<String, Value>) -> Result<Sampling, Trouble> {
    let number = |name: &str, usual: f32| match body.get(name) {
        None | Some(Value::Null) => Ok(usual),
        #[expect(clippy::cast_possible_truncation, reason = "values out of range are refused by the model")]
        Some(value) => value
            .as_f64()
            .map(|value| value as f32)
            .ok_or_else(|| Trouble::Invalid(format!("`{name}` must be a number"))),
    };
    let seed = match body.get("seed") {
        None | Some(Value::Null) => rand_seed(),
        Some(seed) => {
            let seed = seed.as_u64().or_else(|| seed.as_i64().map(i64::cast_unsigned));
            seed.ok_or_else(|| Trouble::Invalid("`seed` must be an integer".to_owned()))?
        }
    };
    Ok(Sampling {
        repetition_penalty: number("repetition_penalty", 1.0)?,
        temperature: number("temperature", 0.2)?,
        top_k: u32::try_from(whole(body, "top_k")?.unwrap_or(0)).unwrap_or(u32::MAX),
        top_p: number("top_p", 0.9)?,
        min_p: number("min_p", 0.0)?,
        seed,
    })
}

fn rand_seed() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low
}

fn stop(body: &Map<String, Value>) -> Result<Vec<String>, Trouble> {
    let texts: Vec<&Value> = match body.get("stop") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(texts)) => texts.iter().collect(),
        Some(text) => vec![text],
    };
    let text = |text: &Value| text.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let read: Option<Vec<String>> = texts.into_iter().map(text).collect();
    read.ok_or_else(|| Trouble::Invalid("`stop` must be texts that are not empty".to_owned()))
}

/// A whole number from 0 up, if the request has one.
pub(super) fn whole(body: &Map<String, Value>, name: &str) -> Result<Option<u64>, Trouble> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| Trouble::Invalid(format!("`{name}` must be a whole number"))),
    }
}
