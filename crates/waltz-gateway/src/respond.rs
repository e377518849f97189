//! Step 6: the answer in the form the client asked for. Everything is sent but the terminal frame,
//! which waits until the exchange is on record.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use waltz_exchange::Verdict;
use waltz_exchange::openai::Answer;
use waltz_exchange::record::{ChoiceRecord, ExchangeRecord, Scanned};
use waltz_exchange::score::rounded;

use crate::api::moderations;
use crate::client::{Client, Interrupted};
use crate::coach::Coached;
use crate::dialect::Dialect;
use crate::feedback::Raw;
use crate::personal;
use crate::pipeline::Stop;
use crate::reply::{self, name};
use crate::route::Routed;

/// An answer of which only the end is missing.
pub struct Responded {
    /// The record, complete but for its duration.
    pub record: Box<ExchangeRecord>,
    /// When the request came.
    pub began: std::time::Instant,
    /// Time that was upstream's.
    pub waited: std::time::Duration,
    /// What ends the reply.
    pub terminal: Terminal,
}

/// What ends a reply.
#[derive(Debug)]
pub enum Terminal {
    /// The whole reply.
    Whole(StatusCode, HeaderMap, Bytes),
    /// The last frame of a stream.
    Frame(Bytes),
}

/// The version of the `waltz` object.
const VERSION: u32 = 1;

/// Sends the answer, all but its end.
pub async fn respond(coached: Coached, client: &Client) -> Result<Responded, Stop> {
    let Coached { routed, mut answer, mut raw, released, tally, decision, rounds } = coached;
    let waited = tally.waited;
    let Routed { received, may_change, depth, vault, .. } = routed;
    let mut record = received.record;
    record.usage.coaching_tokens = tally.coaching_tokens();
    note_usage(&mut record, &answer);
    record.attempts = tally.attempts;
    record.decision = decision;
    record.status = 200;
    record.upstream_id = answer.id().map(str::to_owned);
    // Bytes that came can only be sent on where nothing has to be added to them.
    if (add_usage(&mut answer, tally.revisions) | add_id(&mut answer)) && !released {
        raw = Raw::Rewritten;
    }
    let transparent = !may_change && depth == waltz_exchange::Depth::None;
    let summary = Summary { record: &record, rounds, transparent };
    let began = received.began;
    let moderation = received.request.moderation().map(|_| summary.moderation());
    let terminal = if client.is_streaming() {
        let told = received.wishes.annotations.unwrap_or(moderation.is_some());
        let extras = Extras { waltz: told.then(|| summary.object()), moderation };
        let include_usage = received.request.include_usage();
        let mut frames = frames(&answer, raw, include_usage);
        if let Some(reason) = record.degraded.as_deref().filter(|_| !told) {
            tell_degraded(&mut frames, reason);
        }
        if let Err(why) = send(client, &answer, frames, extras.into_map()).await {
            return Err(Stop::interrupted(record, why));
        }
        Terminal::Frame(client.dialect().terminal())
    } else {
        let wanted = received.wishes.annotations != Some(false) && !transparent;
        let extras = Extras { waltz: wanted.then(|| summary.object()), moderation };
        if personal::restore_answer(&mut answer, &vault, received.request.wants_json()) {
            raw = Raw::Rewritten;
        }
        let body = whole(client.dialect(), &answer, &raw, extras);
        let mut headers = reply::json_headers();
        final_headers(&mut headers, &record, rounds);
        let overhead = began.elapsed().saturating_sub(waited);
        reply::set(&mut headers, &name::OVERHEAD, &format!("{:.3}", overhead.as_secs_f64() * 1e3));
        let elapsed = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
        reply::set_count(&mut headers, &name::PROCESSING, elapsed);
        Terminal::Whole(StatusCode::OK, headers, body)
    };
    Ok(Responded { record, began, waited, terminal })
}

/// Puts on record what a draft cost, where its upstream said so.
pub fn note_usage(record: &mut ExchangeRecord, draft: &Answer) {
    if let Some((prompt, completion)) = draft.usage() {
        record.usage.prompt_tokens = prompt;
        record.usage.completion_tokens = completion;
    }
}

/// The headers of a stream, sent before there is a verdict.
pub fn pending_headers(routed: &Routed) -> HeaderMap {
    let record = &routed.received.record;
    let mut headers = reply::stream_headers();
    let decision = if routed.may_change { "pending" } else { "passthrough" };
    common_headers(&mut headers, record);
    headers.insert(&name::DECISION, HeaderValue::from_static(decision));
    reply::set(&mut headers, "x-waltz-window", routed.release.as_str());
    headers
}

/// The headers of a whole reply.
pub fn final_headers(headers: &mut HeaderMap, record: &ExchangeRecord, rounds: u32) {
    common_headers(headers, record);
    headers.insert(&name::DECISION, HeaderValue::from_static(record.decision.as_str()));
    reply::set_count(headers, &name::ROUNDS, rounds);
    if let Some(reason) = &record.degraded {
        reply::set(headers, "x-waltz-degraded", reason);
    }
}

