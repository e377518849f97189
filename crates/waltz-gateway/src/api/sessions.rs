//! `GET /waltz/v1/sessions` and `GET /waltz/v1/sessions/{id}`: coaching sessions of the caller's tenant.

use std::collections::HashMap;

use axum::response::Response;
use serde::Serialize;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_store::{SessionFilter, SessionSummary};

use crate::Gateway;
use crate::api::outcomes::{behind, unavailable};
use crate::auth::Caller;
use crate::reply;

const MOST: usize = 500;

#[derive(Serialize)]
struct List {
    object: &'static str,
    data: Vec<SessionSummary>,
}

/// Lists sessions, newest first.
pub async fn list(gateway: &Gateway, caller: &Caller, query: &HashMap<String, String>) -> Response {
    let limit = match query.get("limit").map(|limit| limit.parse::<usize>()) {
        None => 50,
        Some(Ok(limit)) if (1..=MOST).contains(&limit) => limit,
        Some(_) => {
            let error =
                ApiError::invalid(format!("`limit` must be a whole number from 1 to {MOST}"), Some("limit"));
            return reply::error(&error);
        }
    };
    if let Some(unknown) = query.keys().find(|name| !matches!(name.as_str(), "limit" | "before")) {
        let message = format!("unknown query parameter `{unknown}`; known are limit, before");
        return reply::error(&ApiError::invalid(message, Some(unknown)));
    }
    let before = match query.get("before").map(|cursor| cursor.parse()).transpose() {
        Ok(before) => before,
        Err(_) => {
            let error = ApiError::invalid(
                "`before` must be the `cursor` of a session of an earlier page",
                Some("before"),
            );
            return reply::error(&error);
        }
    };
    let filter = SessionFilter { tenant: caller.scope().map(str::to_owned), limit, before };
    match gateway.store.sessions(filter).await {
        Ok(data) => reply::json(&List { object: "list", data }),
        Err(error) => reply::error(&unavailable(&error)),
    }
}

/// Shows one session with all its exchanges. Another tenant's session does not exist.
pub async fn show(gateway: &Gateway, caller: &Caller, id: &str) -> Response {
    // An answer that the client has is on record, though perhaps still on its way to the database.
    let settled = gateway.settled().await;
    match gateway.store.session(caller.scope(), id).await {
        Ok(Some(session)) => reply::json(&session),
        Ok(None) if !settled => reply::error(&behind()),
        Ok(None) => reply::error(&ApiError {
            status: 404,
            kind: "invalid_request_error".into(),
            message: "no such session".to_owned(),
            param: None,
            code: "session_not_found".into(),
            retry: Retry::Never,
        }),
        Err(error) => reply::error(&unavailable(&error)),
    }
}
