//! `POST /v1/embeddings`: passed through to the upstream that serves the model, and recorded.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::{Call, CallError, Course, Target, post_with_fallback};
use waltz_exchange::openai::ApiError;
use waltz_exchange::openai::check::check_model;
use waltz_exchange::record::Decision;

use crate::api::body;
use crate::client::Client;
use crate::live::{Gateway, Live};
use crate::pipeline::Stop;
use crate::receive::Incoming;
use crate::record::{Recorded, record, record_stop, unrecordable};
use crate::respond::{Responded, Terminal, final_headers};
use crate::{draft, personal, reply, route};

/// Answers one request on its own task.
pub async fn run(
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    incoming: Arc<Incoming>,
    mut client: Client,
) -> Recorded {
    let began = incoming.began;
    match pass_through(&gateway, &live, &incoming, &client).await {
        Ok(responded) => record(responded, &gateway, &live, &mut client).await,
        Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
    }
}

async fn pass_through(
    gateway: &Gateway,
    live: &Live,
    incoming: &Incoming,
    client: &Client,
) -> Result<Responded, Stop> {
    let mut entry = Box::new(incoming.blank_record());
    if let Some(error) = unrecordable(gateway, live) {
        return Err(Stop::new(entry, Decision::Failed, error));
    }
    let Incoming { began, body, .. } = incoming;
    let mut parsed = match body::object(body) {
        Ok(parsed) => parsed,
        Err(error) => return Err(Stop::new(entry, Decision::Invalid, error)),
    };
    let mut checked = check_model(&parsed);
    if checked.is_ok() && parsed.get("input").is_none_or(Value::is_null) {
        checked = Err(ApiError::invalid("`input` must be a string or an array", Some("input")));
    }
    if let Err(error) = checked {
        return Err(Stop::new(entry, Decision::Invalid, error));
    }
    let model = parsed.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    entry.model.clone_from(&model);
    let Some(agent) = live.agent_for(&model) else {
        return Err(Stop::new(entry, Decision::Invalid, route::model_not_found(&model)));
    };
    entry.agent.clone_from(&agent.name);
    entry.variant.clone_from(&agent.variant);
    let mut untouched = true;
    if live.settings.enabled {
        let (treated, refused) = personal::treat_request(&parsed, &live.settings.personal);
        entry.scanned.request_pii = treated.counts;
        if let Some(error) = refused {
            return Err(Stop::new(entry, Decision::Blocked, error));
        }
        untouched = treated.fields.is_empty();
        parsed.extend(treated.fields);
    }
    let body_for = |target: &Target| {
        let wanted = &target.model;
        if *wanted == model && untouched {
            return body.clone();
        }
        let mut renamed = parsed.clone();
        renamed.insert("model".to_owned(), json!(wanted));
        Bytes::from(Value::Object(renamed).to_string())
    };
    let mut tally = Tally::default();
    let call_began = Instant::now();
    let progress = (&mut Course::default(), &mut tally.attempts);
    let call = async {
        let (body, target) = post_with_fallback(
            &agent.targets,
            &live.budget,
            "embeddings",
            Call::Embeddings,
            body_for,
            progress,
        )
        .await?;
        let bytes = body.collect().await?;
        // Vectors are many values; nothing of them is needed but that they are an object.
        match serde_json::from_slice::<HashMap<String, IgnoredAny>>(&bytes) {
            Ok(_) => Ok(bytes),
            Err(_) => {
                let upstream = target.upstream.name().to_owned();
                Err(CallError::Unusable(upstream, "not a JSON object".to_owned()))
            }
        }
    };
    let outcome = client.hold(pin!(call)).await;
    let waited = call_began.elapsed();
    tally.ended("embeddings", outcome.as_ref().ok().and_then(|called| called.as_ref().err()));
    entry.attempts = tally.attempts;
    let bytes = match outcome {
        Err(why) => return Err(Stop::interrupted(entry, why)),
        Ok(Err(error)) => {
            return Err(Stop::new(entry, Decision::Failed, draft::api_error(&error, &live.screen)));
        }
        Ok(Ok(bytes)) => bytes,
    };
    entry.decision = Decision::Passthrough;
    let mut headers = reply::json_headers();
    final_headers(&mut headers, &entry, 0);
    let terminal = Terminal::Whole(http::StatusCode::OK, headers, bytes);
    Ok(Responded { record: entry, began: *began, waited, terminal })
}
