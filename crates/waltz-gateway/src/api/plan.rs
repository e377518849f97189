//! `POST /waltz/v1/plan`: who would do the tasks of a graph, and why. Nothing is asked of anybody.

use axum::response::Response;
use waltz_exchange::openai::ApiError;
use waltz_route::{GraphError, TaskGraph};

use crate::live::Live;
use crate::reply;

/// Plans a task graph.
pub fn create(live: &Live, body: &[u8]) -> Response {
    // A large graph takes longer than a thread that serves others may.
    let planned =
        tokio::task::block_in_place(|| TaskGraph::parse(body).map(|graph| live.router.plan(&graph)));
    match planned {
        Ok(plan) => reply::json(&plan),
        Err(error) => reply::error(&unplannable(&error)),
    }
}

/// The error for a graph that cannot be planned.
pub fn unplannable(error: &GraphError) -> ApiError {
    let code = match error {
        GraphError::Unreadable(_) | GraphError::Name { .. } => "invalid_request",
        GraphError::DuplicateTask(_) | GraphError::DuplicateDependency { .. } => "duplicate_task",
        GraphError::UnknownDependency { .. } => "unknown_dependency",
        GraphError::Cycle(_) => "task_cycle",
    };
    ApiError::invalid(error.to_string(), Some("tasks")).with_code(code)
}
