//! `POST /waltz/v1/run`: carries out a task graph under the guard. Every task is an exchange of its own, on the path of
//! chat requests and with a record of its own; the run itself is put on record where none began, or where it ends before
//! its tasks do.

mod task;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use waltz_coach::route::{Progress, Report, TaskReport, Terms, route_with_safety};
use waltz_exchange::openai::ApiError;
use waltz_exchange::record::{Decision, ExchangeRecord};
use waltz_exchange::sse;
use waltz_route::{Plan, TaskGraph};

use crate::api::{body, plan};
use crate::client::{Client, Interrupted};
use crate::live::{Gateway, Live};
use crate::pipeline::Stop;
use crate::receive::{Incoming, session, wishes};
use crate::record::{Recorded, record, record_stop, unrecordable};
use crate::reply;
use crate::respond::{Responded, Terminal, common_headers};
use crate::settings::RunLimits;

/// The path, which its tasks bear too.
pub const RUN: &str = "/waltz/v1/run";

/// What a client asks for.
struct Asked {
    graph: TaskGraph,
    stream: bool,
    /// The end user, who is told to upstreams as chat requests do.
    subject: Option<String>,
}

/// What comes of it.
#[derive(Serialize)]
struct Finished<'a> {
    id: &'a str,
    session_id: &'a str,
    plan: &'a Plan,
    results: &'a [TaskReport],
    final_safe: Option<bool>,
    avg_coaching_rounds: f64,
}

/// A run that is over but for the end of its reply.
struct Over {
    terminal: Terminal,
    /// Its own record, where no task began that has one.
    unrecorded: Option<Box<ExchangeRecord>>,
}

/// Answers one request on its own task.
pub async fn run(
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    incoming: Arc<Incoming>,
    mut client: Client,
) -> Recorded {
    let began = incoming.began;
    match carry_out(&gateway, &live, &incoming, &mut client).await {
        Ok(Over { terminal, unrecorded: Some(entry) }) => {
            let responded =
                Responded { record: record_of_none(entry), began, waited: Duration::ZERO, terminal };
            record(responded, &gateway, &live, &mut client).await
        }
        Ok(Over { terminal, unrecorded: None }) => {
            // Everything is done and on record; a client that does not wait for the end only misses the summary.
            match terminal {
                Terminal::Whole(status, headers, body) => client.whole(status, headers, body).ok(),
                Terminal::Frame(frame) => client.frame(frame).await.ok(),
            };
            Recorded { on_record: true }
        }
        Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
    }
}

