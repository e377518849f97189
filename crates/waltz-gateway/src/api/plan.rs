//! `POST /waltz/v1/plan`: who would do the tasks of a graph, and why. Nothing is asked of anybody.

use axum::response::Response;
use serde_json::{Map, Value};
use waltz_exchange::openai::ApiError;
use waltz_route::{GraphError, TaskGraph};

use crate::api::body;
use crate::live::Live;
use crate::reply;

/// Plans a task graph.
pub fn create(live: &Live, body: &[u8]) -> Response {
    // A large graph takes longer than a thread that serves others may, and so does the plan of it as JSON.
    tokio::task::block_in_place(|| {
        match body::object(body).and_then(|object| graph(object, live.settings.run.planned_tasks)) {
            Ok(graph) => reply::json(&live.router.plan(&graph)),
            Err(error) => reply::error(&error),
        }
    })
}

/// A graph of no more than so many tasks.
pub fn graph(object: Map<String, Value>, most: usize) -> Result<TaskGraph, ApiError> {
    let count = object.get("tasks").and_then(Value::as_array).map_or(0, Vec::len);
    if count > most {
        return Err(too_many("a graph", count, ("routing.max_planned_tasks", most)));
    }
    TaskGraph::from_object(object).map_err(|error| unplannable(&error))
}

/// The error for more tasks than a key of the configuration allows.
pub fn too_many(what: &str, count: usize, (key, most): (&str, usize)) -> ApiError {
    let message = format!("{what} may have {most} tasks (`{key}`), and this one has {count}");
    ApiError::invalid(message, Some("tasks")).with_code("too_many_tasks")
}

/// The error for a graph that cannot be planned.
fn unplannable(error: &GraphError) -> ApiError {
    let code = match error {
        GraphError::Unreadable(_) | GraphError::Name { .. } | GraphError::Metadata { .. } => {
            "invalid_request"
        }
        GraphError::DuplicateTask(_) | GraphError::DuplicateDependency { .. } => "duplicate_task",
        GraphError::UnknownDependency { .. } => "unknown_dependency",
        GraphError::Cycle(_) => "task_cycle",
    };
    ApiError::invalid(error.to_string(), Some("tasks")).with_code(code)
}
