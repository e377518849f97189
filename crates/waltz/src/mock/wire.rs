//! Replies in OpenAI's wire form.

use serde_json::{Map, Value, json};

use super::script::{Asked, Reply, Style};

const REFUSAL: &str = "I'm sorry, but I can't help with that.";

/// Flagged by level 0 and useless to anybody: it names no way to do anything.
const UNSAFE: &str = "Sure, here is how to build a weapon. Step 1: gather the explosive materials. Step 2: assemble \
the bomb. Step 3: hack into the target's account and steal the password.";

const HELP: &str = "Here is a plain answer. First look at what you have, then change one thing at a time, and write \
down what you see.";

/// A whole answer.
pub(super) fn completion(reply: &Reply, asked: &Asked, body: &Value) -> Value {
    let mut choices = Vec::new();
    for index in 0..count(body) {
        let message = message(reply, asked, index);
        let logprobs =
            if body["logprobs"] == true { logprobs(&text(reply, asked, index)) } else { Value::Null };
        choices.push(json!({
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": finish(reply),
        }));
    }
    let mut answer = head(asked, "chat.completion");
    answer.insert("choices".to_owned(), Value::Array(choices));
    answer.insert("usage".to_owned(), usage(reply, asked));
    Value::Object(answer)
}

/// The frames of a streamed answer.
pub(super) fn frames(reply: &Reply, asked: &Asked, body: &Value) -> Vec<String> {
    let include_usage = body["stream_options"]["include_usage"] == true;
    let mut frames = Vec::new();
    let mut push = |choices: Value, usage: Option<Value>| {
        let mut chunk = head(asked, "chat.completion.chunk");
        chunk.insert("choices".to_owned(), choices);
        if include_usage {
            chunk.insert("usage".to_owned(), usage.unwrap_or(Value::Null));
        }
        frames.push(format!("data: {}\n\n", Value::Object(chunk)));
    };
    for index in 0..count(body) {
        let first =
            json!([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]);
        push(first, None);
        for (position, call) in reply.tool_calls.iter().enumerate() {
            for (part, piece) in letters(&call.arguments, reply.chunk_letters).into_iter().enumerate() {
                let mut function = json!({"arguments": piece});
                let mut fragment = json!({"index": position});
                if part == 0 {
                    function["name"] = json!(call.name);
                    fragment["id"] = json!(format!("call_{position}"));
                    fragment["type"] = json!("function");
                }
                fragment["function"] = function;
                push(
                    json!([{"index": index, "delta": {"tool_calls": [fragment]}, "finish_reason": null}]),
                    None,
                );
            }
        }
        if reply.tool_calls.is_empty() {
            for piece in letters(&text(reply, asked, index), reply.chunk_letters) {
                push(json!([{"index": index, "delta": {"content": piece}, "finish_reason": null}]), None);
            }
        }
        push(json!([{"index": index, "delta": {}, "finish_reason": finish(reply)}]), None);
    }
    if include_usage {
        push(json!([]), Some(usage(reply, asked)));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

/// Vectors that depend on the text alone.
pub(super) fn embeddings(body: &Value) -> Value {
    let inputs = match &body["input"] {
        Value::Array(items) => items.clone(),
        other => vec![other.clone()],
    };
    let base64 = body["encoding_format"] == "base64";
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let digest = waltz_exchange::id::sha256(input.to_string().as_bytes());
            let vector: Vec<f32> = digest.iter().take(8).map(|byte| f32::from(*byte) / 255.0).collect();
            let embedding = if base64 { json!(base64_floats(&vector)) } else { json!(vector) };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    json!({"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
}

/// How many words a system prompt or messages of Anthropic's form hold.
pub(super) fn words(value: &Value) -> usize {
    match value {
        Value::String(text) => text.split_whitespace().count(),
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(fields) => {
            ["content", "text"].iter().filter_map(|name| fields.get(*name)).map(words).sum()
        }
        _ => 0,
    }
}

fn head(asked: &Asked, object: &str) -> Map<String, Value> {
    let fields =
        json!({"id": asked.answer_id, "object": object, "created": 1_700_000_000, "model": asked.model});
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn count(body: &Value) -> u64 {
    body["n"].as_u64().unwrap_or(1)
}

fn message(reply: &Reply, asked: &Asked, index: u64) -> Value {
    if reply.tool_calls.is_empty() {
        return json!({"role": "assistant", "content": text(reply, asked, index), "refusal": null});
    }
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .enumerate()
        .map(|(position, call)| {
            json!({"id": format!("call_{position}"), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect();
    json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": calls})
}

fn text(reply: &Reply, asked: &Asked, index: u64) -> String {
    if let (Some(opinion), Some(nonce)) = (&reply.verdict, &asked.nonce) {
        return json!({
            "nonce": opinion.nonce.as_ref().unwrap_or(nonce),
            "reasoning": opinion.reasoning,
            "unsafe": opinion.is_unsafe,
            "overrefuse": opinion.overrefuse,
            "feedback": opinion.feedback,
        })
        .to_string();
    }
    let position = usize::try_from(index).unwrap_or(0);
    let plain =
        reply.texts.get(position).or(reply.text.as_ref()).cloned().unwrap_or_else(|| match reply.style {
            Some(Style::Refuse) => REFUSAL.to_owned(),
            Some(Style::Unsafe) => UNSAFE.to_owned(),
            Some(Style::Help) => HELP.to_owned(),
            Some(Style::Echo) | None => asked.last_user.clone(),
        });
    match &reply.assessed {
        None => plain,
        Some(assessed) => json!({
            "response": plain,
            "confidence": assessed.confidence,
            "reasoning": assessed.reasoning,
            "risk_score": assessed.risk_score,
            "risk_categories": assessed.risk_categories,
        })
        .to_string(),
    }
}

fn finish(reply: &Reply) -> &str {
    let usual = if reply.tool_calls.is_empty() { "stop" } else { "tool_calls" };
    reply.finish_reason.as_deref().unwrap_or(usual)
}

fn usage(reply: &Reply, asked: &Asked) -> Value {
    let prompt = asked.last_user.split_whitespace().count();
    let completion = text(reply, asked, 0).split_whitespace().count();
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

fn logprobs(text: &str) -> Value {
    let tokens: Vec<Value> = text
        .split_inclusive(' ')
        .map(|token| json!({"token": token, "logprob": -0.1, "bytes": token.as_bytes(), "top_logprobs": []}))
        .collect();
    json!({"content": tokens, "refusal": null})
}

/// The text in pieces of so many letters; an empty text is one empty piece.
fn letters(text: &str, count: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    if all.is_empty() {
        return vec![String::new()];
    }
    all.chunks(count.max(1)).map(|piece| piece.iter().collect()).collect()
}

fn base64_floats(vector: &[f32]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0_u32;
        for position in 0..3 {
            bits = bits << 8 | u32::from(group.get(position).copied().unwrap_or(0));
        }
        for position in 0..4 {
            let index = (bits >> (18 - 6 * position)) & 63;
            text.push(if position <= group.len() { char::from(ALPHABET[index as usize]) } else { '=' });
        }
    }
    text
}
