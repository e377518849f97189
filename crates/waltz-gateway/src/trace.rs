//! Spans of an exchange: one for the request, one for the coached answer, one for each call of a model. They
//! are made of its record, at its end, and handed to a bounded queue; whoever exports them takes them from
//! there. They carry names, numbers and ids, never texts. Without a queue nothing of this is done.

mod parent;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{self, error::TrySendError};
use waltz_coach::upstream::Upstream;
use waltz_exchange::record::{Attempt, Decision, ExchangeRecord};

pub use parent::{Parent, Sampler, traceparent};

use crate::api::count_tokens::COUNT_TOKENS;
use crate::api::embeddings::EMBEDDINGS;
use crate::live::Live;
use crate::metrics::Metrics;

/// Where spans go.
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Span>,
    sampler: Sampler,
}

/// One span, ready to be exported.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: u128,
    /// Its own id.
    pub id: u64,
    /// The span that caused it; 0 for none.
    pub parent: u64,
    /// What was done.
    pub name: String,
    /// Which end of a call it stands for.
    pub kind: Kind,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What is known about it.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// It went wrong.
    pub failed: bool,
}

/// Which end of a call a span stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work inside of the gateway.
    Internal,
    /// A request to the gateway.
    Server,
    /// A call of an upstream.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A word.
    Text(String),
    /// A number.
    Whole(u64),
    /// Yes or no.
    Flag(bool),
}

/// The most calls of one exchange that become spans.
const MOST_CALLS: usize = 64;

/// The longest text of an attribute, in characters. A model's name is the client's to choose.
const LONGEST: usize = 200;

/// The name of the workflow that every coached answer is.
const WORKFLOW: &str = "waltz.coach";

impl Traces {
    /// A queue of at most `capacity` spans, and its other end.
    pub fn new(capacity: usize, sampler: Sampler) -> (Self, mpsc::Receiver<Span>) {
        let (queue, receiver) = mpsc::channel(capacity.max(1));
        (Self { queue, sampler }, receiver)
    }

    /// Makes the spans of an exchange and queues them. Never waits: what finds no room is dropped and counted.
    pub fn offer(&self, record: &ExchangeRecord, live: &Live, metrics: &Metrics) {
        let parent = record.traceparent.as_deref().and_then(Parent::parse);
        let trace = parent.map_or_else(|| nonzero(rand::random), |parent| parent.trace);
        if !self.sampler.takes(parent.as_ref(), trace) {
            return;
        }
        let wanted = count(record);
        // Asked first, so that a dead collector does not even cost the making of spans.
        let places = match self.queue.try_reserve_many(wanted) {
            Ok(places) => places,
            Err(reason) => {
                let reason = if matches!(reason, TrySendError::Full(())) { "queue_full" } else { "stopped" };
                metrics.dropped("traces", reason, wanted);
                return;
            }
        };
        let too_many = record.attempts.len().saturating_sub(MOST_CALLS);
        if too_many > 0 {
            metrics.dropped("traces", "too_many", too_many);
        }
        let remote = parent.map_or(0, |parent| parent.span);
        for (place, span) in places.zip(spans(record, live, trace, remote)) {
            place.send(span);
        }
    }
}

/// How many spans are made of an exchange.
fn count(record: &ExchangeRecord) -> usize {
    1 + usize::from(is_workflow(record)) + record.attempts.len().min(MOST_CALLS)
}

/// Whether an answer was drafted or judged, rather than refused unread or passed through.
fn is_workflow(record: &ExchangeRecord) -> bool {
    record.decision != Decision::Invalid && ![EMBEDDINGS, COUNT_TOKENS].contains(&record.endpoint.as_str())
}