async fn carry_out(
    gateway: &Arc<Gateway>,
    live: &Arc<Live>,
    incoming: &Incoming,
    client: &mut Client,
) -> Result<Over, Stop> {
    let mut entry = Box::new(incoming.blank_record());
    entry.stage = live.settings.stage;
    // Its tasks have answers.
    entry.response_id = None;
    if let Some(error) = unrecordable(gateway, live) {
        return Err(Stop::new(entry, Decision::Failed, error));
    }
    // A large graph takes longer than a thread that serves others may.
    let read = tokio::task::block_in_place(|| {
        // The tasks bear these headers too: one that is wrong is the run's mistake and not that of each task.
        session(&incoming.headers)?;
        wishes(&incoming.headers)?;
        let asked = read(&incoming.body, live.settings.run)?;
        let plan = live.router.plan(&asked.graph);
        Ok((asked, whole_team(plan)?))
    });
    let (asked, plan) = match read {
        Ok(read) => read,
        Err(error) => return Err(Stop::new(entry, Decision::Invalid, error)),
    };
    let Asked { graph, stream, subject } = asked;
    entry.streamed = stream;
    let mut headers = if stream { reply::stream_headers() } else { reply::json_headers() };
    common_headers(&mut headers, &entry);
    if stream && let Err(why) = client.begin_stream(headers.clone()).await {
        return Err(Stop::interrupted(entry, why));
    }
    let line: &Client = client;
    // Only a stream tells what happens on the way.
    let tell = |event: Option<Value>| async move {
        match event {
            Some(event) => line.frame(Bytes::from(sse::encode(&event.to_string()))).await,
            None => Ok(()),
        }
    };
    let RunLimits { parallel, result_bytes, time, .. } = live.settings.run;
    let until = Instant::now() + time;
    let halted = || {
        let over = || (Instant::now() >= until).then(|| "the time of the run is over".to_owned());
        if gateway.draining.is_cancelled() { Some("the gateway is shutting down".to_owned()) } else { over() }
    };
    let begun = AtomicBool::new(false);
    let context = task::Context { gateway, incoming, run: &entry, subject, until, begun: &begun };
    let work = async {
        tell(stream.then(|| json!({"event": "planned", "plan": plan}))).await?;
        let critical_task_types = &live.settings.policy.critical_task_types;
        let terms = Terms { parallel, critical_task_types, result_bytes, halted: &halted };
        let execute = |errand| task::exchange(&context, errand);
        let progress = |step| tell(stream.then(|| event(&step)));
        route_with_safety(&plan, &graph, terms, execute, progress).await
    };
    let report: Result<Report, Interrupted> = line.hold(pin!(work)).await.flatten();
    let Report { mut results, final_safe, avg_coaching_rounds } = match report {
        Ok(report) => report,
        Err(why) => return Err(Stop::interrupted(entry, why)),
    };
    if stream {
        // Each was told when its task ended, and whoever keeps the stream would keep it twice.
        results.iter_mut().for_each(|result| result.text = None);
    }
    let ExchangeRecord { id, session_id, .. } = &*entry;
    let finished =
        Finished { id, session_id, plan: &plan, results: &results, final_safe, avg_coaching_rounds };
    let terminal = if stream {
        tell(Some(json!({"event": "finished", "run": without_texts(&finished)}))).await.ok();
        Terminal::Frame(line.dialect().terminal())
    } else {
        let body = tokio::task::block_in_place(|| serde_json::to_vec(&finished)).unwrap_or_default();
        Terminal::Whole(StatusCode::OK, headers, body.into())
    };
    Ok(Over { terminal, unrecorded: (!begun.into_inner()).then_some(entry) })
}

fn without_texts(finished: &Finished<'_>) -> Value {
    let mut told = json!(finished);
    let results = told["results"].as_array_mut().into_iter().flatten();
    for result in results.filter_map(Value::as_object_mut) {
        result.shift_remove("text");
    }
    told
}

/// The record of a run of which no task began: nobody was asked, and no answer was had.
fn record_of_none(mut entry: Box<ExchangeRecord>) -> Box<ExchangeRecord> {
    entry.decision = Decision::Failed;
    entry.error = Some("no_task_begun".to_owned());
    entry
}

fn event(step: &Progress<'_>) -> Value {
    match step {
        Progress::Started(assignment) => {
            json!({"event": "task_started", "task": assignment.task, "agent": assignment.agent})
        }
        Progress::Ended(report) => json!({"event": "task_ended", "task": report.task, "result": report}),
    }
}

fn read(body: &[u8], limits: RunLimits) -> Result<Asked, ApiError> {
    let mut object = body::object(body)?;
    let stream = match object.remove("stream") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(stream)) => stream,
        Some(_) => return Err(ApiError::invalid("`stream` must be true or false", Some("stream"))),
    };
    let subject = match object.remove("safety_identifier") {
        None | Some(Value::Null) => None,
        Some(Value::String(subject)) => Some(subject),
        Some(_) => {
            return Err(ApiError::invalid("`safety_identifier` must be a string", Some("safety_identifier")));
        }
    };
    let graph = plan::graph(object, limits.planned_tasks)?;
    let open = || graph.tasks().iter().filter(|task| task.result.is_none());
    let count = open().count();
    if count > limits.tasks {
        return Err(plan::too_many("a run", count, ("routing.max_tasks", limits.tasks)));
    }
    if let Some(task) = open().find(|task| task.description.trim().is_empty()) {
        let message = format!("task `{}` needs a `description`: it is what its agent is told", task.id);
        return Err(ApiError::invalid(message, Some("tasks")));
    }
    Ok(Asked { graph, stream, subject })
}

/// Refuses work whose team lacks what it must have. Tasks without an agent are told one by one.
fn whole_team(plan: Plan) -> Result<Plan, ApiError> {
    if plan.team_faults.is_empty() {
        return Ok(plan);
    }
    Err(ApiError::invalid(plan.team_faults.join("; "), Some("tasks")).with_code("team_incomplete"))
}
