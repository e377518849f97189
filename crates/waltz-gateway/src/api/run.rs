//! `POST /waltz/v1/run`: carries out a task graph under the guard. Every task is an exchange of its own, on the path of
//! chat requests and with a record of its own; the run itself is put on record only where it ends before its tasks do.

mod task;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use waltz_coach::route::{Progress, Report, TaskReport, Terms, route_with_safety};
use waltz_exchange::openai::ApiError;
use waltz_exchange::record::{Decision, ExchangeRecord};
use waltz_exchange::{json as strict_json, sse};
use waltz_route::{Plan, TaskGraph};

use crate::api::plan::unplannable;
use crate::client::{Client, Interrupted};
use crate::live::{Gateway, Live};
use crate::pipeline::Stop;
use crate::receive::{Incoming, checked_word};
use crate::record::{Recorded, record_stop, unrecordable};
use crate::reply;
use crate::respond::common_headers;
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

/// Answers one request on its own task.
pub async fn run(gateway: Arc<Gateway>, live: Arc<Live>, incoming: Incoming, mut client: Client) -> Recorded {
    let began = incoming.began;
    match carry_out(&gateway, &live, incoming, &mut client).await {
        // Every task is.
        Ok(()) => Recorded { on_record: true },
        Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
    }
}

async fn carry_out(
    gateway: &Arc<Gateway>,
    live: &Arc<Live>,
    incoming: Incoming,
    client: &mut Client,
) -> Result<(), Stop> {
    let mut entry = Box::new(incoming.blank_record());
    entry.stage = live.settings.stage;
    if let Some(error) = unrecordable(gateway, live) {
        return Err(Stop::new(entry, Decision::Failed, error));
    }
    // A large graph takes longer than a thread that serves others may.
    let read = tokio::task::block_in_place(|| {
        let asked = read(&incoming.body, live.settings.run)?;
        let plan = live.router.plan(&asked.graph);
        Ok((session(&incoming.headers)?, asked, whole_team(plan)?))
    });
    let (session, asked, plan) = match read {
        Ok(read) => read,
        Err(error) => return Err(Stop::new(entry, Decision::Invalid, error)),
    };
    if let Some(session) = session {
        entry.session_id = session;
    }
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
    let context = task::Context { gateway, live, incoming: &incoming, run: &entry, subject };
    let work = async {
        tell(stream.then(|| json!({"event": "planned", "plan": plan}))).await?;
        let critical_task_types = &live.settings.policy.critical_task_types;
        let terms = Terms { parallel: live.settings.run.parallel, critical_task_types };
        let execute = |errand| task::exchange(&context, errand);
        let progress = |step| tell(stream.then(|| event(&step)));
        route_with_safety(&plan, &graph, terms, execute, progress).await
    };
    let report: Result<Report, Interrupted> = line.hold(work).await.flatten();
    let Report { results, final_safe, avg_coaching_rounds } = match report {
        Ok(report) => report,
        Err(why) => return Err(Stop::interrupted(entry, why)),
    };
    let ExchangeRecord { id, session_id, .. } = &*entry;
    let finished =
        Finished { id, session_id, plan: &plan, results: &results, final_safe, avg_coaching_rounds };
    if !stream {
        let body = serde_json::to_vec(&finished).unwrap_or_default();
        client.whole(StatusCode::OK, headers, body.into()).ok();
        return Ok(());
    }
    // Everything is done and on record; a client that does not wait for the end only misses the summary.
    if tell(Some(json!({"event": "finished", "run": finished}))).await.is_ok() {
        line.frame(line.dialect().terminal()).await.ok();
    }
    Ok(())
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
    let mut object: Map<String, Value> = strict_json::parse_object(body)
        .map_err(|error| ApiError::invalid(format!("the request body is not valid JSON: {error}"), None))?;
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
    let graph = TaskGraph::from_object(object).map_err(|error| unplannable(&error))?;
    let open = || graph.tasks().iter().filter(|task| task.result.is_none());
    let count = open().count();
    if count > limits.tasks {
        let message =
            format!("a run may have {} tasks (`routing.max_tasks`), and this one has {count}", limits.tasks);
        return Err(ApiError::invalid(message, Some("tasks")).with_code("too_many_tasks"));
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

fn session(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let name = "x-waltz-session-id";
    let given = headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    given.map(|value| checked_word(name, value)).transpose()
}
