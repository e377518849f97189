//! Step 4: the draft is read. Windows are gathered until the draft is whole and then judged, choice by
//! choice. Where waltz may not change the answer, windows go to the client as they arrive and the
//! verdict follows.

use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use waltz_coach::conversation;
use waltz_coach::judge::{Draft, Judge};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::CallError;
use waltz_exchange::openai::answer::FINISH_REASONS;
use waltz_exchange::openai::{Answer, StreamAssembler};
use waltz_exchange::record::{Assessment, DraftRecord};
use waltz_exchange::sse::{self, Event};
use waltz_exchange::{Depth, Verdict, json};

use crate::client::{Client, Gone};
use crate::draft::{Drafted, Window, Windows};
use crate::pipeline::Stop;
use crate::respond;
use crate::route::Routed;

/// A draft with its verdicts.
pub struct Judged {
    /// The request with its agent.
    pub routed: Routed,
    /// The draft.
    pub answer: Answer,
    /// The draft as it came, to be sent on unchanged.
    pub raw: Raw,
    /// What is known of each choice, in the answer's order.
    pub choices: Vec<JudgedChoice>,
    /// The stream went to the client already, all but its end.
    pub released: bool,
    /// What it cost so far.
    pub tally: Tally,
}

/// A draft's bytes.
#[derive(Debug)]
pub enum Raw {
    /// The body of a JSON answer.
    Json(Bytes),
    /// The events of a stream, without its end.
    Events(Vec<Event>),
    /// The draft was taken apart, so that its bytes are of no use.
    Rewritten,
}

/// What is known of one choice.
#[derive(Debug)]
pub struct JudgedChoice {
    /// The draft.
    pub draft: DraftRecord,
    /// The draft after the agent's own check.
    pub self_check: Option<DraftRecord>,
    /// The verdict on the text as it now stands; `None` when none was wanted.
    pub verdict: Option<Verdict>,
}

/// Why a draft was not gathered.
enum Broken {
    Gone,
    Call(CallError),
}

