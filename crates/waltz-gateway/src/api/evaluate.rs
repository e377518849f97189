//! `POST /waltz/v1/evaluate`: judges an answer that was made elsewhere and, if asked, coaches it, so that
//! code in any language can be guarded without changing who calls the model.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use waltz_coach::judge::Draft;
use waltz_coach::rounds::{Coach, Lesson, Pupil, draft_record, needs_coaching};
use waltz_coach::tally::Tally;
use waltz_exchange::openai::{Answer, ApiError, ChatRequest};
use waltz_exchange::record::{ChoiceRecord, Decision, ExchangeRecord};
use waltz_exchange::{Depth, Risk, Verdict, id};

use crate::api::body;
use crate::client::Client;
use crate::coach::look_up;
use crate::live::{Gateway, Live};
use crate::pipeline::Stop;
use crate::receive::{Incoming, checked_word, context};
use crate::record::{Recorded, record, record_stop, unrecordable};
use crate::respond::{Responded, Terminal, final_headers};
use crate::{reply, route};

/// The model of a request that names none.
const UNNAMED: &str = "(called elsewhere)";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evaluation {
    /// A chat request; or `prompt`.
    request: Option<Map<String, Value>>,
    /// The user's words, where there is no more to the request.
    prompt: Option<String>,
    /// The answer.
    response: String,
    /// Coach the answer too.
    #[serde(default)]
    revise: bool,
    session_id: Option<String>,
    task_type: Option<String>,
    depth: Option<Depth>,
}

#[derive(Serialize)]
struct Evaluated<'a> {
    /// For outcomes.
    id: Option<&'a str>,
    evaluation_id: &'a str,
    session_id: &'a str,
    verdict: &'a Verdict,
    safety_score: f32,
    helpfulness_score: f32,
    advice: &'a str,
    risk: Risk,
    degraded: Option<&'a str>,
    revision: Option<Revision<'a>>,
}

#[derive(Serialize)]
struct Revision<'a> {
    text: String,
    changed: bool,
    decision: Decision,
    rounds: usize,
    verdict: &'a Verdict,
    dir_score: f32,
}

/// Answers one request on its own task.
pub async fn run(
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    incoming: Arc<Incoming>,
    mut client: Client,
) -> Recorded {
    let began = incoming.began;
    match evaluate(&gateway, &live, &incoming, &client).await {
        Ok(responded) => record(responded, &gateway, &live, &mut client).await,
        Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
    }
}

async fn evaluate(
    gateway: &Gateway,
    live: &Live,
    incoming: &Incoming,
    client: &Client,
) -> Result<Responded, Stop> {
    let mut entry = Box::new(incoming.blank_record());
    if let Some(error) = unrecordable(gateway, live) {
        return Err(Stop::new(entry, Decision::Failed, error));
    }
    let began = incoming.began;
    let (asked, request) = match read(&incoming.body) {
        Ok(read) => read,
        Err(error) => return Err(Stop::new(entry, Decision::Invalid, error)),
    };
    fill(&mut entry, live, &asked, &request);
    let reading_began = Instant::now();
    let judge = live.judge();
    let reading = judge.read_request(&request).await;
    entry.risk = reading.risk;
    entry.scanned.request_fields = reading.fields;
    entry.scanned.request_bytes = reading.bytes;
    entry.prompt_verdict = Some(route::prompt_verdict(&reading, reading_began));
    let mut tally = Tally::default();
    let depth = entry.depth;
    let work = async {
        let draft =
            Draft { request: &request, reading: &reading, text: &asked.response, acts: "", rejected: &[] };
        let verdict = judge.judge(draft, depth, &mut tally).await;
        let answer = Answer::written(String::new(), 0, request.model(), &asked.response);
        let choice = answer
            .choices
            .into_iter()
            .next()
            .filter(|choice| asked.revise && needs_coaching(&request, &reading, choice, &verdict));
        let lesson = if let Some(choice) = choice {
            let similar = look_up(gateway, live, &mut entry).await;
            // Whoever calls the model elsewhere need not name it; then only rules can revise.
            let agent = Some(request.model())
                .filter(|model| *model != UNNAMED)
                .and_then(|model| live.agent_for(model));
            let settings = live.settings.coach;
            let coach = Coach { judge, agent: agent.as_deref(), settings, depth, similar: &similar };
            let pupil = Pupil { choice, verdict: verdict.clone() };
            Some(coach.coach(&request, &reading, pupil, &mut tally).await)
        } else {
            None
        };
        (verdict, lesson)
    };
    let outcome = client.hold(pin!(work)).await;
    entry.usage.coaching_tokens = tally.coaching_tokens();
    entry.attempts = tally.attempts;
    let (verdict, lesson) = match outcome {
        Ok(judged) => judged,
        Err(why) => return Err(Stop::interrupted(entry, why)),
    };
    entry.scanned.windows = 1 + lesson.as_ref().map_or(0, |lesson| lesson.rounds.len());
    entry.scanned.answer_bytes = asked.response.len();
    entry.degraded = verdict.state.is_degraded().then(|| verdict.state.as_str().to_owned());
    entry.decision = Decision::Evaluated;
    let body =
        serde_json::to_vec(&body(&entry, &verdict, lesson.as_ref(), &asked.response)).unwrap_or_default();
    entry.choices.push(choice_record(asked.response, verdict, lesson));
    Ok(responded(entry, body, began, tally.waited))
}

