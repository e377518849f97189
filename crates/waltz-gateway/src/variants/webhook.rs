//! Tells the addresses that the operator has named of rollbacks. One gateway takes each rollback on, tries a few
//! times, and gives up; nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use waltz_coach::upstream::Hook;
use waltz_store::RollbackStored;

use crate::admin::Error;
use crate::live::Gateway;

const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// What is older is history, which an address that was named today is not told.
const NEWS: SignedDuration = SignedDuration::from_hours(1);
const AT_ONCE: usize = 16;

/// Takes on rollbacks that nobody was told of yet, and tells of them on tasks of their own.
pub(super) async fn tell(gateway: &Arc<Gateway>) -> Result<(), Error> {
    let live = gateway.live.load_full();
    let hooks = &live.settings.variants.webhooks;
    if hooks.is_empty() {
        return Ok(());
    }
    for RollbackStored { number, event, .. } in gateway.store.untold_rollbacks(AT_ONCE).await? {
        if !gateway.store.take_notice(number).await? {
            continue;
        }
        let body = serde_json::to_string(&event).map_err(|error| Error::Invalid(error.to_string()))?;
        let is_news = Timestamp::now().duration_since(event.timestamp) < NEWS;
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
    Ok(())
}

async fn deliver(hook: &Hook, body: &str) {
    for attempt in 1..=ATTEMPTS {
        match hook.send(body, Timestamp::now().as_second()).await {
            Ok(()) => return,
            Err(reason) => tracing::warn!(reason, attempt, "a rollback could not be told"),
        }
        if attempt < ATTEMPTS {
            tokio::time::sleep(FIRST_PAUSE * attempt).await;
        }
    }
}
