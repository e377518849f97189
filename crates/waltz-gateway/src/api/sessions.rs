//! `GET /waltz/v1/sessions` and `GET /waltz/v1/sessions/{id}`: coaching sessions of the caller's tenant, and for the admin
//! token those of all, or of the one that it names.

use std::collections::HashMap;

use axum::response::Response;
use serde::Serialize;
use waltz_exchange::id;
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
    let tenant = match tenant(caller, query, &["limit", "before", "tenant"]) {
        Ok(tenant) => tenant.map(str::to_owned),
        Err(error) => return reply::error(&error),
    };
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
    let filter = SessionFilter { tenant, limit, before };
    match gateway.store.sessions(filter).await {
        Ok(data) => reply::json(&List { object: "list", data }),
        Err(error) => reply::error(&unavailable(&error)),
    }
}

/// Shows one session with all its exchanges. Another tenant's session does not exist.
pub async fn show(gateway: &Gateway, caller: &Caller, id: &str, query: &HashMap<String, String>) -> Response {
    let tenant = match tenant(caller, query, &["tenant"]) {
        Ok(tenant) => tenant,
        Err(error) => return reply::error(&error),
    };
    // An answer that the client has is on record, though perhaps still on its way to the database.
    let settled = gateway.settled().await;
    match gateway.store.session(tenant, id).await {
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

/// The tenant to filter by: the caller's own, or the one that the admin token names; none for all.
fn tenant<'a>(
    caller: &'a Caller,
    query: &'a HashMap<String, String>,
    known: &[&str],
) -> Result<Option<&'a str>, ApiError> {
    if let Some(unknown) = query.keys().find(|name| !known.contains(&name.as_str())) {
        let message = format!("unknown query parameter `{unknown}`; known are {}", known.join(", "));
        return Err(ApiError::invalid(message, Some(unknown)));
    }
    let Some(named) = query.get("tenant") else { return Ok(caller.scope()) };
    if !id::is_name(named) {
        let message = "`tenant` must be 1 to 128 letters, digits or any of . _ : -";
        return Err(ApiError::invalid(message, Some("tenant")));
    }
    // Whether the other one is there is nothing that a key should learn.
    if caller.scope().is_some_and(|own| own != named) {
        return Err(ApiError {
            status: 403,
            kind: "permission_error".into(),
            message: "only the admin token may name another tenant".to_owned(),
            param: Some("tenant".to_owned()),
            code: "admin_only".into(),
            retry: Retry::Never,
        });
    }
    Ok(Some(named))
}
