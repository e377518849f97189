//! Step 4: the draft is read. Ordinary streams are released window by window, each after it was judged;
//! what looks risky is gathered until it is whole. Then every choice is judged. Where waltz may not change
//! the answer, it goes to the client as it arrives and the verdict follows.

pub mod flow;

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use waltz_coach::judge::{Draft, Judge, read_draft};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::CallError;
use waltz_coach::{conversation, templates};
use waltz_exchange::openai::answer::FINISH_REASONS;
use waltz_exchange::openai::{Answer, StreamAssembler};
use waltz_exchange::record::{Assessment, DraftRecord};
use waltz_exchange::sse::{self, Event};
use waltz_exchange::{Depth, Verdict, json};

use crate::client::{Client, Interrupted};
use crate::draft::{Drafted, Window, Windows, with_tally};
use crate::feedback::flow::{Flow, Next, Part, Release, Settled};
use crate::pipeline::Stop;
use crate::respond;
use crate::route::Routed;
use crate::settings::OnFailure;

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
    /// The beginning of the stream went to the client already, and `raw` holds what is left.
    pub released: bool,
    /// The stream was ended at a harmful window.
    pub stopped: bool,
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
    Interrupted(Interrupted),
    Call(CallError),
}

impl From<Interrupted> for Broken {
    fn from(why: Interrupted) -> Self {
        Self::Interrupted(why)
    }
}