fn responded(entry: Box<ExchangeRecord>, body: Vec<u8>, began: Instant, waited: Duration) -> Responded {
    let rounds =
        entry.choices.first().map_or(0, |choice| u32::try_from(choice.rounds.len()).unwrap_or(u32::MAX));
    let mut headers = reply::json_headers();
    final_headers(&mut headers, &entry, rounds);
    let terminal = Terminal::Whole(http::StatusCode::OK, headers, body.into());
    Responded { record: entry, began, waited, terminal }
}

fn read(body: &[u8]) -> Result<(Evaluation, ChatRequest), ApiError> {
    let mut asked: Evaluation = body::read(body)?;
    for (name, value) in [("session_id", &asked.session_id), ("task_type", &asked.task_type)] {
        if let Some(value) = value {
            checked_word(name, value)?;
        }
    }
    let mut request = match (asked.request.take(), &asked.prompt) {
        (Some(request), None) => request,
        (None, Some(prompt)) => {
            let messages = json!([{"role": "user", "content": prompt}]);
            Map::from_iter([("messages".to_owned(), messages)])
        }
        _ => return Err(ApiError::invalid("give either `request` or `prompt`", Some("request"))),
    };
    request.entry("model").or_insert_with(|| json!(UNNAMED));
    Ok((asked, ChatRequest::from_object(request)?))
}

fn fill(entry: &mut ExchangeRecord, live: &Live, asked: &Evaluation, request: &ChatRequest) {
    let policy = &live.settings.policy;
    if let Some(session) = &asked.session_id {
        entry.session_id.clone_from(session);
    }
    let task_type = asked.task_type.as_deref().unwrap_or(&policy.default_task_type);
    task_type.clone_into(&mut entry.task_type);
    entry.depth = asked.depth.unwrap_or_else(|| policy.depth(&entry.endpoint, task_type));
    entry.stage = live.settings.stage;
    entry.variant = "default".to_owned();
    request.model().clone_into(&mut entry.model);
    request.model().clone_into(&mut entry.agent);
    entry.subject = request.subject().map(|subject| id::sha256_hex(subject.as_bytes()));
    entry.user_request = request.user_request();
    entry.context = Some(context(request));
}

fn body<'a>(
    entry: &'a ExchangeRecord,
    verdict: &'a Verdict,
    lesson: Option<&'a Lesson>,
    response: &str,
) -> Evaluated<'a> {
    Evaluated {
        id: entry.response_id.as_deref(),
        evaluation_id: &entry.id,
        session_id: &entry.session_id,
        verdict,
        safety_score: verdict.safety_score,
        helpfulness_score: verdict.helpfulness_score,
        advice: &verdict.feedback,
        risk: entry.risk,
        degraded: entry.degraded.as_deref(),
        revision: lesson.map(|lesson| {
            let text = lesson.choice.text();
            Revision {
                changed: text != response,
                text,
                decision: lesson.decision,
                rounds: lesson.rounds.len(),
                verdict: &lesson.verdict,
                dir_score: lesson.dir_score,
            }
        }),
    }
}

fn choice_record(response: String, verdict: Verdict, lesson: Option<Lesson>) -> ChoiceRecord {
    let draft = draft_record(response.clone(), &verdict);
    match lesson {
        None => ChoiceRecord {
            index: 0,
            draft,
            self_check: None,
            rounds: Vec::new(),
            last_resort: false,
            unchanged: false,
            final_text: response,
            final_verdict: Some(verdict),
            dir_score: 0.0,
        },
        Some(lesson) => ChoiceRecord {
            index: 0,
            draft,
            self_check: None,
            last_resort: lesson.decision == Decision::Refused,
            unchanged: false,
            final_text: lesson.choice.text(),
            rounds: lesson.rounds,
            final_verdict: Some(lesson.verdict),
            dir_score: lesson.dir_score,
        },
    }
}