/// The headers that every answer of an exchange carries, errors too.
pub fn common_headers(headers: &mut HeaderMap, record: &ExchangeRecord) {
    reply::set(headers, &name::REQUEST_ID, &record.id);
    reply::set(headers, &name::SESSION_ID, &record.session_id);
    if let Some(id) = &record.response_id {
        reply::set(headers, &name::RESPONSE_ID, id);
    }
    reply::set_count(headers, &name::STAGE, record.stage.into());
    if !record.variant.is_empty() {
        reply::set(headers, &name::VARIANT, &record.variant);
    }
    if record.route_reason.is_some() {
        reply::set(headers, "x-waltz-agent", &record.agent);
    }
}

/// The answer's usage counts every round the client pays for. Returns whether there was any to add.
fn add_usage(answer: &mut Answer, revisions: (u64, u64)) -> bool {
    let (more_prompt, more_completion) = revisions;
    if revisions == (0, 0) {
        return false;
    }
    let (prompt, completion) = answer.usage().unwrap_or((0, 0));
    let (prompt, completion) =
        (prompt.saturating_add(more_prompt), completion.saturating_add(more_completion));
    let counts = [
        ("prompt_tokens", prompt),
        ("completion_tokens", completion),
        ("total_tokens", prompt.saturating_add(completion)),
    ];
    // Details that an upstream gave stay; they speak of the draft.
    let usage = answer.head.entry("usage").or_insert_with(|| json!({}));
    if !usage.is_object() {
        *usage = json!({});
    }
    for (name, count) in counts {
        usage[name] = json!(count);
    }
    true
}

/// An answer without a usable id gets one, which clients rely on. Returns whether it had none.
fn add_id(answer: &mut Answer) -> bool {
    let sound = |id: &str| (1..=256).contains(&id.len()) && !id.chars().any(char::is_control);
    let missing = !answer.id().is_some_and(sound);
    if missing {
        answer.head.insert("id".to_owned(), json!(waltz_exchange::id::new_response_id()));
    }
    missing
}

/// The body of a JSON answer. An unchanged draft is sent as the bytes that came, with ours spliced in
/// before the closing brace.
fn whole(dialect: &Dialect, answer: &Answer, raw: &Raw, extras: Extras<'_>) -> Bytes {
    if let (Dialect::OpenAi, Raw::Json(bytes)) = (dialect, raw) {
        if extras.is_empty() {
            return bytes.clone();
        }
        let end = bytes.iter().rposition(|byte| *byte == b'}');
        let ours = [("waltz", extras.waltz.is_some()), ("moderation", extras.moderation.is_some())];
        let clash = ours.iter().any(|(name, is_ours)| *is_ours && answer.head.contains_key(*name));
        if let Some(end) = end.filter(|_| !clash) {
            let mut body = Vec::with_capacity(bytes.len() + 1024);
            body.extend_from_slice(&bytes[..end]);
            // Ours are an object: its opening brace becomes the comma between theirs and ours.
            if serde_json::to_writer(&mut body, &extras).is_ok() {
                body[end] = b',';
                return Bytes::from(body);
            }
        }
    }
    Bytes::from(dialect.answer(answer, &extras.into_map()).to_string())
}

/// A frame of a stream.
struct Frame {
    data: String,
    is_usage: bool,
}

/// The frames of a stream, without its end.
fn frames(answer: &Answer, raw: Raw, include_usage: bool) -> Vec<Frame> {
    let last_is_usage = include_usage && answer.head.contains_key("usage");
    let mut frames: Vec<Frame> = match raw {
        Raw::Events(events) => {
            events.into_iter().map(|event| Frame { data: event.data, is_usage: false }).collect()
        }
        Raw::Json(_) | Raw::Rewritten => {
            let chunks = answer.to_chunks(include_usage);
            chunks.iter().map(|chunk| Frame { data: chunk.to_string(), is_usage: false }).collect()
        }
    };
    if let Some(last) = frames.last_mut() {
        last.is_usage = last_is_usage;
    }
    frames
}

/// The headers of a stream went before it was known to be degraded, and a chunk of its own would surprise
/// clients that did not ask for one, so that the last chunk of the answer says it.
fn tell_degraded(frames: &mut [Frame], reason: &str) {
    let Some(last) = frames.iter_mut().rfind(|frame| !frame.is_usage) else { return };
    if let Ok(Value::Object(mut chunk)) = serde_json::from_str(&last.data) {
        chunk.insert("waltz".to_owned(), json!({"version": VERSION, "degraded": reason}));
        last.data = Value::Object(chunk).to_string();
    }
}

