//! Step 1: who calls, what they send, and a record that from now on ends exactly once.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use waltz_exchange::openai::{ApiError, ChatRequest, Speaker};
use waltz_exchange::record::{Context, Decision, ExchangeRecord, RunTask, Scanned, Turn, UsageRecord};
use waltz_exchange::{Depth, Risk, id};

use crate::auth::Caller;
use crate::dialect::{MESSAGES, parse_request};
use crate::pipeline::Stop;
use crate::trace;

/// A request as it came in.
#[derive(Debug)]
pub struct Incoming {
    /// Its id.
    pub request_id: String,
    /// The id of the answer, should there be one.
    pub response_id: String,
    /// The path.
    pub path: &'static str,
    /// When it came, by the wall clock.
    pub at: Timestamp,
    /// When it came, for durations.
    pub began: Instant,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Who sent it.
    pub caller: Caller,
    /// Where it stands in a plan, if it is a task of one.
    pub planned: Option<Planned>,
}

/// Where a request that a run makes stands in its plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Which task it is.
    pub task: RunTask,
    /// Why the plan gave it to its agent.
    pub reason: String,
}

/// A request that can be answered.
#[derive(Debug)]
pub struct Received {
    /// The request.
    pub request: ChatRequest,
    /// Its bytes, where they are in the upstream's form: they go there untouched if nothing has to change.
    pub raw: Option<Bytes>,
    /// What the client wants beyond the OpenAI form.
    pub wishes: Wishes,
    /// Whoever must always meet the same variant, where the client named a session or an end user.
    pub unit: Option<String>,
    /// When it came.
    pub began: Instant,
    /// The record so far.
    pub record: Box<ExchangeRecord>,
}

/// What the client wants beyond the OpenAI form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `x-waltz-annotations`: on, off, or the default of the form.
    pub annotations: Option<bool>,
    /// `x-waltz-on-degraded: error`: rather an error than a degraded answer.
    pub error_on_degraded: bool,
    /// `x-waltz-task-type`.
    pub task_type: Option<String>,
    /// `x-waltz-agent`.
    pub agent: Option<String>,
}

/// Reads a chat request.
pub fn receive(incoming: &Incoming) -> Result<Received, Stop> {
    let mut record = Box::new(incoming.blank_record());
    let Incoming { path, began, headers, body, .. } = incoming;
    let parsed = parse_request(path, body).and_then(|request| {
        let wishes = wishes(headers)?;
        let session = session_id(headers, &request)?;
        if let Some(task_type) = request.metadata("task_type") {
            checked_word("metadata.task_type", task_type)?;
        }
        Ok((request, wishes, session))
    });
    let (request, wishes, session) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return Err(Stop::new(record, Decision::Invalid, error)),
    };
    let unit = session.as_deref().or_else(|| request.subject()).map(str::to_owned);
    if let Some(session) = session {
        record.session_id = session;
    }
    record.streamed = request.stream();
    request.model().clone_into(&mut record.model);
    record.subject = request.subject().map(|subject| id::sha256_hex(subject.as_bytes()));
    record.user_request = request.user_request();
    record.context = Some(context(&request));
    // Bytes in another form than the upstream's cannot be sent on as they are.
    let raw = (*path != MESSAGES).then(|| body.clone());
    Ok(Received { request, raw, wishes, unit, began: *began, record })
}

impl Received {
    /// Whoever must always meet the same variant; where the client does not say, whoever begins with the same words.
    pub fn unit(&self) -> String {
        self.unit.clone().unwrap_or_else(|| {
            let first = self.request.messages().iter().find(|message| message["role"] == "user");
            let words = first.unwrap_or(&Value::Null).to_string();
            format!("{}\u{1f}{}", self.record.tenant, id::sha256_hex(words.as_bytes()))
        })
    }
}

