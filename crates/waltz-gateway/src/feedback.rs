//! Step 4: the draft is read. Ordinary streams are released window by window, each after it was judged;
//! what looks risky is gathered until it is whole. Then every choice is judged. Where waltz may not change
//! the answer, it goes to the client as it arrives and the verdict follows.

pub mod flow;
mod gather;

use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use waltz_coach::conversation;
use waltz_coach::judge::Draft;
use waltz_coach::tally::Tally;
use waltz_coach::upstream::CallError;
use waltz_exchange::openai::answer::FINISH_REASONS;
use waltz_exchange::openai::{Answer, Choice, StreamAssembler};
use waltz_exchange::record::{Assessment, ChoiceRecord, Decision, DraftRecord};
use waltz_exchange::sse::Event;
use waltz_exchange::{Depth, Verdict};

use crate::client::Client;
use crate::draft::{self, Broken, Drafted, with_tally};
use crate::feedback::flow::{Flow, Release};
use crate::feedback::gather::{Gathered, gather, note_release, note_window, words};
use crate::personal;
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

/// Gathers and judges the draft.
pub async fn feedback(drafted: Drafted, client: &mut Client) -> Result<Judged, Stop> {
    let Drafted { mut routed, mut windows, mut tally, assessed, mut course } = drafted;
    if routed.received.request.stream() {
        let headers = respond::pending_headers(&routed);
        if let Err(why) = client.begin_stream(headers).await {
            return Err(Stop::interrupted(with_tally(routed, tally), why));
        }
    }
    let (mut flow, mut assembler);
    let gathered = loop {
        let began = Instant::now();
        let judging = tally.waited;
        flow = Flow::new(if client.is_streaming() { routed.release } else { Release::Whole });
        assembler = StreamAssembler::default();
        let parts = (&mut flow, &mut assembler);
        let gathered = gather(&mut routed, &mut windows, &mut tally, parts, client).await;
        // What the judge waited for was counted while it did.
        tally.waited += began.elapsed().saturating_sub(tally.waited - judging);
        tally.ended("draft", if let Err(Broken::Call(error)) = &gathered { Some(error) } else { None });
        match gathered {
            // An error that the upstream tells while nobody saw its draft is a call that failed.
            Err(Broken::Call(error @ CallError::Status { .. })) if flow.nothing_sent() => {
                // Its slot may be the one that the next try needs.
                drop(windows);
                let progress = (&mut course, &mut tally);
                windows = match Box::pin(draft::ask(&routed, assessed, Some(error), progress, client)).await {
                    Ok(next) => next,
                    Err(broken) => return Err(draft::stop(routed, tally, Decision::Failed, broken)),
                };
            }
            gathered => break gathered,
        }
    };
    let gathered = match gathered {
        Ok(gathered) => gathered,
        Err(broken) => {
            let mut came = assembler.finish().ok();
            if let Some(answer) = &mut came {
                windows.add_usage(answer);
                respond::note_usage(&mut routed.received.record, answer);
            }
            Box::pin(note_sent(&mut routed, &flow, came, &mut tally)).await;
            let decision = if windows.is_event_stream() { Decision::Incomplete } else { Decision::Failed };
            return Err(draft::stop(routed, tally, decision, broken));
        }
    };
    // Closes the connection to the upstream, which matters when the stream was stopped.
    drop(windows);
    let Gathered { mut answer, mut raw, released, stopped } = gathered;
    let asked = usize::try_from(routed.received.request.choice_count()).unwrap_or(usize::MAX);
    if answer.choices.len() > asked && !released {
        // Nobody asked for more, and each would be read and coached.
        answer.choices.truncate(asked);
        raw = Raw::Rewritten;
    }
    let mut judged =
        Judged { routed, answer, raw, choices: Vec::new(), released, stopped: stopped.is_some(), tally };
    note_unknown_finish(&judged.answer);
    if let Some((text, verdict)) = stopped {
        let assessment = conversation::assessment_from(Some(&verdict));
        let draft = DraftRecord { text, assessment, verdict: Some(verdict.clone()) };
        judged.choices.push(JudgedChoice { draft, self_check: None, verdict: Some(verdict) });
        return Ok(judged);
    }
    let read = client.hold(pin!(read_choices(&mut judged, assessed))).await;
    match read {
        Ok(()) => Ok(judged),
        Err(why) => {
            let Judged { mut routed, answer, mut tally, .. } = judged;
            Box::pin(note_sent(&mut routed, &flow, Some(answer), &mut tally)).await;
            Err(Stop::interrupted(with_tally(routed, tally), why))
        }
    }
}

