//! Writes the answer of a local model as an upstream would send it: one JSON body, or events as the words come.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use waltz_exchange::id;
use waltz_model::{Adapter, EndReason, Piece, TokenChance, Tokenizer};

use super::ask::{Wanted, wanted};
use super::{Language, Response, Trouble, apart, response};
use crate::upstream::seconds_now;

/// Pieces of an answer that wait for whoever reads it.
const WAITING: usize = 64;

type Output = mpsc::Sender<io::Result<Bytes>>;

/// What every part of an answer says.
struct Head {
    id: String,
    model: String,
    created: i64,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
    tokenizer: Arc<Tokenizer>,
}

/// One choice as it is written.
#[derive(Default)]
struct Choice {
    text: String,
    chances: Vec<Value>,
    finish: Option<&'static str>,
    prompt_tokens: usize,
    completion_tokens: usize,
}

/// Answers a chat request.
pub(super) async fn speak(
    language: &Arc<Language>,
    model: &str,
    adapter: Option<Arc<Adapter>>,
    body: Map<String, Value>,
    deadline: Instant,
) -> Result<Response, Trouble> {
    let reader = Arc::clone(language);
    let read = apart(&language.seats, move || wanted(&reader, adapter.as_ref(), &body, deadline.into_std()));
    let Wanted { asks, stream, include_usage, logprobs } = read.await?;
    let mut choices = Vec::with_capacity(asks.len());
    for ask in asks {
        choices.push(language.room.ask(ask)?);
    }
    let head = Head {
        id: id::new_response_id(),
        model: format!("local/{model}"),
        created: seconds_now(),
        stream,
        include_usage,
        logprobs,
        tokenizer: language.tokenizer.clone(),
    };
    let (output, body) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        // Whoever stops reading ends the writing: the pieces' receivers go with this task.
        let gone = output.clone();
        tokio::select! {
            () = write(head, choices, output) => {}
            () = gone.closed() => {}
        }
    });
    let media_type = if stream { "text/event-stream" } else { "application/json" };
    Ok(response(media_type, body))
}

/// Writes everything, or an error that breaks the answer off: half an answer must not look whole.
async fn write(head: Head, choices: Vec<mpsc::Receiver<Piece>>, output: Output) {
    let outcome = write_choices(&head, choices, &output).await;
    if let Err(reason) = outcome {
        tracing::warn!(model = %head.model, reason, "an answer of a local model broke off");
        output.send(Err(io::Error::other(reason))).await.ok();
    }
}

async fn write_choices(
    head: &Head,
    receivers: Vec<mpsc::Receiver<Piece>>,
    output: &Output,
) -> Result<(), &'static str> {
    let mut choices: Vec<Choice> = receivers.iter().map(|_| Choice::default()).collect();
    if head.stream {
        for index in 0..choices.len() {
            let delta = json!({"role": "assistant", "content": "", "refusal": null});
            send(output, head.event(index, &delta, None, None)).await;
        }
    }
    let numbered = receivers.into_iter().enumerate().map(|(index, receiver)| {
        let next = |mut receiver: mpsc::Receiver<Piece>| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        };
        Box::pin(stream::unfold(receiver, next).map(move |piece| (index, piece)))
    });
    let mut pieces = stream::select_all(numbered);
    while let Some((index, piece)) = pieces.next().await {
        let choice = &mut choices[index];
        match piece {
            Piece::Text { text, logprobs, .. } => {
                let chances: Vec<Value> = logprobs.iter().map(|chance| head.chance(chance)).collect();
                if head.stream && !text.is_empty() {
                    let logprobs = head.logprobs.then(|| json!({"content": chances, "refusal": null}));
                    send(output, head.event(index, &json!({"content": text}), logprobs.as_ref(), None)).await;
                }
                choice.text.push_str(&text);
                choice.chances.extend(chances);
            }
            Piece::End { reason, prompt_tokens, completion_tokens } => {
                choice.finish = Some(match reason {
                    EndReason::Stop => "stop",
                    EndReason::Length => "length",
                    EndReason::Deadline => return Err("its time was up"),
                    EndReason::Cancelled => return Err("the model was stopped"),
                    EndReason::Failed => return Err("no token could be chosen"),
                });
                (choice.prompt_tokens, choice.completion_tokens) = (prompt_tokens, completion_tokens);
                if head.stream {
                    send(output, head.event(index, &json!({}), None, choice.finish)).await;
                }
            }
        }
    }
    if choices.iter().any(|choice| choice.finish.is_none()) {
        return Err("the model broke down");
    }
    let usage = usage(&choices);
    if head.stream {
        if head.include_usage {
            let mut chunk = head.object("chat.completion.chunk", json!([]));
            chunk["usage"] = usage;
            send(output, event(&chunk)).await;
        }
        send(output, Bytes::from_static(b"data: [DONE]\n\n")).await;
        return Ok(());
    }
    let choices = choices.into_iter().enumerate().map(|(index, choice)| {
        json!({
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": null},
            "logprobs": head.logprobs.then(|| json!({"content": choice.chances, "refusal": null})),
            "finish_reason": choice.finish,
        })
    });
    let mut answer = head.object("chat.completion", choices.collect());
    answer["usage"] = usage;
    send(output, Bytes::from(answer.to_string())).await;
    Ok(())
}

/// Sends a piece. Whether anybody is there to take it is watched elsewhere.
async fn send(output: &Output, bytes: Bytes) {
    output.send(Ok(bytes)).await.ok();
}

fn event(chunk: &Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}

/// The prompt is read once for all choices.
fn usage(choices: &[Choice]) -> Value {
    let prompt = choices.first().map_or(0, |choice| choice.prompt_tokens);
    let completion: usize = choices.iter().map(|choice| choice.completion_tokens).sum();
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

impl Head {
    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices})
    }

    fn event(&self, index: usize, delta: &Value, logprobs: Option<&Value>, finish: Option<&str>) -> Bytes {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        event(&self.object("chat.completion.chunk", json!([choice])))
    }

    fn chance(&self, chance: &TokenChance) -> Value {
        let named = |token: u32, logprob: f32| {
            let bytes = self.tokenizer.token_bytes(token);
            json!({"token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes})
        };
        let mut value = named(chance.token, chance.logprob);
        value["top_logprobs"] = chance.top.iter().map(|(token, logprob)| named(*token, *logprob)).collect();
        value
    }
}