async fn send(
    client: &Client,
    answer: &Answer,
    frames: Vec<Frame>,
    extras: Map<String, Value>,
) -> Result<(), Interrupted> {
    let extra = (!extras.is_empty()).then(|| {
        let mut chunk = answer.chunk(json!([]), false);
        for (name, value) in extras {
            chunk[name] = value;
        }
        Frame { data: chunk.to_string(), is_usage: false }
    });
    // Clients take the usage from the last chunk, so that ours goes before it.
    let usage = frames.iter().position(|frame| frame.is_usage).unwrap_or(frames.len());
    let mut frames = frames;
    frames.splice(usage..usage, extra);
    for frame in frames {
        client.chunk(&frame.data).await?;
    }
    for frame in client.dialect().ending() {
        client.frame(frame).await?;
    }
    Ok(())
}

/// What waltz adds to an answer.
#[derive(Serialize)]
struct Extras<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    waltz: Option<Told<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moderation: Option<Value>,
}

impl Extras<'_> {
    fn is_empty(&self) -> bool {
        self.waltz.is_none() && self.moderation.is_none()
    }

    fn into_map(self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

/// The `waltz` object of an answer.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    decision: &'static str,
    rounds: u32,
    categories: Map<String, Value>,
    safety_score: Option<f64>,
    helpfulness_score: Option<f64>,
    #[serde(rename = "unsafe")]
    is_unsafe: Option<bool>,
    agent: &'a str,
    route_reason: Option<&'a str>,
    task_type: &'a str,
    variant: &'a str,
    stage: u8,
    risk: &'static str,
    session_id: &'a str,
    evaluation_id: &'a str,
    response_id: Option<&'a str>,
    degraded: Option<&'a str>,
    scanned: &'a Scanned,
    coaching_tokens: u64,
}

/// Makes what the client is told beside the answer.
struct Summary<'a> {
    record: &'a ExchangeRecord,
    rounds: u32,
    transparent: bool,
}

impl<'a> Summary<'a> {
    fn object(&self) -> Told<'a> {
        let record = self.record;
        let worst = |score: fn(&Verdict) -> f32| self.verdicts().map(score).fold(1.0, f32::min);
        let judged = self.verdicts().next().is_some();
        Told {
            version: VERSION,
            decision: record.decision.as_str(),
            rounds: self.rounds,
            categories: self.categories(),
            safety_score: judged.then(|| rounded(worst(|verdict| verdict.safety_score))),
            helpfulness_score: judged.then(|| rounded(worst(|verdict| verdict.helpfulness_score))),
            is_unsafe: judged.then(|| self.verdicts().any(|verdict| verdict.is_unsafe)),
            agent: &record.agent,
            route_reason: record.route_reason.as_deref(),
            task_type: &record.task_type,
            variant: &record.variant,
            stage: record.stage,
            risk: record.risk.as_str(),
            session_id: &record.session_id,
            evaluation_id: &record.id,
            response_id: record.response_id.as_deref(),
            degraded: record.degraded.as_deref(),
            scanned: &record.scanned,
            coaching_tokens: record.usage.coaching_tokens,
        }
    }

    fn verdicts(&self) -> impl Iterator<Item = &'a Verdict> {
        self.record.choices.iter().filter_map(|choice| choice.final_verdict.as_ref())
    }

    /// Harm found in the drafts, so that the client learns what was mended.
    fn categories(&self) -> Map<String, Value> {
        let mut highest: Map<String, Value> = Map::new();
        for verdict in self.record.choices.iter().filter_map(|choice| choice.draft.verdict.as_ref()) {
            for (category, score) in &verdict.categories {
                let known = highest.get(category.as_str()).and_then(Value::as_f64).unwrap_or(0.0);
                highest.insert(category.as_str().to_owned(), json!(known.max(rounded(*score))));
            }
        }
        highest
    }

    fn moderation(&self) -> Value {
        let side = |verdict: Option<&Verdict>| match verdict {
            Some(verdict) if verdict.state.is_degraded() => json!({
                "type": "error",
                "code": verdict.state.as_str(),
                "message": "the judge could not give a verdict",
            }),
            Some(verdict) => moderations::results(verdict),
            None if self.transparent => json!({
                "type": "error",
                "code": "waltz_disabled",
                "message": "nothing is judged while waltz is switched off",
            }),
            None => {
                json!({"type": "error", "code": "not_judged", "message": "the policy asks for no verdict here"})
            }
        };
        // A text that was not let through is what the client asks about, not the reply in its place.
        let told = |choice: &'_ ChoiceRecord| -> Option<Verdict> {
            let last = choice.self_check.as_ref().unwrap_or(&choice.draft).verdict.as_ref();
            if choice.last_resort { last.cloned() } else { choice.final_verdict.clone() }
        };
        let verdicts: Vec<Verdict> = self.record.choices.iter().filter_map(told).collect();
        let worst = verdicts.iter().max_by(|left, right| left.response_harm.total_cmp(&right.response_harm));
        json!({"input": side(self.record.prompt_verdict.as_ref()), "output": side(worst)})
    }
}