/// Puts on record what of a draft went to the client before it broke off: all that came of an unread one. It is read once
/// more by rules, as it is at the end of a whole stream: windows alone may have missed what it says.
async fn note_sent(routed: &mut Routed, flow: &Flow, came: Option<Answer>, tally: &mut Tally) {
    if flow.nothing_sent() {
        return;
    }
    let unread = flow.release() == Release::Unread;
    let (text, sent) = if unread {
        let text = came.and_then(|answer| answer.choices.into_iter().next()).map(Choice::into_text);
        (text.unwrap_or_default(), String::new())
    } else {
        (flow.text(), flow.sent().to_owned())
    };
    note_release(routed, flow.release());
    let went: &str = if unread { &text } else { &sent };
    let final_verdict = judge_text(routed, tally, (went, ""), Depth::Rules).await;
    if final_verdict.as_ref().is_some_and(|verdict| verdict.is_unsafe) {
        note_late_violation(routed);
    }
    // Of an unread draft nothing was held back.
    let verdict = final_verdict.clone().filter(|_| unread);
    let assessment = conversation::assessment_from(verdict.as_ref());
    routed.received.record.choices.push(ChoiceRecord {
        index: 0,
        draft: DraftRecord { text, assessment, verdict },
        self_check: None,
        rounds: Vec::new(),
        last_resort: false,
        unchanged: unread,
        final_text: sent,
        final_verdict,
        dir_score: 0.0,
    });
}

/// Puts on record that a text was found harmful when it had gone, where waltz was to keep it back.
pub fn note_late_violation(routed: &mut Routed) {
    if routed.may_change {
        let record = &mut routed.received.record;
        record.scanned.late_violation = true;
        tracing::warn!(request_id = %record.id, "a stream was found harmful after its release");
    }
}

/// Judges every choice of the answer.
async fn read_choices(judged: &mut Judged, assessed: bool) {
    for position in 0..judged.answer.choices.len() {
        let assessment = if assessed { take_assessment(judged, position) } else { None };
        take_personal_data(judged, position);
        let (text, acts) = words(&judged.answer, position);
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
            Box::pin(self_check(judged, position, &mut choice)).await;
        }
        judged.choices.push(choice);
    }
}

async fn judge(judged: &mut Judged, text: &str, acts: &str) -> Option<Verdict> {
    let Judged { routed, tally, .. } = judged;
    let depth = routed.depth;
    judge_text(routed, tally, (text, acts), depth).await
}

/// Judges a text and what it would do; `None` where the policy wants nothing judged.
async fn judge_text(
    routed: &mut Routed,
    tally: &mut Tally,
    (text, acts): (&str, &str),
    depth: Depth,
) -> Option<Verdict> {
    if routed.depth == Depth::None {
        return None;
    }
    note_window(routed, text.len());
    let live = &routed.live;
    let judge = live.judge();
    let draft =
        Draft { request: &routed.received.request, reading: &routed.reading, text, acts, rejected: &[] };
    Some(judge.judge(draft, depth, tally).await)
}

/// Masks what the policy for personal data wants masked, where the draft may still change.
fn take_personal_data(judged: &mut Judged, position: usize) {
    let Judged { routed, answer, raw, released, .. } = judged;
    if !routed.may_change || *released {
        return;
    }
    let is_json = routed.received.request.wants_json();
    let policy = &routed.live.settings.personal;
    let treated = personal::mask_draft(answer, position, policy, is_json);
    for (kind, count) in treated.counts {
        *routed.received.record.scanned.answer_pii.entry(kind).or_default() += count;
    }
    if treated.changed {
        answer.forget_unknown();
        *raw = Raw::Rewritten;
    }
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
    judged.answer.forget_unknown();
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
