//! Says in the log that calls of upstreams fail, or that exchanges cannot be recorded. `record.rs` hands in every exchange
//! that is over. One line for each upstream and kind of trouble in half a minute is enough to be seen, and an outage does not
//! fill a disk with them. A line names the upstream as the configuration does; of requests, answers and keys it says nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use waltz_coach::upstream::ABANDONED;
use waltz_exchange::record::{Decision, ExchangeRecord};

/// How long nothing more is said of the same trouble.
const QUIET: Duration = Duration::from_secs(30);

/// What was said of outages, and when.
#[derive(Debug, Default)]
pub struct Outages {
    told: Mutex<BTreeMap<Trouble, Told>>,
}

/// Upstream, kind and status; the journal is the upstream without a name. A client's bad request must not hide that a key
/// is not accepted any more.
type Trouble = (String, String, Option<u16>);

#[derive(Debug)]
struct Told {
    at: Instant,
    left_out: u64,
}

impl Outages {
    /// Says what failed in an exchange, unless it was said a moment ago.
    pub fn tell(&self, record: &ExchangeRecord) {
        for trouble in troubles(record) {
            if let Some(left_out) = self.due(&trouble, Instant::now()) {
                let (upstream, kind, status) = trouble;
                tracing::warn!(upstream, kind, status, left_out, "a call of an upstream failed");
            }
        }
    }

    /// Says that an exchange could not be recorded, unless it was said a moment ago. An entry that is too large is another
    /// trouble than a journal that takes none.
    pub fn tell_unrecorded(&self, record: &ExchangeRecord, error: &waltz_store::Error, is_outage: bool) {
        let kind = if is_outage { "outage" } else { "too_large" };
        if let Some(left_out) = self.due(&(String::new(), kind.to_owned(), None), Instant::now()) {
            let request_id = &record.id;
            tracing::error!(request_id, error = %error, left_out, "exchange could not be recorded");
        }
    }

    /// How many lines were left out before this one, or `None` where it is left out too.
    fn due(&self, trouble: &Trouble, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = told.get_mut(trouble) else {
            told.insert(trouble.clone(), Told { at: now, left_out: 0 });
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

/// What failed. A call that was given up because its client went away is no failure of its upstream.
fn troubles(record: &ExchangeRecord) -> impl Iterator<Item = Trouble> {
    let gone = record.decision == Decision::ClientGone;
    record.attempts.iter().filter_map(move |attempt| {
        let kind = attempt.error.as_deref().filter(|kind| !(gone && *kind == ABANDONED))?;
        Some((attempt.upstream.clone(), kind.to_owned(), attempt.status))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{blank, call};

    #[test]
    fn a_client_that_goes_away_is_no_trouble_of_the_upstream() {
        let mut record = blank("/v1/messages");
        record.attempts =
            vec![call("draft", Some("timeout")), call("draft", None), call("feedback", Some("abandoned"))];
        let kinds = |record: &ExchangeRecord| troubles(record).map(|(_, kind, _)| kind).collect::<Vec<_>>();
        record.decision = Decision::Degraded;
        assert_eq!(kinds(&record), ["timeout", "abandoned"]);
        record.decision = Decision::ClientGone;
        assert_eq!(kinds(&record), ["timeout"]);
    }

    #[test]
    fn the_same_trouble_is_said_twice_a_minute_with_what_was_left_out() {
        let outages = Outages::default();
        let start = Instant::now();
        let due = |upstream: &str, kind: &str, status, seconds| {
            let now = start + Duration::from_secs(seconds);
            outages.due(&(upstream.to_owned(), kind.to_owned(), status), now)
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
