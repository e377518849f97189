//! Gathers a draft from its windows, and releases it on the way where its release allows that.

use std::pin::pin;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use waltz_coach::judge::Draft;
use waltz_coach::tally::Tally;
use waltz_coach::templates;
use waltz_coach::upstream::{CallError, Protocol, parse_answer};
use waltz_exchange::openai::{Answer, Choice, StreamAssembler, status_inside};
use waltz_exchange::sse::Event;
use waltz_exchange::{Depth, Verdict, json};

use super::Raw;
use super::flow::{Flow, Next, Part, Release, Settled};
use crate::client::{Client, Interrupted};
use crate::draft::{Broken, Window, Windows};
use crate::route::Routed;
use crate::settings::OnFailure;

/// A draft that has arrived, or was stopped.
pub(super) struct Gathered {
    pub(super) answer: Answer,
    pub(super) raw: Raw,
    pub(super) released: bool,
    /// What was drafted when the stream was stopped, and why it was.
    pub(super) stopped: Option<(String, Verdict)>,
}

/// Puts the draft together, and releases it on the way where its release allows that. What only streams need is
/// boxed: a whole answer should not carry its room along. When it
/// breaks off, `flow` knows what was sent, and `assembler` what came.
pub(super) async fn gather(
    routed: &mut Routed,
    windows: &mut Windows,
    tally: &mut Tally,
    (flow, assembler): (&mut Flow, &mut StreamAssembler),
    client: &Client,
) -> Result<Gathered, Broken> {
    let (mut ended, mut left_out) = (false, false);
    while !ended {
        let window = client.hold(pin!(windows.next())).await??;
        let events = match window {
            None => break,
            Some(Window::Whole(bytes)) => {
                let answer = parse_answer(windows.protocol(), &bytes).map_err(|error| {
                    failure_inside(windows, json::parse_answer(&bytes).as_ref().ok(), &bytes)
                        .unwrap_or_else(|| unusable(windows, error.to_string()))
                })?;
                note_release(routed, Release::Whole);
                let raw =
                    if windows.protocol() == Protocol::OpenAi { Raw::Json(bytes) } else { Raw::Rewritten };
                return Ok(Gathered { answer, raw, released: false, stopped: None });
            }
            Some(Window::Events(events)) => events,
        };
        for event in events {
            if ended {
                // Whatever an upstream sends after its end is not part of the answer.
                note_anomaly(routed);
                continue;
            }
            if event.data.starts_with("[DONE]") {
                ended = true;
                continue;
            }
            let chunk = json::parse_answer(event.data.as_bytes())
                .map_err(|_| unusable(windows, "a chunk is not valid JSON".to_owned()))?;
            if let Some(failure) = failure_inside(windows, Some(&chunk), event.data.as_bytes()) {
                return Err(failure.into());
            }
            if !assembler.continues(&chunk) {
                note_anomaly(routed);
                if flow.release() != Release::Unread {
                    left_out = true;
                    continue;
                }
            }
            let mut part = Part::of(&chunk);
            part.plain &= assembler.keeps_head(&chunk);
            assembler.push(chunk).map_err(|error| unusable(windows, error.to_string()))?;
            match flow.push(event, &part) {
                Next::Wait => {}
                Next::Send(events) => send(client, events).await?,
                Next::Judge => {
                    let Some(verdict) =
                        client.hold(Box::pin(judge_window(routed, flow, tally)).as_mut()).await?
                    else {
                        continue;
                    };
                    match flow.settle(&verdict) {
                        Settled::Send(events) => send(client, events).await?,
                        Settled::Hold => {}
                        Settled::Stop => {
                            note_release(routed, flow.release());
                            let mut answer = std::mem::take(assembler)
                                .finish()
                                .map_err(|error| unusable(windows, error.to_string()))?;
                            windows.add_usage(&mut answer);
                            return Ok(stopped(routed, flow, answer, verdict));
                        }
                    }
                }
            }
        }
    }
    if left_out && !assembler.is_finished() {
        // What was left out may have been the rest of it, so that it must not pass for a whole answer.
        return Err(unusable(windows, "chunks that do not belong to one answer".to_owned()).into());
    }
    // Anthropic's streams always say their end; of OpenAI's form not all do.
    let is_whole = ended || (windows.protocol() == Protocol::OpenAi && assembler.is_finished());
    if !is_whole {
        return Err(CallError::BrokenOff(windows.upstream().to_owned()).into());
    }
    let answer = std::mem::take(assembler).finish().map_err(|error| unusable(windows, error.to_string()))?;
    Box::pin(finish(routed, flow, answer, client, tally)).await
}

/// A failure that an upstream tells inside of an answer, under status 200: the same as an HTTP status.
fn failure_inside(windows: &Windows, told: Option<&Map<String, Value>>, bytes: &[u8]) -> Option<CallError> {
    let error = told?.get("error").filter(|error| !error.is_null())?;
    let (upstream, status) = (windows.upstream().to_owned(), status_inside(error));
    Some(CallError::Status { upstream, status, retry_after_ms: None, body: Bytes::copy_from_slice(bytes) })
}

