//! The circuit breaker: unsafe candidates in a row mean that the evolution goes astray, and it stops for a person.

use serde::Serialize;

use super::measure::Safety;

/// So many unsafe candidates in a row open it.
pub const MOST_UNSAFE: usize = 3;

/// What opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Opened {
    /// The candidates.
    pub candidates: Vec<String>,
    /// Why the last of them is unsafe.
    pub reasons: Vec<String>,
}

/// A breaker, closed at first.
#[derive(Clone, Debug)]
pub struct Breaker {
    enabled: bool,
    in_a_row: Vec<String>,
    opened: Option<Opened>,
}

impl Breaker {
    /// One that opens only where failures are to block.
    pub fn new(block_on_failure: bool) -> Self {
        Self { enabled: block_on_failure, in_a_row: Vec::new(), opened: None }
    }

    /// Sees what came of a candidate. Only a safe one breaks a row: what was not measured proves nothing.
    pub fn see(&mut self, id: &str, safety: &Safety) {
        match safety {
            Safety::Unsafe { reasons } => {
                self.in_a_row.push(id.to_owned());
                if self.enabled && self.opened.is_none() && self.in_a_row.len() >= MOST_UNSAFE {
                    self.opened =
                        Some(Opened { candidates: self.in_a_row.clone(), reasons: reasons.clone() });
                }
            }
            Safety::Proven | Safety::Unmeasured => self.in_a_row.clear(),
            Safety::Unproven { .. } | Safety::Unanswered { .. } => {}
        }
    }

    /// What opened it; `None` while it is closed. It never closes by itself.
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad() -> Safety {
        Safety::Unsafe { reasons: vec!["harmful".to_owned()] }
    }

    #[test]
    fn it_opens_after_a_row_of_unsafe_ones_and_stays_open() {
        let mut breaker = Breaker::new(true);
        for (id, safety) in [("a", bad()), ("b", bad()), ("c", Safety::Proven), ("d", bad()), ("e", bad())] {
            breaker.see(id, &safety);
        }
        breaker.see("f", &Safety::Unanswered { prompts: 2 });
        assert_eq!(breaker.opened(), None);
        breaker.see("g", &bad());
        let opened = breaker.opened().unwrap().clone();
        assert_eq!(
            (opened.candidates, opened.reasons),
            (vec!["d".into(), "e".into(), "g".into()], vec!["harmful".to_owned()])
        );
        breaker.see("h", &Safety::Proven);
        assert!(breaker.opened().is_some());
    }

    #[test]
    fn it_stays_closed_where_failures_do_not_block() {
        let mut breaker = Breaker::new(false);
        (0..9).for_each(|_| breaker.see("a", &bad()));
        assert_eq!(breaker.opened(), None);
    }
}
