//! How often a failed call may be repeated: a share of the traffic, so that a broken upstream is
//! never hit by a storm of retries.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A bucket that every request fills a little and every retry empties by one.
#[derive(Debug)]
pub struct RetryBudget {
    /// Tenths of a retry.
    tenths: AtomicI64,
    max_retries: u32,
    pause: Duration,
}

const RESERVE_TENTHS: i64 = 100;

impl RetryBudget {
    /// A budget of one retry per ten requests with a reserve of ten, and a limit per call.
    pub fn new(max_retries: u32, pause: Duration) -> Self {
        Self { tenths: AtomicI64::new(RESERVE_TENTHS), max_retries, pause }
    }

    /// The most retries at one target.
    pub fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// How long to wait before retry number `tries`; doubles each time, two seconds at most.
    pub fn pause(&self, tries: u32) -> Duration {
        self.pause.saturating_mul(1 << tries.saturating_sub(1).min(6)).min(Duration::from_secs(2))
    }

    /// A request arrived.
    pub fn deposit(&self) {
        self.tenths
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some((held + 1).min(RESERVE_TENTHS)))
            .ok();
    }

    /// Takes one retry out, if there is one.
    pub fn withdraw(&self) -> bool {
        self.tenths
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| (held >= 10).then_some(held - 10))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_of_the_traffic_beyond_the_reserve() {
        let budget = RetryBudget::new(2, Duration::from_millis(1));
        let mut granted = 0;
        for _ in 0..1_000 {
            budget.deposit();
            if budget.withdraw() {
                granted += 1;
            }
        }
        assert!((100..=111).contains(&granted), "{granted}");
    }

    #[test]
    fn pauses_double_and_are_bounded() {
        let budget = RetryBudget::new(2, Duration::from_millis(100));
        assert_eq!(budget.pause(1), Duration::from_millis(100));
        assert_eq!(budget.pause(2), Duration::from_millis(200));
        assert_eq!(budget.pause(60), Duration::from_secs(2));
    }
}