impl From<Gone> for Broken {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<CallError> for Broken {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Gathers and judges the draft.
pub async fn feedback(drafted: Drafted, client: &mut Client) -> Result<Judged, Stop> {
    let Drafted { routed, mut windows, mut tally, assessed } = drafted;
    if routed.received.request.stream() {
        let headers = respond::pending_headers(&routed);
        if client.begin_stream(headers).await.is_err() {
            return Err(gone(routed, tally));
        }
    }
    let release = !routed.may_change && client.is_streaming() && windows.is_event_stream();
    let began = Instant::now();
    let gathered = gather(&mut windows, client, release).await;
    tally.waited += began.elapsed();
    let (answer, raw, read) = match gathered {
        Ok(gathered) => gathered,
        Err(Broken::Gone) => return Err(gone(routed, tally)),
        Err(Broken::Call(error)) => return Err(crate::draft::stop(routed, tally, &error)),
    };
    drop(windows);
    let mut judged = Judged { routed, answer, raw, choices: Vec::new(), released: release, tally };
    judged.routed.received.record.scanned.windows = if judged.routed.depth == Depth::None { 0 } else { read };
    note_unknown_finish(&judged.answer);
    let outcome = client.hold(read_choices(&mut judged, assessed)).await;
    match outcome {
        Ok(()) => Ok(judged),
        Err(Gone) => Err(gone(judged.routed, judged.tally)),
    }
}

fn gone(routed: Routed, tally: Tally) -> Stop {
    let mut record = routed.received.record;
    record.attempts = tally.attempts;
    Stop::client_gone(record)
}

/// Puts the windows together. Returns the answer, its bytes, and how many windows were judged: whole
/// drafts are one.
async fn gather(
    windows: &mut Windows,
    client: &Client,
    release: bool,
) -> Result<(Answer, Raw, usize), Broken> {
    let unusable = |upstream: &str, error: String| CallError::Unusable(upstream.to_owned(), error);
    let mut assembler = StreamAssembler::default();
    let mut held = Vec::new();
    let mut ended = false;
    while !ended {
        let window = client.hold(windows.next()).await??;
        let events = match window {
            None => break,
            Some(Window::Whole(bytes)) => {
                let answer =
                    Answer::parse(&bytes).map_err(|error| unusable(windows.upstream(), error.to_string()))?;
                return Ok((answer, Raw::Json(bytes), 1));
            }
            Some(Window::Events(events)) => events,
        };
        for event in events {
            if event.data.starts_with("[DONE]") {
                // Whatever an upstream sends after its end is not part of the answer.
                ended = true;
                break;
            }
            let chunk = json::parse_object(event.data.as_bytes()).map_err(|error| {
                unusable(windows.upstream(), format!("a chunk is not valid JSON: {error}"))
            })?;
            if chunk.get("error").is_some_and(|error| !error.is_null()) {
                return Err(unusable(windows.upstream(), "an error inside the stream".to_owned()).into());
            }
            assembler.push(chunk).map_err(|error| unusable(windows.upstream(), error.to_string()))?;
            if release {
                client.frame(Bytes::from(sse::encode(&event.data))).await?;
            } else {
                held.push(event);
            }
        }
    }
    if !ended && !assembler.is_finished() {
        return Err(CallError::Unreachable(windows.upstream().to_owned()).into());
    }
    let answer = assembler.finish().map_err(|error| unusable(windows.upstream(), error.to_string()))?;
    Ok((answer, Raw::Events(held), 1))
}

/// Judges every choice of the answer.
async fn read_choices(judged: &mut Judged, assessed: bool) {
    for position in 0..judged.answer.choices.len() {
        let assessment = if assessed { take_assessment(judged, position) } else { None };
        let text = judged.answer.choices[position].text();
        let acts = judged.answer.choices[position].acts();
        let verdict = judge(judged, &text, &acts).await;
        let mut draft = DraftRecord {
            assessment: conversation::assessment_from(verdict.as_ref()),
            text,
            verdict: verdict.clone(),
        };
        if let Some(assessment) = assessment {
            draft.assessment = assessment;
        }
        let mut choice = JudgedChoice { draft, self_check: None, verdict };
        if judged.routed.live.settings.self_check && judged.routed.may_change {
            self_check(judged, position, &mut choice).await;
        }
        judged.choices.push(choice);
    }
}

async fn judge(judged: &mut Judged, text: &str, acts: &str) -> Option<Verdict> {
    let Judged { routed, tally, .. } = judged;
    if routed.depth == Depth::None {
        return None;
    }
    routed.received.record.scanned.answer_bytes += text.len();
    let live = &routed.live;
    let judge = Judge { screen: &live.screen, feedback: live.feedback.as_ref(), budget: &live.budget };
    let draft =
        Draft { request: &routed.received.request, reading: &routed.reading, text, acts, rejected: &[] };
    Some(judge.judge(draft, routed.depth, tally).await)
}

/// Takes the agent's own assessment out of a choice and leaves the text for the user. An answer that is
/// not in the form is taken as plain text.
fn take_assessment(judged: &mut Judged, position: usize) -> Option<Assessment> {
    let choice = judged.answer.choices.get_mut(position)?;
    let content = choice.message.get("content").and_then(Value::as_str)?;
    let (text, assessment) = conversation::parse_assessment(content)?;
    choice.replace_text(&text, false);
    judged.raw = Raw::Rewritten;
    Some(assessment)
}

/// Lets the agent correct its own draft once. A check that fails or makes things worse changes nothing.
async fn self_check(judged: &mut Judged, position: usize, choice: &mut JudgedChoice) {
    let Judged { routed, tally, .. } = judged;
    let asked = conversation::self_check_request(&routed.agent, &routed.received.request, &choice.draft.text);
    let budget = &routed.live.budget;
    let answer = match conversation::complete(&routed.agent, &asked, "self_check", budget, tally).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(error = %error, "self-check failed, the draft stays");
            return;
        }
    };
    let Some(mut checked) = answer.choices.into_iter().next() else { return };
    let text = checked.text();
    if text.trim().is_empty() {
        return;
    }
    let unchanged = text == choice.draft.text;
    let verdict =
        if unchanged { choice.verdict.clone() } else { judge(judged, &text, &checked.acts()).await };
    let assessment = conversation::assessment_from(verdict.as_ref());
    choice.self_check = Some(DraftRecord { text, assessment, verdict: verdict.clone() });
    let worse = matches!((&choice.verdict, &verdict), (Some(before), Some(after))
        if waltz_coach::reward::is_better(after, before));
    if unchanged || worse {
        return;
    }
    checked.index = judged.answer.choices[position].index;
    judged.answer.choices[position] = checked;
    judged.raw = Raw::Rewritten;
    choice.verdict = verdict;
}

fn note_unknown_finish(answer: &Answer) {
    for choice in &answer.choices {
        if let Some(reason) =
            choice.finish_reason.as_deref().filter(|reason| !FINISH_REASONS.contains(reason))
        {
            tracing::warn!(finish_reason = %reason, "unknown finish reason passed on");
        }
    }
}
