//! Step 3: the conversation agent's first draft, as a stream of windows. A JSON answer is one window.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use waltz_coach::conversation;
use waltz_coach::judge::THRESHOLD;
use waltz_coach::tally::Tally;
use waltz_coach::upstream::{
    Body, Call, CallError, Course, Protocol, Target, post_with_fallback, seconds_now,
};
use waltz_exchange::anthropic::stream::{self, StreamError};
use waltz_exchange::openai::{Answer, ApiError, Retry};
use waltz_exchange::record::Decision;
use waltz_exchange::sse::{Decoder, Event};
use waltz_exchange::{Depth, json};
use waltz_screen::{Screen, Side};

use crate::client::{Client, Interrupted};
use crate::pipeline::Stop;
use crate::route::Routed;

/// A draft that has begun to arrive.
pub struct Drafted {
    /// The step before.
    pub routed: Routed,
    /// What arrives.
    pub windows: Windows,
    /// What it cost so far.
    pub tally: Tally,
    /// The agent was asked for the self-assessed form.
    pub assessed: bool,
    /// Where the search for a draft stands, should this one fail before anything of it was sent.
    pub course: Course,
}

/// Why there is no draft, or not all of it.
#[derive(Debug)]
pub enum Broken {
    /// The client hung up, or the gateway must stop.
    Interrupted(Interrupted),
    /// No upstream has one to give.
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

/// The draft, piece by piece.
#[derive(Debug)]
pub struct Windows {
    body: Option<Body>,
    decoder: Option<Decoder>,
    /// Turns events of Anthropic's form into OpenAI's.
    converter: Option<stream::Decoder>,
    protocol: Protocol,
    upstream: String,
}

/// A piece of a draft.
#[derive(Debug)]
pub enum Window {
    /// A JSON answer.
    Whole(Bytes),
    /// Events of a stream, in order.
    Events(Vec<Event>),
}

/// Asks the agent, falling back in order, and returns when an answer begins.
pub async fn draft(routed: Routed, client: &Client) -> Result<Drafted, Stop> {
    let assessed =
        routed.may_change && conversation::asks_for_assessment(&routed.agent, &routed.received.request);
    // A run must not shed its own tasks.
    let patient = routed.received.record.run.is_some();
    let mut tally = Tally { patient, ..Tally::default() };
    let mut course = Course::new(patient);
    match ask(&routed, assessed, None, (&mut course, &mut tally), client).await {
        Ok(windows) => Ok(Drafted { routed, windows, tally, assessed, course }),
        Err(broken) => Err(stop(routed, tally, Decision::Failed, broken)),
    }
}

/// Asks for a draft from where the course stands, or goes on from there if the last one failed.
pub async fn ask(
    routed: &Routed,
    assessed: bool,
    failure: Option<CallError>,
    (course, tally): (&mut Course, &mut Tally),
    client: &Client,
) -> Result<Windows, Broken> {
    let request = &routed.received.request;
    // The `moderation` parameter is ours to answer, unless nothing is judged.
    let ours = routed.depth != Depth::None && request.moderation().is_some();
    let untouched = routed.agent.changes_nothing() && !assessed && !ours;
    // Made only where the bytes that came cannot be sent on.
    let outgoing = OnceLock::new();
    let outgoing = || outgoing.get_or_init(|| conversation::draft_request(&routed.agent, request));
    let body_for = |target: &Target| {
        let same =
            untouched && request.model() == target.model && target.upstream.protocol() == Protocol::OpenAi;
        let raw = routed.received.raw.as_ref().filter(|_| same);
        raw.cloned().unwrap_or_else(|| conversation::body_for(outgoing(), target))
    };
    let began = Instant::now();
    let (targets, budget) = (&routed.agent.targets, &routed.live.budget);
    let attempts = &mut tally.attempts;
    let call = async {
        if let Some(error) = failure {
            course.after(error, targets, budget).await?;
        }
        post_with_fallback(targets, budget, "draft", Call::Chat, body_for, (course, attempts)).await
    };
    let outcome = client.hold(pin!(call)).await;
    tally.waited += began.elapsed();
    let (body, _) = outcome??;
    Ok(Windows::new(body))
}

impl Windows {
    fn new(body: Body) -> Self {
        let decoder = body.is_event_stream().then(Decoder::default);
        let protocol = body.protocol();
        let converter = (protocol == Protocol::Anthropic).then(|| stream::Decoder::new(seconds_now()));
        Self { upstream: body.upstream().to_owned(), body: Some(body), decoder, converter, protocol }
    }

    /// The upstream that drafts.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Whether the draft arrives as a stream.
    pub fn is_event_stream(&self) -> bool {
        self.decoder.is_some()
    }

    /// The form that the draft is in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Puts the tokens that were told so far into an answer that ended too early to bear them.
    pub fn add_usage(&self, answer: &mut Answer) {
        if let Some(usage) = self.converter.as_ref().and_then(stream::Decoder::usage) {
            answer.head.entry("usage").or_insert(usage);
        }
    }

