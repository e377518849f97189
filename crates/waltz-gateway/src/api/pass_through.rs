//! Requests that are sent on to the upstream that serves their model, and recorded without their texts: embeddings, counts of
//! tokens. Each runs on its own task, as every exchange.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Value, json};
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

/// What differs between such requests.
#[derive(Debug)]
pub struct PassThrough {
    /// What the call is for, in records.
    pub purpose: &'static str,
    /// What the upstream is called for.
    pub call: Call,
    /// What a request must have beside its model.
    pub check: fn(&Map<String, Value>) -> Result<(), ApiError>,
    /// Who of those that serve a model can be asked.
    pub targets: fn(&str, &[Target]) -> Result<Vec<Target>, ApiError>,
    /// What of the upstream's answer is given back, or why nothing is.
    pub answer: fn(Bytes) -> Result<Bytes, &'static str>,
}

impl PassThrough {
    /// Answers one request.
    pub async fn run(
        &self,
        gateway: Arc<Gateway>,
        live: Arc<Live>,
        incoming: Arc<Incoming>,
        mut client: Client,
    ) -> Recorded {
        let began = incoming.began;
        match self.pass(&gateway, &live, &incoming, &client).await {
            Ok(responded) => record(responded, &gateway, &live, &mut client).await,
            Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
        }
    }

    async fn pass(
        &self,
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
        if let Err(error) = check_model(&parsed).and_then(|()| (self.check)(&parsed)) {
            return Err(Stop::new(entry, Decision::Invalid, error));
        }
        let model = parsed.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        entry.model.clone_from(&model);
        let Some(agent) = live.agent_for(&model) else {
            return Err(Stop::new(entry, Decision::Invalid, route::model_not_found(live, &model)));
        };
        entry.agent.clone_from(&agent.name);
        entry.variant.clone_from(&agent.variant);
        let targets = match (self.targets)(&model, &agent.targets) {
            Ok(targets) => targets,
            Err(error) => return Err(Stop::new(entry, Decision::Invalid, error)),
        };
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
            let (body, target) =
                post_with_fallback(&targets, &live.budget, self.purpose, self.call, body_for, progress)
                    .await?;
            (self.answer)(body.collect().await?).map_err(|why| {
                let upstream = target.upstream.name().to_owned();
                CallError::Unusable(upstream, why.to_owned())
            })
        };
        let outcome = client.hold(pin!(call)).await;
        let waited = call_began.elapsed();
        tally.ended(self.purpose, outcome.as_ref().ok().and_then(|called| called.as_ref().err()));
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
}
