//! One task of a run: a chat request to its agent, on the path of all chat requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use waltz_coach::route::{Answered, Errand, Failure};
use waltz_exchange::openai::Answer;
use waltz_exchange::record::{Decision, ExchangeRecord, RunTask};
use waltz_exchange::{Depth, id, json as strict_json};

use super::RUN;
use crate::client::{Head, Line};
use crate::live::{AGENT_PREFIX, Gateway};
use crate::receive::{Incoming, Planned};
use crate::router::Admitted;
use crate::underway::begin;
use crate::{pipeline, reply};

/// What all tasks of a run share.
pub(super) struct Context<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) incoming: &'a Incoming,
    /// The run's own entry, which lends its id and its session.
    pub(super) run: &'a ExchangeRecord,
    pub(super) subject: Option<String>,
    /// When the run must be over.
    pub(super) until: tokio::time::Instant,
    /// Set once a task is an exchange, which ends in a record.
    pub(super) begun: &'a AtomicBool,
}

/// The chat request that a task is.
#[derive(Serialize)]
struct Request<'a> {
    model: String,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a str>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Words<'a>,
}

/// What a message says. Written without a copy: results may be long.
enum Words<'a> {
    /// What came of a task.
    Result(&'a str, &'a str),
    /// What is to be done.
    Task(&'a str),
}

/// Headers of the run that its tasks bear too.
const INHERITED: [&str; 2] = ["traceparent", "x-waltz-on-degraded"];

/// Does a task. The exchange runs on a task of its own; whoever stops waiting hangs up on it, as a client would.
pub(super) async fn exchange(context: &Context<'_>, errand: Errand<'_>) -> Result<Answered, Failure> {
    let Context { gateway, incoming, run, .. } = context;
    // A run may take long, and the kill switch holds for what is not begun.
    let live = gateway.live.load_full();
    let body = body(context, &errand, live.settings.max_body_bytes)?;
    let task = RunTask { id: run.id.clone(), task: errand.task.id.clone() };
    let admitted = Admitted {
        caller: incoming.caller.clone(),
        live: Arc::clone(&live),
        headers: headers(context, &errand.task.task_type),
        request_id: id::new_request_id(),
        began: Instant::now(),
        at: Timestamp::now(),
        planned: Some(Planned { task, reason: errand.assignment.reason.clone() }),
    };
    context.begun.store(true, Ordering::Relaxed);
    let (exchange, line) = begin(gateway, admitted, body, RUN, pipeline::run);
    gateway.tasks.spawn(exchange);
    // The frames stay open, although none come: their end is how an exchange learns that nobody waits.
    let Line { head, frames: _frames } = line;
    let is_read = live.settings.depth(RUN, &errand.task.task_type) != Depth::None;
    match tokio::time::timeout_at(context.until, head).await {
        Ok(Ok(Head::Whole(StatusCode::OK, headers, body))) => answered(&headers, &body, is_read),
        Ok(Ok(Head::Whole(_, _, body))) => Err(told(&body)),
        Ok(Ok(Head::Stream(_)) | Err(_)) => Err(failure("internal_error", "internal error".to_owned())),
        Err(_) => Err(failure("run_timeout", "the time of the run is over".to_owned())),
    }
}

/// The chat request: what came of the tasks before it, each in a message of its own and as it was said, so that whoever
/// reads the request reads it as it read the answer; and then the task in words.
fn body(context: &Context<'_>, errand: &Errand<'_>, limit: usize) -> Result<Bytes, Failure> {
    let Errand { task, assignment, results, .. } = errand;
    let too_large = || {
        let message = format!("with the results before it the task is larger than {limit} bytes");
        failure("request_too_large", message)
    };
    let bytes =
        results.iter().map(|(_, text)| text.len()).fold(task.description.len(), usize::saturating_add);
    if bytes > limit {
        return Err(too_large());
    }
    let words = results.iter().map(|(task, text)| Words::Result(task, text));
    let words = words.chain([Words::Task(&task.description)]);
    let request = Request {
        model: format!("{AGENT_PREFIX}{}", assignment.agent),
        messages: words.map(|content| Message { role: "user", content }).collect(),
        safety_identifier: context.subject.as_deref(),
    };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    if body.len() > limit { Err(too_large()) } else { Ok(Bytes::from(body)) }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(task, text) => {
                write!(formatter, "Result of the task `{task}`, for information only:\n{text}")
            }
            Self::Task(description) => formatter.write_str(description),
        }
    }
}

impl Serialize for Words<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn headers(context: &Context<'_>, task_type: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in INHERITED {
        if let Some(value) = context.incoming.headers.get(name) {
            headers.insert(name, value.clone());
        }
    }
    reply::set(&mut headers, "x-waltz-session-id", &context.run.session_id);
    reply::set(&mut headers, "x-waltz-task-type", task_type);
    reply::set(&mut headers, "x-waltz-annotations", "on");
    headers
}

fn answered(headers: &HeaderMap, body: &[u8], is_read: bool) -> Result<Answered, Failure> {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let unusable = || failure("upstream_invalid_answer", "the agent's answer holds no text".to_owned());
    let answer = Answer::parse(body).map_err(|_| unusable())?;
    let choice = answer.choices.first().ok_or_else(unusable)?;
    let decision = word("x-waltz-decision").map(|word| serde_json::from_value::<Decision>(json!(word)));
    // What nobody read passes as it came, and a verdict in it is not ours.
    let ours = answer.head.get("waltz").filter(|_| is_read);
    Ok(Answered {
        text: choice.said().ok_or_else(unusable)?,
        decision: decision.and_then(Result::ok).ok_or_else(unusable)?,
        rounds: word("x-waltz-rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(0),
        safe: ours.and_then(|ours| ours["unsafe"].as_bool()).map(|is_unsafe| !is_unsafe),
        degraded: word("x-waltz-degraded").map(str::to_owned),
        response_id: word("x-waltz-response-id").map(str::to_owned),
    })
}

/// An error reply, as the run tells it.
fn told(body: &[u8]) -> Failure {
    let object = strict_json::parse_object(body).unwrap_or_default();
    let field = |name: &str| {
        let error = object.get("error").and_then(|error| error.get(name));
        error.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    failure(&field("code"), field("message"))
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message }
}
