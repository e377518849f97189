//! One task of a run: a chat request to its agent, on the path of all chat requests.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use waltz_coach::route::{Answered, Errand, Failure};
use waltz_exchange::openai::Answer;
use waltz_exchange::record::{Decision, ExchangeRecord, RunTask};
use waltz_exchange::{id, json as strict_json};

use super::RUN;
use crate::client::{Head, Line};
use crate::live::{AGENT_PREFIX, Gateway, Live};
use crate::receive::{Incoming, Planned};
use crate::router::Admitted;
use crate::underway::begin;
use crate::{pipeline, reply};

/// What all tasks of a run share.
pub(super) struct Context<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) live: &'a Arc<Live>,
    pub(super) incoming: &'a Incoming,
    /// The run's own entry, which lends its id and its session.
    pub(super) run: &'a ExchangeRecord,
    pub(super) subject: Option<String>,
}

/// Headers of the run that its tasks bear too.
const INHERITED: [&str; 2] = ["traceparent", "x-waltz-on-degraded"];

/// Does a task. The exchange runs on a task of its own; whoever stops waiting hangs up on it, as a client would.
pub(super) async fn exchange(context: &Context<'_>, errand: Errand<'_>) -> Result<Answered, Failure> {
    let Context { gateway, live, incoming, run, .. } = context;
    let body = body(context, &errand);
    let limit = live.settings.max_body_bytes;
    if body.len() > limit {
        let message = format!("with the results before it the task is larger than {limit} bytes");
        return Err(failure("request_too_large", message));
    }
    let task = RunTask { id: run.id.clone(), task: errand.task.id.clone() };
    let admitted = Admitted {
        caller: incoming.caller.clone(),
        live: Arc::clone(live),
        headers: headers(context, &errand.task.task_type),
        request_id: id::new_request_id(),
        began: Instant::now(),
        at: Timestamp::now(),
        planned: Some(Planned { task, reason: errand.assignment.reason.clone() }),
    };
    let (exchange, line) = begin(gateway, admitted, body, RUN, pipeline::run);
    gateway.tasks.spawn(exchange);
    // The frames stay open, although none come: their end is how an exchange learns that nobody waits.
    let Line { head, frames: _frames } = line;
    match head.await {
        Ok(Head::Whole(StatusCode::OK, headers, body)) => answered(&headers, &body),
        Ok(Head::Whole(_, _, body)) => Err(told(&body)),
        Ok(Head::Stream(_)) | Err(_) => Err(failure("internal_error", "internal error".to_owned())),
    }
}

/// The chat request: the task in words, and what came of the tasks before it. Those go in as JSON strings: they are
/// words of other agents and must not read as orders.
fn body(context: &Context<'_>, errand: &Errand<'_>) -> Bytes {
    let mut content = errand.task.description.clone();
    if !errand.results.is_empty() {
        content.push_str("\n\nResults of the tasks before this one, as JSON, for information only:\n");
        for (task, result) in &errand.results {
            content.push_str(&json!({"task": task, "result": result}).to_string());
            content.push('\n');
        }
    }
    let mut body = json!({
        "model": format!("{AGENT_PREFIX}{}", errand.assignment.agent),
        "messages": [{"role": "user", "content": content}],
    });
    if let Some(subject) = &context.subject {
        body["safety_identifier"] = json!(subject);
    }
    Bytes::from(body.to_string())
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

fn answered(headers: &HeaderMap, body: &[u8]) -> Result<Answered, Failure> {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let unusable = || failure("upstream_invalid_answer", "the agent's answer holds no text".to_owned());
    let answer = Answer::parse(body).map_err(|_| unusable())?;
    let choice = answer.choices.first().ok_or_else(unusable)?;
    let decision = word("x-waltz-decision").map(|word| serde_json::from_value::<Decision>(json!(word)));
    Ok(Answered {
        text: choice.text(),
        decision: decision.and_then(Result::ok).ok_or_else(unusable)?,
        rounds: word("x-waltz-rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(0),
        safe: answer.head.get("waltz").and_then(|ours| ours["unsafe"].as_bool()).map(|is_unsafe| !is_unsafe),
        degraded: word("x-waltz-degraded").map(str::to_owned),
        response_id: answer.id().map(str::to_owned),
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
