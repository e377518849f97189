//! Whether exchanges can be recorded, as far as appends have shown. Told by `record.rs` of every append that failed; `live.rs` asks,
//! and has the journal probed after one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long those who look on are told what the last probe said.
const JUST_NOW: Duration = Duration::from_millis(100);

/// How recording goes.
#[derive(Debug, Default)]
pub struct Recording {
    failures: AtomicU64,
    /// The failure that nothing has made good yet, by number; 0 when there is none.
    open: AtomicU64,
    /// The failure that a probe could not make good, and when.
    refused: Mutex<Option<(u64, Instant)>>,
}

/// What was known when a probe began.
#[derive(Clone, Copy, Debug)]
pub struct Attempt(u64);

impl Recording {
    /// A probe begins.
    pub fn begin(&self) -> Attempt {
        Attempt(self.open.load(Ordering::Acquire))
    }

    /// It could not be done; in an outage, others cannot be either.
    pub fn failed(&self, is_outage: bool) {
        let number = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if is_outage {
            self.open.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// It was done, which says nothing of failures since its begin.
    pub fn succeeded(&self, attempt: Attempt) {
        if attempt.0 != 0 {
            // Lost against a later failure, which then stays open.
            let _ = self.open.compare_exchange(attempt.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// It could not be done.
    pub fn refused(&self, attempt: Attempt) {
        let told = (attempt.0, Instant::now());
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    /// Whether a probe for the failure that is open could not be done a moment ago.
    pub fn was_just_refused(&self) -> bool {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.open.load(Ordering::Acquire);
        refused.is_some_and(|(number, at)| number == open && open != 0 && at.elapsed() < JUST_NOW)
    }

    /// Whether an exchange could not be recorded, and no probe has succeeded since.
    pub fn is_failing(&self) -> bool {
        self.open.load(Ordering::Acquire) != 0
    }

    /// Exchanges that could not be recorded.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_look_on_hear_of_a_probe_as_long_as_its_failure_is_open() {
        let recording = Recording::default();
        assert!(!recording.was_just_refused());
        recording.failed(true);
        assert!(!recording.was_just_refused());
        let probe = recording.begin();
        recording.refused(probe);
        assert!(recording.was_just_refused());
        recording.failed(true);
        assert!(!recording.was_just_refused(), "another failure is another question");
        recording.succeeded(recording.begin());
        recording.refused(recording.begin());
        assert!(!recording.was_just_refused(), "nothing is open");
    }

    #[test]
    fn a_slow_success_does_not_hide_a_later_failure() {
        let recording = Recording::default();
        let slow = recording.begin();
        recording.failed(true);
        recording.succeeded(slow);
        assert!(recording.is_failing());
        let between = recording.begin();
        recording.failed(true);
        recording.succeeded(between);
        assert!(recording.is_failing());
        let probe = recording.begin();
        recording.succeeded(probe);
        assert!(!recording.is_failing());
        assert_eq!(recording.failures(), 2);
        recording.failed(false);
        assert!(!recording.is_failing());
        assert_eq!(recording.failures(), 3);
    }
}
