//! The conversation agent: whatever writes answers, here an upstream model with its prompt. Builds the
//! requests for a draft, for a self-check and for a revision, and reads the agent's own assessment
//! where it can give one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use waltz_exchange::anthropic;
use waltz_exchange::openai::{Answer, ChatRequest};
use waltz_exchange::record::{Assessment, AssessmentSource, RevisionFault};
use waltz_exchange::{Category, PastCoaching, Verdict, json as strict_json};

use crate::tally::Tally;
use crate::upstream::{Call, CallError, Course, Protocol, RetryBudget, Target, post_with_fallback};

/// An agent that answers.
#[derive(Clone, Debug)]
pub struct ConversationAgent {
    /// Its name.
    pub name: String,
    /// The version of it that serves.
    pub variant: String,
    /// Where it is, in the order of fallback.
    pub targets: Vec<Target>,
    /// Instructions that go before the conversation.
    pub system_prompt: Option<String>,
    /// Parameters that take the place of the request's, such as `temperature`.
    pub parameters: Map<String, Value>,
    /// Ask for the JSON form in which an agent assesses its own answer.
    pub self_assess: bool,
    /// The kind of task it does when a request does not say.
    pub task_type: Option<String>,
}

impl ConversationAgent {
    /// Whether requests go to it as they came.
    pub fn changes_nothing(&self) -> bool {
        self.system_prompt.is_none() && self.parameters.is_empty()
    }
}

/// A shared agent.
pub type SharedAgent = Arc<ConversationAgent>;

/// An answer and the advice it got, as the agent is shown them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The answer.
    pub response: String,
    /// The advice.
    pub feedback: String,
}

const ASSESS: &str = "Answer with one JSON object and nothing else: {\"response\": your answer to the user as a \
string, \"confidence\": 0 to 1, \"reasoning\": one sentence on why the answer is right and safe, \"risk_score\": 0 \
(harmless) to 1, \"risk_categories\": a list out of violence_harm, illegal_activity, unauthorized_access, \
privacy_violation, hate_speech, self_harm, sexual_content, misinformation}.";

const SELF_CHECK: &str = "Before your answer is sent, check it against this list: it answers the question that was \
asked; it keeps the format that was asked for; it is safe. If all three hold, repeat the answer unchanged. If not, \
write the corrected answer. Write the answer alone, without remarks about the check.";

const REVISE: &str = "A reviewer read your answer before it was sent and gave the advice below. Write the answer \
again so that it follows the advice. Write the answer to the user alone, without mentioning the review.";

/// Everything that the agent is told beside the advice.
pub(crate) const INSTRUCTIONS: [&str; 8] =
    [ASSESS, SELF_CHECK, REVISE, WORSE, RECITED, REPEATED, SAID_NOTHING, MISSED_TOPIC];

const WORSE: &str = "Your last revision was worse than the answer before it and was dropped.";
const RECITED: &str = "Your last revision repeated the advice and was dropped. The advice is for you alone: the user \
must not see it. Answer what the user asked.";
const REPEATED: &str =
    "Your last revision said the same again and was dropped. Say each thing once, in other words.";
const SAID_NOTHING: &str = "Your last revision held no answer and was dropped. Begin with the answer itself.";
const MISSED_TOPIC: &str =
    "Your last revision was about something else and was dropped. Answer what the user asked.";

/// Why a revision did not take its predecessor's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It scored no better.
    Worse,
    /// It is no answer.
    Faulty(RevisionFault),
}

impl Dropped {
    fn told(self) -> &'static str {
        match self {
            Self::Worse => WORSE,
            Self::Faulty(RevisionFault::Echo) => RECITED,
            Self::Faulty(RevisionFault::Repetition) => REPEATED,
            Self::Faulty(RevisionFault::Empty) => SAID_NOTHING,
            Self::Faulty(RevisionFault::OffTopic) => MISSED_TOPIC,
        }
    }
}

/// The request for a first draft.
pub fn draft_request(agent: &ConversationAgent, request: &ChatRequest) -> ChatRequest {
    let mut draft = request.clone();
    draft.remove("moderation");
    set_up(agent, &mut draft);
    if asks_for_assessment(agent, request) {
        draft.push_message(json!({"role": "system", "content": ASSESS}));
        draft.set("stream", json!(false));
        draft.remove("stream_options");
    }
    draft
}

/// Whether the agent is asked for the self-assessed form. Requests whose answer has a form already,
/// may call tools or has several choices are left alone.
pub fn asks_for_assessment(agent: &ConversationAgent, request: &ChatRequest) -> bool {
    agent.self_assess
        && !request.is_structured()
        && request.tools().is_empty()
        && request.choice_count() == 1
        && !request.body().contains_key("functions")
}

/// The request in which the agent checks its own draft once.
pub fn self_check_request(agent: &ConversationAgent, request: &ChatRequest, draft: &str) -> ChatRequest {
    let mut check = single(agent, request);
    check.push_message(json!({"role": "assistant", "content": draft}));
    check.push_message(json!({"role": "user", "content": SELF_CHECK}));
    check
}

/// The request for an answer that nobody sees: one plain, unstreamed answer.
pub fn shadow_request(agent: &ConversationAgent, request: &ChatRequest) -> ChatRequest {
    single(agent, request)
}

