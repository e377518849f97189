//! Says in the log that calls of upstreams fail. `record.rs` hands in the calls of every exchange that is over. One line
//! for each upstream and kind of trouble in half a minute is enough to be seen, and an outage does not fill a disk with
//! them. A line names the upstream as the configuration does; of requests, answers and keys it says nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use waltz_exchange::record::Attempt;

/// How long nothing more is said of the same trouble.
const QUIET: Duration = Duration::from_secs(30);

/// What was said of upstreams, and when.
#[derive(Debug, Default)]
pub struct Outages {
    told: Mutex<BTreeMap<Trouble, Told>>,
}

/// Upstream, kind and status: a client's bad request must not hide that a key is not accepted any more.
type Trouble = (String, String, Option<u16>);

#[derive(Debug)]
struct Told {
    at: Instant,
    left_out: u64,
}

impl Outages {
    /// Says what failed, unless it was said a moment ago. A call that nobody waited for is no failure of its upstream.
    pub fn tell(&self, attempts: &[Attempt], now: Instant) {
        for attempt in attempts {
            let Some(kind) = attempt.error.as_deref().filter(|kind| *kind != "abandoned") else { continue };
            let trouble = (attempt.upstream.clone(), kind.to_owned(), attempt.status);
            if let Some(left_out) = self.due(trouble, now) {
                tracing::warn!(
                    upstream = attempt.upstream,
                    kind,
                    status = attempt.status,
                    left_out,
                    "a call of an upstream failed"
                );
            }
        }
    }

    /// How many lines were left out before this one, or `None` where it is left out too.
    fn due(&self, trouble: Trouble, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = told.get_mut(&trouble) else {
            told.insert(trouble, Told { at: now, left_out: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.at) < QUIET {
            last.left_out += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_said_twice_a_minute_with_what_was_left_out() {
        let outages = Outages::default();
        let start = Instant::now();
        let due = |upstream: &str, kind: &str, status, seconds| {
            let now = start + Duration::from_secs(seconds);
            outages.due((upstream.to_owned(), kind.to_owned(), status), now)
        };
        assert_eq!(due("main", "status", Some(401), 0), Some(0));
        assert_eq!(due("main", "status", Some(401), 1), None);
        assert_eq!(due("main", "status", Some(401), 29), None);
        for (upstream, kind, status) in
            [("main", "status", Some(503)), ("main", "timeout", None), ("spare", "status", Some(401))]
        {
            assert_eq!(due(upstream, kind, status, 29), Some(0), "{upstream} {kind} {status:?} is another");
        }
        assert_eq!(due("main", "status", Some(401), 30), Some(2));
        assert_eq!(due("main", "status", Some(401), 59), None);
        assert_eq!(due("main", "status", Some(401), 90), Some(1));
        assert_eq!(due("main", "status", Some(401), 200), Some(0));
    }
}