fn spans(record: &ExchangeRecord, live: &Live, trace: u128, remote: u64) -> Vec<Span> {
    let ended = after(record.started_at, record.duration_ms);
    let mut spans = Vec::with_capacity(count(record));
    let request = Span {
        trace,
        id: nonzero(rand::random),
        parent: remote,
        name: format!("POST {}", record.endpoint),
        kind: Kind::Server,
        began: record.started_at,
        ended,
        attributes: request_attributes(record),
        failed: record.status >= 500,
    };
    let mut parent = request.id;
    spans.push(request);
    if is_workflow(record) {
        let workflow = Span {
            id: nonzero(rand::random),
            parent,
            name: format!("invoke_workflow {WORKFLOW}"),
            kind: Kind::Internal,
            attributes: workflow_attributes(record),
            ..spans[0].clone()
        };
        parent = workflow.id;
        spans.push(workflow);
    }
    for attempt in record.attempts.iter().take(MOST_CALLS) {
        let upstream = live.upstreams.iter().find(|upstream| upstream.name() == attempt.upstream);
        spans.push(Span {
            trace,
            id: nonzero(rand::random),
            parent,
            name: format!("{} {}", operation(attempt), short(&attempt.model)),
            kind: Kind::Client,
            began: attempt.at,
            ended: after(attempt.at, attempt.duration_ms),
            attributes: call_attributes(record, attempt, upstream.map(|upstream| &**upstream)),
            failed: attempt.error.is_some(),
        });
    }
    spans
}

fn request_attributes(record: &ExchangeRecord) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("http.request.method", text("POST")),
        ("http.route", text(&record.endpoint)),
        ("url.path", text(&record.endpoint)),
        ("url.scheme", text("http")),
        ("http.response.status_code", Attribute::Whole(record.status.into())),
        ("waltz.request_id", text(&record.id)),
    ];
    if record.status >= 500 {
        attributes.push(("error.type", Attribute::Text(record.status.to_string())));
    }
    attributes
}

fn workflow_attributes(record: &ExchangeRecord) -> Vec<(&'static str, Attribute)> {
    let rounds = record.choices.iter().map(|choice| choice.rounds.len()).max().unwrap_or(0);
    let mut attributes = vec![
        ("gen_ai.operation.name", text("invoke_workflow")),
        ("gen_ai.workflow.name", text(WORKFLOW)),
        ("gen_ai.conversation.id", text(&record.session_id)),
        ("waltz.decision", text(record.decision.as_str())),
        ("waltz.risk", text(record.risk.as_str())),
        ("waltz.rounds", Attribute::Whole(rounds as u64)),
    ];
    if let Some(reason) = &record.degraded {
        attributes.push(("waltz.degraded", text(reason)));
    }
    if record.status >= 500 {
        attributes.push(("error.type", Attribute::Text(record.status.to_string())));
    }
    attributes
}

fn call_attributes(
    record: &ExchangeRecord,
    attempt: &Attempt,
    upstream: Option<&Upstream>,
) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("gen_ai.operation.name", text(operation(attempt))),
        ("gen_ai.provider.name", text(upstream.map_or("_OTHER", Upstream::provider))),
        ("gen_ai.request.model", text(&attempt.model)),
        ("gen_ai.conversation.id", text(&record.session_id)),
        ("waltz.purpose", text(&attempt.purpose)),
        ("waltz.upstream", text(&attempt.upstream)),
    ];
    if let Some((address, port)) = upstream.and_then(Upstream::server) {
        attributes.push(("server.address", text(address)));
        attributes.push(("server.port", Attribute::Whole(port.into())));
    }
    if let Some(error) = &attempt.error {
        let status = attempt.status.filter(|status| *status >= 400).map(|status| status.to_string());
        attributes.push(("error.type", status.map_or_else(|| text(error), Attribute::Text)));
    }
    if attempt.purpose == "draft" {
        attributes.push(("gen_ai.request.stream", Attribute::Flag(record.streamed)));
        let (input, output) = (record.usage.prompt_tokens, record.usage.completion_tokens);
        // Counts that were not reported are not guessed; a call that failed did not report these.
        if attempt.error.is_none() && (input, output) != (0, 0) {
            attributes.push(("gen_ai.usage.input_tokens", Attribute::Whole(input)));
            attributes.push(("gen_ai.usage.output_tokens", Attribute::Whole(output)));
        }
    }
    attributes
}

fn operation(attempt: &Attempt) -> &'static str {
    match attempt.purpose.as_str() {
        "embeddings" => "embeddings",
        "count_tokens" => "count_tokens",
        _ => "chat",
    }
}

fn text(text: &str) -> Attribute {
    Attribute::Text(short(text).to_owned())
}

/// The beginning of a text.
fn short(text: &str) -> &str {
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}

fn after(began: Timestamp, milliseconds: f64) -> Timestamp {
    let duration = SignedDuration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default();
    began.checked_add(duration).unwrap_or(began)
}

/// An id; all zeros is none.
fn nonzero<T: Default + PartialEq>(random: impl Fn() -> T) -> T {
    loop {
        let id = random();
        if id != T::default() {
            return id;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
