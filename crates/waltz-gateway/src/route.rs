//! Step 2: which agent answers, how deep its answer is read, and whether the request goes on at all.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use waltz_coach::conversation::{self, ConversationAgent, SharedAgent};
use waltz_coach::judge::{RequestReading, THRESHOLD};
use waltz_coach::templates;
use waltz_exchange::openai::{ApiError, ChatRequest, ModerationMode, Retry};
use waltz_exchange::record::Decision;
use waltz_exchange::{Depth, Risk, Verdict};
use waltz_route::{Ask, Load, Scalar};
use waltz_screen::{Pace, Vault};

use crate::feedback::flow::Release;
use crate::live::{AGENT_PREFIX, Live};
use crate::personal::{self, Treated};
use crate::pipeline::Stop;
use crate::receive::{Received, Wishes};
use crate::settings::{InputPolicy, OnFailure, StreamPolicy};
use crate::variants::program::Seen;
use crate::variants::shadow::Shadowed;
use crate::variants::{Served, Variants, context};

/// Models that an error names.
const MOST_NAMED: usize = 10;

/// A request with its agent and its reading.
pub struct Routed {
    /// The step before.
    pub received: Received,
    /// The configuration that this exchange sees to its end.
    pub live: Arc<Live>,
    /// Who answers.
    pub agent: SharedAgent,
    /// What was read in the request.
    pub reading: RequestReading,
    /// How deep the answer is read.
    pub depth: Depth,
    /// The answer may be changed.
    pub may_change: bool,
    /// How a stream of it is released.
    pub release: Release,
    /// The values that were taken out of the request, to be put back into the answer.
    pub vault: Arc<Vault>,
    /// The candidate of a release that answers too, and nobody sees it.
    pub shadow: Option<Shadowed>,
}

/// Chooses the agent and reads the request.
pub async fn route(mut received: Received, live: Arc<Live>, variants: &Variants) -> Result<Routed, Stop> {
    // Looked at only where something is chosen.
    let context = LazyCell::new(|| context::of(&received.request));
    let Seen { live, choice, shadow: candidate } = variants.seen(live, || received.unit(), &context);
    received.record.program_choice = choice;
    received.record.stage = live.settings.stage;
    let policy = &live.settings.policy;
    let asked_type = received.wishes.task_type.as_deref().or_else(|| received.request.metadata("task_type"));
    let found = match who_answers(&received.request, &received.wishes, asked_type, &live) {
        Ok(found) => found,
        Err(error) => return Err(Stop::new(received.record, Decision::Invalid, error)),
    };
    let Found { agent, reason, named } = found;
    // Whoever names an agent means its kind of task. A rule does not: it must not make a request less than it was.
    let own_type = agent.task_type.as_deref().filter(|_| named);
    let task_type = asked_type.or(own_type).unwrap_or(&policy.default_task_type).to_owned();
    let mirrored = candidate.and_then(|candidate| {
        let found = who_answers(&received.request, &received.wishes, asked_type, &candidate).ok()?;
        Shadowed::program(found.agent, candidate)
    });
    let served = variants.serve(&agent, &task_type, || received.unit(), &context, &live);
    let record = &mut received.record;
    if served.is_some() || record.program_choice.is_some() {
        record.request_context = Some(LazyCell::force(&context).clone());
    }
    let (agent, shadow) = match served {
        Some(Served { agent, choice, shadow }) => {
            record.variant_choice = Some(choice);
            (agent, shadow.map(|shadow| Shadowed::variant(shadow, &task_type, &live)))
        }
        None => (agent, None),
    };
    let shadow = mirrored.or(shadow);
    record.agent.clone_from(&agent.name);
    record.variant.clone_from(&agent.variant);
    // A task of a run brings its plan's reason.
    record.route_reason = record.route_reason.take().or(reason);
    record.task_type.clone_from(&task_type);
    let depth = live.settings.depth(&record.endpoint, &task_type);
    record.depth = depth;
    if depth == Depth::None {
        let reading = RequestReading::default();
        let release = Release::Unread;
        let (received, vault) = treat(received, &live)?;
        return Ok(Routed {
            received,
            live,
            agent,
            reading,
            depth,
            may_change: false,
            release,
            vault,
            shadow: None,
        });
    }
    let began = Instant::now();
    let reading = live.judge().read_request(&received.request).await;
    record.risk = reading.risk;
    record.scanned.request_fields = reading.fields;
    record.scanned.request_bytes = reading.bytes;
    record.prompt_verdict = Some(prompt_verdict(&reading, began));
    if reading.state.is_degraded() {
        record.degraded = Some(reading.state.as_str().to_owned());
    }
    let may_change = !live.settings.feedback_only;
    if may_change && is_blocked(&received, policy.input, &reading) {
        return Err(Stop::new(received.record, Decision::Blocked, input_blocked()));
    }
    let release =
        if may_change { release(&received, &live, &agent, depth, reading.risk) } else { Release::Unread };
    let (received, vault) = treat(received, &live)?;
    Ok(Routed { received, live, agent, reading, depth, may_change, release, vault, shadow })
}

/// The agent of a request.
struct Found {
    agent: SharedAgent,
    /// Why it is one of the named ones.
    reason: Option<String>,
    /// The client named it.
    named: bool,
}

