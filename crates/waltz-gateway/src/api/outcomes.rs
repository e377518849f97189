//! `POST /waltz/v1/outcomes`: what happened after a reply.

use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_exchange::{Outcome, id};
use waltz_store::Entry;

use crate::Gateway;
use crate::api::body;
use crate::auth::Caller;
use crate::reply;
use crate::variants::lesson;

/// Records an outcome for an answer that was given to the same tenant.
pub async fn create(gateway: &Gateway, caller: &Caller, body: &[u8], received_at: Timestamp) -> Response {
    match store(gateway, caller, body, received_at).await {
        Ok(id) => reply::json(&json!({"id": id, "recorded": true})),
        Err(error) => reply::error(&error),
    }
}

async fn store(
    gateway: &Gateway,
    caller: &Caller,
    body: &[u8],
    received_at: Timestamp,
) -> Result<String, ApiError> {
    let mut outcome: Outcome = body::read(body)?;
    let mistakes = outcome.mistakes();
    if let Some((field, _)) = mistakes.first() {
        let all: Vec<String> =
            mistakes.iter().map(|(field, allowed)| format!("`{field}` {allowed}")).collect();
        return Err(ApiError::invalid(all.join("; "), Some(field)));
    }
    if !gateway.signer.made(&outcome.response_id) {
        return Err(unknown(&outcome.response_id));
    }
    // A fresh answer may still be on its way from the journal to the database.
    let settled = gateway.settled().await;
    let found = gateway.store.exchange_of_response(caller.scope(), &outcome.response_id).await;
    let Some(record) = found.map_err(|error| unavailable(&error))? else {
        if !settled {
            return Err(behind());
        }
        return Err(unknown(&outcome.response_id));
    };
    for text in [&mut outcome.comment, &mut outcome.error_class].into_iter().flatten() {
        *text = gateway.live.load().settings.personal.stored(text).into_owned();
    }
    let id = id::new_request_id().replacen("req_", "out_", 1);
    let lesson = lesson::reported(&record, &outcome, received_at);
    let entry = Entry::Outcome { outcome, tenant: record.tenant, received_at, id: id.clone(), lesson };
    gateway.append(&entry).map_err(|error| unavailable(&error))?;
    Ok(id)
}

/// The error for an id that is not one of an answer.
fn unknown(id: &str) -> ApiError {
    ApiError {
        status: 404,
        kind: "invalid_request_error".into(),
        message: format!(
            "no answer with the id `{id}` is on record; an answer's header `x-waltz-response-id` has it"
        ),
        param: Some("response_id".to_owned()),
        code: "response_not_found".into(),
        retry: Retry::Never,
    }
}

/// The error for a question that the database cannot answer yet.
pub fn behind() -> ApiError {
    let message = "the database is behind the journal; try again in a moment";
    ApiError::upstream(503, "waltz_store_behind", message, Retry::After(1_000))
}

/// The error for a store that cannot answer now.
pub fn unavailable(error: &waltz_store::Error) -> ApiError {
    tracing::error!(error = %error, "the store cannot answer");
    ApiError::upstream(503, "waltz_store_unavailable", "the store cannot answer now", Retry::After(1_000))
}