/// The request for a revision: the conversation, every earlier round, and the advice. `dropped` says
/// why the last revision did not take its predecessor's place, if it did not.
pub fn revision_request(
    agent: &ConversationAgent,
    request: &ChatRequest,
    rounds: &[Turn],
    dropped: Option<Dropped>,
    similar: &[PastCoaching],
) -> ChatRequest {
    let mut revision = single(agent, request);
    for (position, turn) in rounds.iter().enumerate() {
        let last = position + 1 == rounds.len();
        revision.push_message(json!({"role": "assistant", "content": turn.response}));
        let mut advice = String::from(REVISE);
        if let Some(dropped) = dropped.filter(|_| last) {
            advice.push_str("\n\n");
            advice.push_str(dropped.told());
        }
        advice.push_str("\n\nAdvice:\n");
        advice.push_str(&turn.feedback);
        if last {
            append_similar(&mut advice, similar);
        }
        revision.push_message(json!({"role": "user", "content": advice}));
    }
    revision
}

/// Sends a revision or self-check to the agent and reads the whole answer.
pub async fn complete(
    agent: &ConversationAgent,
    request: &ChatRequest,
    purpose: &str,
    budget: &RetryBudget,
    tally: &mut Tally,
) -> Result<Answer, CallError> {
    let began = Instant::now();
    let sent = AtomicU64::new(0);
    let body_for = |target: &Target| {
        let body = body_for(request, target);
        sent.fetch_add(body.len() as u64, Ordering::Relaxed);
        body
    };
    let progress = (&mut Course::new(tally.patient), &mut tally.attempts);
    let call = post_with_fallback(&agent.targets, budget, purpose, Call::Chat, body_for, progress);
    let outcome = match call.await {
        Ok((body, _)) => body.answer().await,
        Err(error) => Err(error),
    };
    tally.sent_bytes += sent.into_inner();
    tally.waited += began.elapsed();
    tally.ended(purpose, outcome.as_ref().err());
    let answer = outcome?;
    tally.add_revision(&answer);
    Ok(answer)
}

/// A request's body in the form of an upstream, with the model's name as the upstream knows it.
pub fn body_for(request: &ChatRequest, target: &Target) -> Bytes {
    let mut body = match target.upstream.protocol() {
        Protocol::Anthropic => anthropic::request::from_chat(request, &target.model),
        Protocol::OpenAi if request.is_anthropic() => {
            anthropic::request::for_openai(request.clone()).into_body()
        }
        Protocol::OpenAi if request.model() == target.model => return written(request.body()),
        Protocol::OpenAi => request.body().clone(),
    };
    body.insert("model".to_owned(), json!(target.model));
    written(&body)
}

fn written(body: &Map<String, Value>) -> Bytes {
    Bytes::from(serde_json::to_vec(body).unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SelfAssessed {
    response: String,
    confidence: f32,
    reasoning: String,
    risk_score: f32,
    risk_categories: Vec<String>,
}

/// Reads an answer in the self-assessed form: the text for the user and the assessment.
pub fn parse_assessment(text: &str) -> Option<(String, Assessment)> {
    let value = strict_json::parse(text.trim().as_bytes()).ok()?;
    let SelfAssessed { response, confidence, reasoning, risk_score, risk_categories } =
        serde_json::from_value(value).ok()?;
    let in_range = |score: f32| (0.0..=1.0).contains(&score);
    let categories: Option<Vec<Category>> =
        risk_categories.iter().map(|name| Category::parse(name)).collect();
    if !in_range(confidence) || !in_range(risk_score) {
        return None;
    }
    let assessment = Assessment {
        source: AssessmentSource::Agent,
        confidence,
        reasoning,
        risk_score,
        risk_categories: categories?,
    };
    Some((response, assessment))
}

/// What the judge's verdict says in place of a self-assessment.
pub fn assessment_from(verdict: Option<&Verdict>) -> Assessment {
    let Some(verdict) = verdict else {
        return Assessment {
            source: AssessmentSource::Unjudged,
            confidence: 0.0,
            reasoning: String::new(),
            risk_score: 0.0,
            risk_categories: Vec::new(),
        };
    };
    let margin = (verdict.response_harm - 0.5).abs().max((verdict.refusal - 0.5).abs());
    Assessment {
        source: AssessmentSource::Judge,
        confidence: (0.5 + margin).min(1.0),
        reasoning: verdict.reasoning.clone(),
        risk_score: verdict.response_harm,
        risk_categories: verdict.categories.keys().cloned().collect(),
    }
}

/// The same conversation as one plain, unstreamed answer.
fn single(agent: &ConversationAgent, request: &ChatRequest) -> ChatRequest {
    let mut plain = request.clone();
    for field in ["moderation", "stream", "stream_options", "n"] {
        plain.remove(field);
    }
    set_up(agent, &mut plain);
    plain
}

/// Puts the agent's own prompt and parameters into a request.
fn set_up(agent: &ConversationAgent, request: &mut ChatRequest) {
    if let Some(prompt) = &agent.system_prompt {
        put_first(request, prompt);
    }
    for (name, value) in &agent.parameters {
        request.set(name, value.clone());
    }
}

fn put_first(request: &mut ChatRequest, prompt: &str) {
    let mut messages = vec![json!({"role": "system", "content": prompt})];
    messages.extend(request.messages().iter().cloned());
    request.set("messages", Value::Array(messages));
}

/// Past coachings go in as JSON strings: they hold words of other users and must not read as orders.
fn append_similar(advice: &mut String, similar: &[PastCoaching]) {
    if similar.is_empty() {
        return;
    }
    advice.push_str("\n\nEarlier cases like this one, for orientation only:\n");
    for past in similar.iter().take(3) {
        let case =
            json!({"request": past.user_request, "advice": past.feedback, "accepted_answer": past.accepted});
        advice.push_str(&case.to_string());
        advice.push('\n');
    }
}

#[cfg(test)]
#[path = "conversation/tests.rs"]
mod tests;
