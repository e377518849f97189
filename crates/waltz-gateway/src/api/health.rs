//! `/healthz`: the process lives. `/readyz`: it should get traffic.

use std::sync::atomic::Ordering;

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::Gateway;
use crate::reply;

/// The process lives.
pub fn live() -> Response {
    reply::json(&json!({"status": "ok"}))
}

/// The gateway should get traffic. Degraded states are listed and do not take it out of service.
pub fn ready(gateway: &Gateway) -> Response {
    let settings = &gateway.serving().settings;
    let wanted = gateway.live.load();
    let health = gateway.store.health();
    let mut degraded = Vec::new();
    if wanted.settings.stage < wanted.settings.stage_wanted && wanted.candidate.is_none() {
        // The log names the file and the reason.
        degraded
            .push("stage 2 was asked for and its weights are missing, unusable or without a pass of the benchmark; stage 1 serves".to_owned());
    }
    if gateway.outdated.load(Ordering::Relaxed) {
        degraded.push(
            "the configuration's files changed and cannot be used; what they said before is in force"
                .to_owned(),
        );
    }
    if gateway.seems_unrecordable() {
        degraded.push("exchanges cannot be recorded".to_owned());
    }
    if health.drain_error.is_some() {
        // Why stands in the log: anybody may ask here, and the reason can name hosts and users.
        degraded.push("the database is behind the journal".to_owned());
    }
    if !health.damaged_segments.is_empty() {
        degraded
            .push(format!("damaged journal segments were set aside: {}", health.damaged_segments.join(", ")));
    }
    if health.rejected_entries > 0 {
        degraded.push(format!(
            "{} records could not be put into tables and lie in rejected_entries",
            health.rejected_entries
        ));
    }
    if health.unreadable_bytes > 0 {
        degraded.push(format!("{} bytes of the journal could not be read", health.unreadable_bytes));
    }
    let draining = gateway.draining.is_cancelled();
    let body = json!({
        "status": if draining { "draining" } else if degraded.is_empty() { "ready" } else { "degraded" },
        "degraded": degraded,
        "stage": settings.stage,
        "paused": gateway.variants.is_paused(),
        "undrained_bytes": health.undrained_bytes,
        "unrecorded": gateway.recording.failures(),
    });
    let mut response = reply::json(&body);
    if draining {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}
