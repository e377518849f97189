//! Whether exchanges can be recorded, as far as appends have shown. Told by `record.rs` of every append; `live.rs` asks, and has the
//! journal probed where the last one failed.

use std::sync::atomic::{AtomicU64, Ordering};

/// How recording goes.
#[derive(Debug, Default)]
pub struct Recording {
    failures: AtomicU64,
    /// The failure that nothing has made good yet, by number; 0 when there is none.
    open: AtomicU64,
}

/// What was known when an append or a probe began.
#[derive(Clone, Copy, Debug)]
pub struct Attempt(u64);

impl Recording {
    /// An append or a probe begins.
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

    /// Whether the last exchange could not be recorded, and no probe has succeeded since.
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
