//! A candidate beside the control that serves at the same time: the two-sample e-process of Turner, Ly and Grünwald
//! (arXiv 2106.02693), one-sided by betting only while the candidate is estimated below the control. It needs no
//! baseline, and what changes for both at once, such as the hour, does not move it.

use serde::{Deserialize, Serialize};

/// The state of the process. Outcomes are bet on in blocks of one of the candidate and several of the control; both
/// wait in order for their block, so that no outcome decides which block it falls into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TwoSample {
    ln_e: f64,
    control: Side,
    candidate: Side,
    /// Control outcomes in the block that is being filled; fixed when the block begins.
    block: u32,
}

/// The control outcomes of a block when the candidate has 5 % of the traffic.
const LARGEST_BLOCK: u32 = 19;

/// What is known of one side, and the outcomes that wait, oldest in the lowest bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Side {
    hits: f64,
    misses: f64,
    waiting: u64,
    count: u32,
}

impl Side {
    fn new(hits: f64, misses: f64) -> Self {
        Self { hits, misses, waiting: 0, count: 0 }
    }

    fn rate(&self) -> f64 {
        self.hits / (self.hits + self.misses)
    }

    /// Of more than 64 waiting outcomes the oldest is let go: the other side is too slow to use it, and what is bet on
    /// must be of about the same time on both sides.
    fn push(&mut self, success: bool) {
        if self.count == u64::BITS {
            self.waiting >>= 1;
            self.count -= 1;
        }
        self.waiting |= u64::from(success) << self.count;
        self.count += 1;
    }

    fn forget_waiting(&mut self) {
        (self.waiting, self.count) = (0, 0);
    }

    /// Takes the oldest `n` and returns how many of them were successes.
    fn take(&mut self, n: u32) -> f64 {
        let hits = f64::from((self.waiting & ((1 << n) - 1)).count_ones());
        self.waiting >>= n;
        self.count -= n;
        self.hits += hits;
        self.misses += f64::from(n) - hits;
        hits
    }
}

impl TwoSample {
    /// No evidence yet; `share` is the candidate's share of what both get. The first guesses are 0.9 and 0.6.
    pub fn new(share: f64) -> Self {
        Self { ln_e: 0.0, control: Side::new(1.8, 0.2), candidate: Side::new(1.2, 0.8), block: block(share) }
    }

    /// Takes an outcome of one side and returns the logarithm of the evidence that the candidate is worse.
    /// `share` is the candidate's present share, used for the blocks after this one.
    pub fn observe(&mut self, of_candidate: bool, success: bool, share: f64) -> f64 {
        if of_candidate {
            self.candidate.push(success);
        } else {
            self.control.push(success);
        }
        while self.candidate.count >= 1 && self.control.count >= self.block {
            self.bet();
            self.block = block(share);
        }
        self.ln_e
    }

    /// Lets go of what waits for its block, because what comes next is of another time or another share.
    pub fn interrupt(&mut self) {
        self.control.forget_waiting();
        self.candidate.forget_waiting();
    }

    /// The logarithm of the evidence.
    pub fn ln_e(&self) -> f64 {
        self.ln_e
    }

    fn bet(&mut self) {
        let n = f64::from(self.block);
        let (a, b) = (self.control.rate(), self.candidate.rate());
        let mean = (n * a + b) / (n + 1.0);
        let control_hits = self.control.take(self.block);
        let candidate_hits = self.candidate.take(1);
        if b < a {
            self.ln_e += ln_ratio(control_hits, n, a, mean) + ln_ratio(candidate_hits, 1.0, b, mean);
        }
    }
}

fn block(share: f64) -> u32 {
    // The range is small, so the cast is exact.
    ((1.0 - share) / share.max(0.01)).round().clamp(1.0, f64::from(LARGEST_BLOCK)) as u32
}

fn ln_ratio(hits: f64, n: f64, rate: f64, mean: f64) -> f64 {
    hits * (rate / mean).ln() + (n - hits) * ((1.0 - rate) / (1.0 - mean)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_the_newest_and_does_not_outlast_an_interruption() {
        let mut process = TwoSample::new(0.5);
        // A hundred failures and then 64 successes of the control wait; only the successes are bet on.
        for step in 0..164 {
            process.observe(false, step >= 100, 0.5);
        }
        let mut fresh = TwoSample::new(0.5);
        for _ in 0..64 {
            fresh.observe(false, true, 0.5);
        }
        assert_eq!(process, fresh);
        process.interrupt();
        for _ in 0..5 {
            assert_eq!(process.observe(true, false, 0.5), 0.0, "no control waits");
        }
        assert!(process.observe(false, true, 0.5) > 0.0);
    }
}