impl From<CallError> for Broken {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// A draft that has arrived, or was stopped.
struct Gathered {
    answer: Answer,
    raw: Raw,
    released: bool,
    /// What was drafted when the stream was stopped, and why it was.
    stopped: Option<(String, Verdict)>,
}

/// Gathers and judges the draft.
pub async fn feedback(drafted: Drafted, client: &mut Client) -> Result<Judged, Stop> {
    let Drafted { mut routed, mut windows, mut tally, assessed } = drafted;
    if routed.received.request.stream() {
        let headers = respond::pending_headers(&routed);
        if let Err(why) = client.begin_stream(headers).await {
            return Err(Stop::interrupted(with_tally(routed, tally), why));
        }
    }
    let began = Instant::now();
    let judging = tally.waited;
    let gathered = gather(&mut routed, &mut windows, &mut tally, client).await;
    // What the judge waited for was counted while it did.
    tally.waited += began.elapsed().saturating_sub(tally.waited - judging);
    let gathered = match gathered {
        Ok(gathered) => gathered,
        Err(Broken::Interrupted(why)) => return Err(Stop::interrupted(with_tally(routed, tally), why)),
        Err(Broken::Call(error)) => return Err(crate::draft::stop(routed, tally, &error)),
    };
    // Closes the connection to the upstream, which matters when the stream was stopped.
    drop(windows);
    let Gathered { answer, raw, released, stopped } = gathered;
    let mut judged =
        Judged { routed, answer, raw, choices: Vec::new(), released, stopped: stopped.is_some(), tally };
    note_unknown_finish(&judged.answer);
    if let Some((text, verdict)) = stopped {
        let assessment = conversation::assessment_from(Some(&verdict));
        let draft = DraftRecord { text, assessment, verdict: Some(verdict.clone()) };
        judged.choices.push(JudgedChoice { draft, self_check: None, verdict: Some(verdict) });
        return Ok(judged);
    }
    match client.hold(read_choices(&mut judged, assessed)).await {
        Ok(()) => Ok(judged),
        Err(why) => Err(Stop::interrupted(with_tally(judged.routed, judged.tally), why)),
    }
}

/// Puts the draft together, and releases it on the way where its release allows that.
async fn gather(
    routed: &mut Routed,
    windows: &mut Windows,
    tally: &mut Tally,
    client: &Client,
) -> Result<Gathered, Broken> {
    let mut flow = Flow::new(if client.is_streaming() { routed.release } else { Release::Whole });
    let mut assembler = StreamAssembler::default();
    let mut ended = false;
    while !ended {
        let events = match client.hold(windows.next()).await?? {
            None => break,
            Some(Window::Whole(bytes)) => {
                let answer = Answer::parse(&bytes).map_err(|error| unusable(windows, error.to_string()))?;
                note_release(routed, Release::Whole);
                return Ok(Gathered { answer, raw: Raw::Json(bytes), released: false, stopped: None });
            }
            Some(Window::Events(events)) => events,
        };
        for event in events {
            if event.data.starts_with("[DONE]") {
                // Whatever an upstream sends after its end is not part of the answer.
                ended = true;
                break;
            }
            let chunk = json::parse_object(event.data.as_bytes())
                .map_err(|error| unusable(windows, format!("a chunk is not valid JSON: {error}")))?;
            if chunk.get("error").is_some_and(|error| !error.is_null()) {
                return Err(unusable(windows, "an error inside the stream".to_owned()).into());
            }
            let part = Part::of(&chunk);
            assembler.push(chunk).map_err(|error| unusable(windows, error.to_string()))?;
            match flow.push(event, &part) {
                Next::Wait => {}
                Next::Send(events) => send(client, events).await?,
                Next::Judge => {
                    let verdict = client.hold(judge_window(routed, &mut flow, tally)).await?;
                    match flow.settle(&verdict) {
                        Settled::Send(events) => send(client, events).await?,
                        Settled::Hold => {}
                        Settled::Stop => return stopped(routed, flow, assembler, verdict),
                    }
                }
            }
        }
    }
    if !ended && !assembler.is_finished() {
        return Err(CallError::Unreachable(windows.upstream().to_owned()).into());
    }
    if flow.release() != Release::Unread && !flow.nothing_sent() {
        let verdict = look_back(routed, &flow);
        match flow.settle(&verdict) {
            Settled::Send(events) => send(client, events).await?,
            Settled::Hold => {}
            Settled::Stop => return stopped(routed, flow, assembler, verdict),
        }
    }
    let released = !flow.nothing_sent();
    note_release(routed, flow.release());
    let answer = assembler.finish().map_err(|error| unusable(windows, error.to_string()))?;
    Ok(Gathered { answer, raw: Raw::Events(flow.finish()), released, stopped: None })
}

fn unusable(windows: &Windows, error: String) -> CallError {
    CallError::Unusable(windows.upstream().to_owned(), error)
}

async fn send(client: &Client, events: Vec<Event>) -> Result<(), Interrupted> {
    for event in events {
        client.frame(Bytes::from(sse::encode(&event.data))).await?;
    }
    Ok(())
}

/// Judges a window with the rules, and the first paragraph of a suspicious request with the feedback model
/// too. Where that model fails and the policy is to stay closed, the draft is read as a whole.
async fn judge_window(routed: &mut Routed, flow: &mut Flow, tally: &mut Tally) -> Verdict {
    let text = flow.judged();
    note_window(routed, text.len());
    let live = &routed.live;
    let judge = Judge { screen: &live.screen, feedback: live.feedback.as_ref(), budget: &live.budget };
    let draft = Draft {
        request: &routed.received.request,
        reading: &routed.reading,
        text: &text,
        acts: "",
        rejected: &[],
    };
    let ask = flow.is_first_paragraph() && routed.depth > Depth::Rules;
    let verdict = judge.judge(draft, if ask { Depth::Always } else { Depth::Rules }, tally).await;
    if verdict.state.is_degraded() {
        let closed = live.settings.failure.at(routed.reading.risk) == OnFailure::Closed;
        routed.received.record.degraded = Some(verdict.state.as_str().to_owned());
        if closed {
            flow.hold_all();
        }
    }
    verdict
}

/// Reads the whole text once more before its last window goes.
fn look_back(routed: &mut Routed, flow: &Flow) -> Verdict {
    let text = flow.text();
    note_window(routed, text.len());
    let request = &routed.received.request;
    read_draft(
        &routed.live.screen,
        Draft { request, reading: &routed.reading, text: &text, acts: "", rejected: &[] },
    )
}

fn note_window(routed: &mut Routed, bytes: usize) {
    routed.received.record.scanned.windows += 1;
    routed.received.record.scanned.answer_bytes += bytes;
}

fn note_release(routed: &mut Routed, release: Release) {
    release.as_str().clone_into(&mut routed.received.record.scanned.release);
}

/// Ends a stream at a harmful window: what was sent stays, a closing sentence and the reason follow.
fn stopped(
    routed: &mut Routed,
    flow: Flow,
    assembler: StreamAssembler,
    verdict: Verdict,
) -> Result<Gathered, Broken> {
    note_release(routed, flow.release());
    let drafted = flow.text();
    let text = format!("{}{}", flow.sent(), templates::STOPPED);
    let upstream = routed.agent.name.clone();
    let mut answer = assembler.finish().map_err(|error| CallError::Unusable(upstream, error.to_string()))?;
    answer.choices.truncate(1);
    if let Some(choice) = answer.choices.first_mut() {
        choice.replace_text(&text, false);
        choice.finish_reason = Some("content_filter".to_owned());
    }
    let closing = [
        json!([{"index": 0, "delta": {"content": templates::STOPPED}, "finish_reason": null}]),
        json!([{"index": 0, "delta": {}, "finish_reason": "content_filter"}]),
    ];
    let left = closing
        .into_iter()
        .map(|choices| Event { name: String::new(), data: answer.chunk(choices, false).to_string() });
    let raw = Raw::Events(left.collect());
    Ok(Gathered { answer, raw, released: true, stopped: Some((drafted, verdict)) })
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
    note_window(routed, text.len());
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