impl Incoming {
    /// The record of a request of which nothing is known yet.
    pub fn blank_record(&self) -> ExchangeRecord {
        let mut record =
            blank_record(self.request_id.clone(), self.caller.tenant.clone(), self.path, self.at);
        record.response_id = Some(self.response_id.clone());
        record.traceparent = trace::traceparent(&self.headers);
        if let Ok(Some(session)) = session(&self.headers) {
            record.session_id = session;
        }
        if let Some(Planned { task, reason }) = &self.planned {
            record.run = Some(task.clone());
            record.route_reason = Some(reason.clone());
        }
        record
    }
}

/// The record of a request of which nothing is known yet.
pub fn blank_record(id: String, tenant: String, path: &str, at: Timestamp) -> ExchangeRecord {
    ExchangeRecord {
        id,
        session_id: id::new_session_id(),
        tenant,
        subject: None,
        endpoint: path.to_owned(),
        traceparent: None,
        streamed: false,
        started_at: at,
        duration_ms: 0.0,
        overhead_ms: 0.0,
        decision: Decision::Failed,
        status: 200,
        error: None,
        degraded: None,
        response_id: None,
        upstream_id: None,
        agent: String::new(),
        route_reason: None,
        run: None,
        model: String::new(),
        variant: String::new(),
        variant_choice: None,
        program_choice: None,
        request_context: None,
        lesson: None,
        stage: 1,
        task_type: String::new(),
        depth: Depth::None,
        risk: Risk::Low,
        scanned: Scanned::default(),
        request_hash: String::new(),
        user_request: String::new(),
        embedding: None,
        context: None,
        prompt_verdict: None,
        choices: Vec::new(),
        attempts: Vec::new(),
        usage: UsageRecord::default(),
    }
}

/// The turns before the current request, and the names of the tools on offer.
pub fn context(request: &ChatRequest) -> Context {
    let start = request.turn_start();
    let is_current = |position: usize, speaker| speaker == Speaker::User && position >= start;
    let before = request
        .texts()
        .into_iter()
        .filter(|field| field.message.is_some_and(|position| !is_current(position, field.speaker)));
    let turns = before
        .map(|field| Turn { speaker: field.speaker.as_str().into(), text: field.text.into_owned() })
        .collect();
    let names = request.tools().iter().filter_map(|tool| tool.get("function")?.get("name")?.as_str());
    Context { turns, tools: names.map(str::to_owned).collect() }
}

/// Reads what the client wants beyond the OpenAI form.
pub fn wishes(headers: &HeaderMap) -> Result<Wishes, ApiError> {
    let word = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let annotations = match word("x-waltz-annotations") {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(_) => return Err(ApiError::invalid("header `x-waltz-annotations` must be on or off", None)),
    };
    let error_on_degraded = match word("x-waltz-on-degraded") {
        None | Some("answer") => false,
        Some("error") => true,
        Some(_) => {
            return Err(ApiError::invalid("header `x-waltz-on-degraded` must be answer or error", None));
        }
    };
    let name = |header: &str| word(header).map(|value| checked_word(header, value)).transpose();
    let (task_type, agent) = (name("x-waltz-task-type")?, name("x-waltz-agent")?);
    Ok(Wishes { annotations, error_on_degraded, task_type, agent })
}

fn session_id(headers: &HeaderMap, request: &ChatRequest) -> Result<Option<String>, ApiError> {
    if let Some(session) = session(headers)? {
        return Ok(Some(session));
    }
    request.metadata("session_id").map(|value| checked_word("metadata.session_id", value)).transpose()
}

/// The session that the header names.
pub fn session(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let name = "x-waltz-session-id";
    let given = headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    given.map(|value| checked_word(name, value)).transpose()
}

/// A name that is safe to log, to index and to send back in a header.
pub fn checked_word(name: &str, value: &str) -> Result<String, ApiError> {
    if id::is_name(value) {
        return Ok(value.to_owned());
    }
    let message = format!("`{name}` must be 1 to 128 letters, digits or any of . _ : -");
    Err(ApiError::invalid(message, Some(name)))
}