/// The agent of a request, and why it is one of the named ones: the client names it, a rule wants it, or it does best
/// what the client says the task is. Otherwise the model answers that was asked for.
fn who_answers(
    request: &ChatRequest,
    wishes: &Wishes,
    asked_type: Option<&str>,
    live: &Live,
) -> Result<Found, ApiError> {
    if let Some(name) = &wishes.agent {
        let agent = live.agent(name).ok_or_else(|| agent_not_found(name))?;
        let reason = Some("the header `x-waltz-agent` names it".to_owned());
        return Ok(Found { agent, reason, named: true });
    }
    let model = request.model();
    let chosen = if model.starts_with(AGENT_PREFIX) {
        None
    } else {
        let metadata = request.body().get("metadata").and_then(Value::as_object);
        let fact = |(name, value): (&String, &Value)| {
            Some((name.clone(), serde_json::from_value(value.clone()).ok()?))
        };
        let facts: BTreeMap<String, Scalar> = metadata.into_iter().flatten().filter_map(fact).collect();
        let task_type = asked_type.unwrap_or(&live.settings.policy.default_task_type);
        let ask = Ask { agent: None, task_type, metadata: &facts, written: true, skills: &[] };
        // What the client did not say is no reason to pass over the model that it did name.
        match asked_type {
            Some(_) => live.router.choose(ask, &mut Load::default()).ok(),
            None => live.router.choose_by_rule(ask),
        }
    };
    if let Some(chosen) = chosen
        && let Some(agent) = live.agent(chosen.agent)
    {
        return Ok(Found { agent, reason: Some(chosen.reason), named: false });
    }
    let agent = live.agent_for(model).ok_or_else(|| model_not_found(live, model))?;
    let named = model.starts_with(AGENT_PREFIX);
    let reason = named.then(|| "the model names it".to_owned());
    Ok(Found { agent, reason, named })
}

/// Applies the policy for personal data, so that nothing behind this step sees what may not leave the house.
fn treat(mut received: Received, live: &Live) -> Result<(Received, Arc<Vault>), Stop> {
    if !live.settings.enabled {
        return Ok((received, Arc::default()));
    }
    let (treated, refused) = personal::treat_request(received.request.body(), &live.settings.personal);
    let Treated { fields, vault, counts } = treated;
    received.record.scanned.request_pii = counts;
    if let Some(error) = refused {
        return Err(Stop::new(received.record, Decision::Blocked, error));
    }
    if !fields.is_empty() {
        // The bytes that came are not what may be sent on.
        received.raw = None;
    }
    for (name, value) in fields {
        received.request.set(&name, value);
    }
    Ok((received, Arc::new(vault)))
}

/// How a stream of the answer is released. Whatever a client parses or acts upon is read as a whole, and so
/// is what may not leave before the feedback model has read it, or before personal data was taken out.
fn release(received: &Received, live: &Live, agent: &ConversationAgent, depth: Depth, risk: Risk) -> Release {
    let request = &received.request;
    let blocks = request.moderation().is_some_and(|wish| wish.output == ModerationMode::Block);
    let acts = !request.tools().is_empty() || request.body().contains_key("functions");
    let rewritten = live.settings.self_check || conversation::asks_for_assessment(agent, request);
    let closed = live.settings.failure.at(risk) == OnFailure::Closed;
    let unread = closed && depth == Depth::Always && live.feedback.is_some();
    let whole = unread || live.settings.policy.stream == StreamPolicy::Whole;
    let treated = live.settings.personal.answer.may_change();
    if whole
        || treated
        || blocks
        || acts
        || rewritten
        || request.is_structured()
        || request.choice_count() > 1
    {
        return Release::Whole;
    }
    match risk {
        Risk::Low => Release::Windows(Pace::Sentence),
        Risk::Medium => Release::Windows(Pace::Paragraph),
        Risk::High => Release::Whole,
    }
}

/// The error for a model that nobody serves, with the names of those that are served.
pub fn model_not_found(live: &Live, model: &str) -> ApiError {
    let models = live.models();
    let named: Vec<String> = models.iter().take(MOST_NAMED).map(|(id, _)| format!("`{id}`")).collect();
    let list = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
    let more = match models.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    ApiError {
        status: 404,
        kind: "invalid_request_error".into(),
        message: format!(
            "the model `{model}` does not exist here; GET /v1/models lists those that do{list}{more}"
        ),
        param: Some("model".to_owned()),
        code: "model_not_found".into(),
        retry: Retry::Never,
    }
}

/// The error for an agent that is not there.
fn agent_not_found(name: &str) -> ApiError {
    let message = format!("there is no agent `{name}`; GET /v1/models lists agents as `{AGENT_PREFIX}NAME`");
    let mut error = ApiError::invalid(message, Some("x-waltz-agent")).with_code("agent_not_found");
    error.status = 404;
    error
}

fn is_blocked(received: &Received, input: InputPolicy, reading: &RequestReading) -> bool {
    let asked =
        received.request.moderation().is_some_and(|moderation| moderation.input == ModerationMode::Block);
    let harmful = reading.harm >= THRESHOLD;
    reading.blocks || (harmful && (asked || input == InputPolicy::Block))
}

fn input_blocked() -> ApiError {
    ApiError {
        status: 400,
        kind: "invalid_request_error".into(),
        message: templates::BLOCKED_PROMPT.to_owned(),
        param: Some("messages".to_owned()),
        code: "waltz_input_blocked".into(),
        retry: Retry::Never,
    }
}

/// What was read in a request, in the form of a verdict.
pub fn prompt_verdict(reading: &RequestReading, began: Instant) -> Verdict {
    Verdict {
        is_unsafe: reading.harm >= THRESHOLD,
        prompt_harm: reading.harm,
        categories: reading.categories.clone(),
        issues: reading.issues.clone(),
        blocks: reading.blocks,
        level: reading.level,
        state: reading.state,
        micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        safety_score: 1.0 - reading.harm,
        helpfulness_score: 1.0,
        ..Verdict::default()
    }
}
