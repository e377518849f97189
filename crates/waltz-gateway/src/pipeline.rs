//! The request path, top to bottom.
//!
//! receive -> route -> draft -> feedback -> coach -> respond -> record
//!
//! Each step takes what the one before returns, so that none can be skipped, and whatever happens the
//! exchange is recorded exactly once.

use std::sync::Arc;

use waltz_exchange::ExchangeRecord;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_exchange::record::Decision;

use crate::client::{Client, Interrupted};
use crate::coach::coach;
use crate::draft::draft;
use crate::feedback::feedback;
use crate::live::{Gateway, Live};
use crate::receive::{Incoming, receive};
use crate::record::{Recorded, record, record_stop, unrecordable};
use crate::respond::{Responded, respond};
use crate::route::route;
use crate::variants::shadow::Shadow;

/// The end of an exchange before its answer.
#[derive(Debug)]
pub struct Stop {
    /// The record so far.
    pub record: Box<ExchangeRecord>,
    /// What came of it.
    pub decision: Decision,
    /// What the client is told; `None` when nobody is there to be told.
    pub error: Option<Box<ApiError>>,
}

impl Stop {
    /// An end that the client is told of.
    pub fn new(record: Box<ExchangeRecord>, decision: Decision, error: ApiError) -> Self {
        Self { record, decision, error: Some(Box::new(error)) }
    }

    /// The client hung up, or the gateway must stop.
    pub fn interrupted(record: Box<ExchangeRecord>, why: Interrupted) -> Self {
        match why {
            Interrupted::Gone => Self { record, decision: Decision::ClientGone, error: None },
            Interrupted::Stopping => {
                let message = "the gateway is shutting down and the answer was not ready in time";
                let error = ApiError::upstream(503, "shutting_down", message, Retry::After(1_000));
                Self::new(record, Decision::Failed, error)
            }
        }
    }
}

/// Answers one chat request. Runs on its own task, to its end, whether the client waits or not.
pub async fn run(
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    incoming: Arc<Incoming>,
    mut client: Client,
) -> Recorded {
    let began = incoming.began;
    let mut shadow = None;
    match answer(&gateway, &live, &incoming, &mut client, &mut shadow).await {
        Ok(responded) => {
            let recorded = record(responded, &gateway, &live, &mut client).await;
            if let Some(shadow) = shadow {
                shadow.begin(&gateway);
            }
            recorded
        }
        Err(stop) => record_stop(stop, began, &gateway, &live, &mut client).await,
    }
}

async fn answer(
    gateway: &Gateway,
    live: &Arc<Live>,
    incoming: &Incoming,
    client: &mut Client,
    shadow: &mut Option<Shadow>,
) -> Result<Responded, Stop> {
    let received = receive(incoming)?;
    if let Some(error) = unrecordable(gateway, live) {
        return Err(Stop::new(received.record, Decision::Failed, error));
    }
    let routed = route(received, Arc::clone(live), &gateway.variants).await?;
    *shadow = Shadow::of(&routed);
    client.restore_from(&routed.vault, routed.received.request.wants_json());
    let drafted = draft(routed, client).await?;
    let judged = feedback(drafted, client).await?;
    let coached = coach(judged, gateway, client).await?;
    respond(coached, client).await
}
