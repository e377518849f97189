//! Tells the addresses that the operator has named of rollbacks, suspects, frozen boards and releases that were given
//! up. One gateway takes each event on, tries a few times, and gives up; nothing waits for it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use waltz_coach::upstream::Hook;
use waltz_store::EventStored;

use crate::admin::Error;
use crate::live::Gateway;

/// What is older is history, which an address that was named today is not told.
const NEWS: SignedDuration = SignedDuration::from_hours(1);
const AT_ONCE: usize = 16;

/// Takes on events that nobody was told of yet, and tells of them on tasks of their own.
pub(super) async fn tell(gateway: &Arc<Gateway>) -> Result<(), Error> {
    let live = gateway.live.load_full();
    let hooks = &live.settings.variants.webhooks;
    if hooks.is_empty() {
        return Ok(());
    }
    loop {
        let untold = gateway.store.untold_events(AT_ONCE).await?;
        let is_all = untold.len() < AT_ONCE;
        for event in untold {
            if !gateway.store.take_notice(event.number).await? {
                continue;
            }
            let is_news = Timestamp::now().duration_since(event.at) < NEWS;
            let body = message(&event);
            for hook in hooks.iter().filter(|_| is_news) {
                let (hook, body, gateway) = (Arc::clone(hook), body.clone(), Arc::clone(gateway));
                let tracked = Arc::clone(&gateway);
                tracked.tasks.spawn(async move {
                    tokio::select! {
                        () = gateway.stopping.cancelled() => {}
                        () = deliver(&hook, &body) => {}
                    }
                });
            }
        }
        if is_all {
            return Ok(());
        }
    }
}

/// The event as it is on record, with when and where it happened.
fn message(stored: &EventStored) -> String {
    let EventStored { at, key, event, .. } = stored;
    let mut message: Map<String, Value> = serde_json::from_str(event).unwrap_or_default();
    for (name, value) in
        [("at", json!(at)), ("agent_name", json!(key.agent)), ("task_type", json!(key.task_type))]
    {
        message.insert(name.to_owned(), value);
    }
    Value::Object(message).to_string()
}

async fn deliver(hook: &Hook, body: &str) {
    if let Err(reason) = hook.deliver(body).await {
        tracing::warn!(reason, "an event could not be told");
    }
}