    /// The next window, or `None` when the draft has ended.
    pub async fn next(&mut self) -> Result<Option<Window>, CallError> {
        let Some(decoder) = &mut self.decoder else {
            let Some(body) = self.body.take() else { return Ok(None) };
            return body.collect().await.map(|bytes| Some(Window::Whole(bytes)));
        };
        let Some(body) = &mut self.body else { return Ok(None) };
        let mut events = Vec::new();
        let mut until = body.patience();
        while events.is_empty() {
            let Some(piece) = body.next_until(until).await? else { return Ok(None) };
            let progress = decoder
                .push(&piece, &mut events)
                .map_err(|error| CallError::Unusable(self.upstream.clone(), error.to_string()))?;
            // A trickle of bytes that makes no line must not hold a slot for as long as it likes.
            if progress {
                until = body.patience();
            }
        }
        let Some(converter) = &mut self.converter else { return Ok(Some(Window::Events(events))) };
        let mut converted = Vec::new();
        for event in &events {
            let chunks = match converter.push(event) {
                Ok(chunks) => chunks,
                // What reads the chunks knows an error in either form.
                Err(StreamError::Upstream { .. }) => {
                    converted.push(event.clone());
                    break;
                }
                Err(StreamError::Answer(error)) => {
                    return Err(CallError::Unusable(self.upstream.clone(), error.to_string()));
                }
            };
            let chunks = chunks.into_iter().map(|chunk| Value::Object(chunk).to_string());
            converted.extend(chunks.map(|data| Event { name: String::new(), data }));
        }
        if converter.is_ended() {
            converted.push(Event { name: String::new(), data: "[DONE]".to_owned() });
        }
        Ok(Some(Window::Events(converted)))
    }
}

/// Ends an exchange whose draft could not be had.
pub fn stop(routed: Routed, tally: Tally, decision: Decision, broken: Broken) -> Stop {
    match broken {
        Broken::Interrupted(why) => Stop::interrupted(with_tally(routed, tally), why),
        Broken::Call(error) => {
            let told = api_error(&error, &routed.live.screen);
            Stop::new(with_tally(routed, tally), decision, told)
        }
    }
}

/// The record of an exchange that ends here, with what it cost.
pub fn with_tally(routed: Routed, tally: Tally) -> Box<waltz_exchange::ExchangeRecord> {
    let mut record = routed.received.record;
    record.usage.coaching_tokens = tally.coaching_tokens();
    record.attempts = tally.attempts;
    record
}

/// What the client is told about a failed call. Upstreams are named, their addresses and keys never.
pub fn api_error(error: &CallError, screen: &Screen) -> ApiError {
    let upstream_message = |body: &[u8]| upstream_message(body, screen);
    let message = error.to_string();
    match error {
        CallError::Shed(_) => ApiError::upstream(503, "overloaded", message, Retry::After(1_000)),
        CallError::Unreachable(_) | CallError::BrokenOff(_) => {
            ApiError::upstream(502, "upstream_unavailable", message, Retry::After(1_000))
        }
        CallError::Timeout(..) => ApiError::upstream(504, "upstream_timeout", message, Retry::After(1_000)),
        CallError::Unusable(..) => ApiError::upstream(502, "upstream_invalid_answer", message, Retry::Never),
        CallError::Status { status: 429, retry_after_ms, body, .. } => {
            let wait = retry_after_ms.unwrap_or(1_000);
            let told = upstream_message(body).unwrap_or(message);
            let mut error = ApiError::upstream(429, "rate_limit_exceeded", told, Retry::After(wait));
            error.kind = "rate_limit_error".into();
            error
        }
        CallError::Status { status: 401 | 403, .. } => ApiError::upstream(
            502,
            "upstream_auth",
            format!("{message}: the gateway's own key for it is not accepted; tell the operator"),
            Retry::Never,
        ),
        CallError::Status { status, retry_after_ms, body, .. } if (400..500).contains(status) => {
            let told = |name| upstream_word(body, name);
            let mut error = ApiError::invalid(upstream_message(body).unwrap_or(message), None);
            error.status = *status;
            let plain =
                |text: &String| text.len() <= 64 && !text.contains(|letter: char| !letter.is_ascii_graphic());
            error.param = told("param").filter(plain);
            error.code = told("code").filter(plain).map_or("upstream_rejected".into(), Into::into);
            if matches!(status, 408 | 409) {
                error.retry = Retry::After(retry_after_ms.unwrap_or(1_000));
            }
            error
        }
        CallError::Status { .. } => {
            ApiError::upstream(502, "upstream_unavailable", message, Retry::After(1_000))
        }
    }
}

/// The message of an upstream's error body, unless it says what an answer must not say.
fn upstream_message(body: &[u8], screen: &Screen) -> Option<String> {
    let message = upstream_word(body, "message")?;
    (screen.read(&message, Side::Response).severity() < THRESHOLD).then_some(message)
}

/// A field of an upstream's error body, cut to a sensible length.
fn upstream_word(body: &[u8], name: &str) -> Option<String> {
    let object = json::parse_object(body).ok()?;
    let text = object.get("error")?.get(name)?.as_str()?;
    Some(text.chars().take(2_000).collect())
}