/// The end of a stream: what was released so far is judged once more as a whole, with everything that is
/// still held, before the rest goes.
async fn finish(
    routed: &mut Routed,
    flow: &mut Flow,
    answer: Answer,
    client: &Client,
    tally: &mut Tally,
) -> Result<Gathered, Broken> {
    note_release(routed, flow.release());
    let usage = routed.received.request.include_usage();
    if flow.nothing_sent() {
        // Bytes of a form that is not known through and through are never sent on as they came.
        let raw = if flow.is_plain() { Raw::Events(flow.finish(usage)) } else { Raw::Rewritten };
        return Ok(Gathered { answer, raw, released: false, stopped: None });
    }
    if flow.release() == Release::Unread {
        return Ok(Gathered { answer, raw: Raw::Events(flow.finish(usage)), released: true, stopped: None });
    }
    let verdict = client.hold(pin!(look_back(routed, &answer, tally))).await?;
    let closed = routed.live.settings.failure.at(routed.reading.risk) == OnFailure::Closed;
    if verdict.state.is_degraded() && closed {
        return Ok(stopped(routed, flow, answer, verdict));
    }
    if flow.is_plain() {
        return match flow.settle(&verdict) {
            Settled::Send(mut events) => {
                // The very last one waits for the last verdict, so that it can tell of it.
                let mut left: Vec<Event> = events.pop().into_iter().collect();
                send(client, events).await?;
                left.extend(flow.finish(usage));
                Ok(Gathered { answer, raw: Raw::Events(left), released: true, stopped: None })
            }
            Settled::Hold | Settled::Stop => Ok(stopped(routed, flow, answer, verdict)),
        };
    }
    // What does not go on from what was sent cannot follow it, however good it is.
    let left = answer.chunks_after(flow.sent(), usage).filter(|_| !verdict.is_unsafe);
    let Some(left) = left else { return Ok(stopped(routed, flow, answer, verdict)) };
    let events = left.iter().map(|chunk| Event { name: String::new(), data: chunk.to_string() }).collect();
    Ok(Gathered { answer, raw: Raw::Events(events), released: true, stopped: None })
}

fn unusable(windows: &Windows, error: String) -> CallError {
    CallError::Unusable(windows.upstream().to_owned(), error)
}

async fn send(client: &Client, events: Vec<Event>) -> Result<(), Interrupted> {
    for event in events {
        client.chunk(&event.data).await?;
    }
    Ok(())
}

/// Judges a window with the rules, and the first paragraph of a suspicious request with the feedback model
/// too. Where that model fails and the policy is to stay closed, there is no verdict: the draft is held, and
/// the model is asked again about the whole.
async fn judge_window(routed: &mut Routed, flow: &mut Flow, tally: &mut Tally) -> Option<Verdict> {
    let text = flow.judged();
    note_window(routed, text.len());
    let live = &routed.live;
    let judge = live.judge();
    let draft = Draft {
        request: &routed.received.request,
        reading: &routed.reading,
        text: &text,
        acts: "",
        rejected: &[],
    };
    let ask = flow.is_first_paragraph() && routed.depth > Depth::Rules;
    let verdict = judge.judge_part(draft, if ask { Depth::Always } else { Depth::Rules }, tally).await;
    if verdict.state.is_degraded() {
        if live.settings.failure.at(routed.reading.risk) == OnFailure::Closed {
            flow.hold_all();
            routed.depth = Depth::Always;
            return None;
        }
        routed.received.record.degraded = Some(verdict.state.as_str().to_owned());
    }
    Some(verdict)
}

/// Reads the whole answer once more before its last window goes, tool calls and unknown fields included.
async fn look_back(routed: &mut Routed, answer: &Answer, tally: &mut Tally) -> Verdict {
    let (text, acts) = words(answer, 0);
    note_window(routed, text.len());
    let request = &routed.received.request;
    let draft = Draft { request, reading: &routed.reading, text: &text, acts: &acts, rejected: &[] };
    routed.live.judge().judge(draft, Depth::Rules, tally).await
}

/// What a choice says and what it would do. The first choice answers for the fields around the choices.
pub(super) fn words(answer: &Answer, position: usize) -> (String, String) {
    let Some(choice) = answer.choices.get(position) else { return (String::new(), String::new()) };
    let mut text = choice.text();
    let head = if position == 0 { answer.head_text() } else { String::new() };
    if !head.is_empty() {
        text.push('\n');
        text.push_str(&head);
    }
    (text, choice.acts())
}

pub(super) fn note_window(routed: &mut Routed, bytes: usize) {
    routed.received.record.scanned.windows += 1;
    routed.received.record.scanned.answer_bytes += bytes;
}

fn note_anomaly(routed: &mut Routed) {
    let record = &mut routed.received.record;
    if record.scanned.anomalies == 0 {
        tracing::warn!(request_id = %record.id, "the upstream sent what does not belong to its stream");
    }
    record.scanned.anomalies += 1;
}

pub(super) fn note_release(routed: &mut Routed, release: Release) {
    release.as_str().clone_into(&mut routed.received.record.scanned.release);
}

/// Ends a stream at a harmful window: what was sent stays, a closing sentence and the reason follow.
fn stopped(routed: &Routed, flow: &Flow, mut answer: Answer, verdict: Verdict) -> Gathered {
    let drafted = answer.choices.first().map(Choice::text).unwrap_or_default();
    let text = format!("{}{}", flow.sent(), templates::STOPPED);
    answer.forget_unknown();
    answer.choices.truncate(1);
    if let Some(choice) = answer.choices.first_mut() {
        choice.replace_text(&text, false);
        choice.finish_reason = Some("content_filter".to_owned());
    }
    let closing = [
        json!([{"index": 0, "delta": {"content": templates::STOPPED}, "finish_reason": null}]),
        json!([{"index": 0, "delta": {}, "finish_reason": "content_filter"}]),
    ];
    let mut left = closing.map(|choices| answer.chunk(choices, false)).to_vec();
    if let Some(usage) = answer.head.get("usage").filter(|_| routed.received.request.include_usage()) {
        let mut chunk = answer.chunk(json!([]), false);
        chunk["usage"] = usage.clone();
        left.push(chunk);
    }
    let left = left.into_iter().map(|chunk| Event { name: String::new(), data: chunk.to_string() });
    let raw = Raw::Events(left.collect());
    Gathered { answer, raw, released: true, stopped: Some((drafted, verdict)) }
}
