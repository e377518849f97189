//! Asks one target after the other until one answers.

use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use waltz_exchange::record::Attempt;

use super::{Body, Call, CallError, RetryBudget, Target};

/// What records say of a call for whose end nobody waited.
pub const ABANDONED: &str = "abandoned";

/// How far a call has come on its way through the targets. It is kept where an answer may yet fail after it
/// began: the search then goes on from there.
#[derive(Debug, Default)]
pub struct Course {
    target: usize,
    /// Calls at this target.
    tries: u32,
    /// When this target's time is over.
    deadline: Option<tokio::time::Instant>,
    /// At the last target a slot is waited for.
    patient: bool,
}

impl Course {
    /// The beginning. A patient call waits for a slot at the last target where it would be shed.
    pub fn new(patient: bool) -> Self {
        Self { patient, ..Self::default() }
    }

    /// Goes on after a failure: a transient one is tried again at the same target, after a pause, while its
    /// time and the budget last, then the next target is due. The error comes back where that is in vain.
    pub async fn after(
        &mut self,
        error: CallError,
        targets: &[Target],
        budget: &RetryBudget,
    ) -> Result<(), CallError> {
        if !error.is_transient() {
            return Err(error);
        }
        let next = tokio::time::Instant::now() + budget.pause(self.tries);
        let in_time = self.deadline.is_some_and(|deadline| next < deadline);
        if retries_help(&error) && self.tries <= budget.max_retries() && in_time && budget.withdraw() {
            tokio::time::sleep_until(next).await;
            return Ok(());
        }
        if self.target + 1 >= targets.len() {
            return Err(error);
        }
        *self = Self { target: self.target + 1, ..Self::new(self.patient) };
        Ok(())
    }
}

/// Posts to the targets in order until one answers, from where the course stands. Every call is noted in
/// `attempts`.
pub async fn post_with_fallback(
    targets: &[Target],
    budget: &RetryBudget,
    purpose: &str,
    call: Call,
    body_for: impl Fn(&Target) -> Bytes,
    (course, attempts): (&mut Course, &mut Vec<Attempt>),
) -> Result<(Body, Target), CallError> {
    if (course.target, course.tries) == (0, 0) {
        budget.deposit();
    }
    while let Some(target) = targets.get(course.target) {
        let body = body_for(target);
        let position = course.target;
        while course.target == position {
            course.tries += 1;
            let began = Instant::now();
            let noted = attempts.len();
            attempts.push(abandoned(purpose, target));
            let waits = course.patient && position + 1 == targets.len();
            let outcome = match target.upstream.slot(waits).await {
                Ok(slot) => {
                    // Time in the queue is not the upstream's.
                    let deadline = *course.deadline.get_or_insert_with(|| target.upstream.deadline());
                    target.upstream.post(slot, call, body.clone(), deadline).await
                }
                Err(error) => Err(error),
            };
            note(&mut attempts[noted], &outcome, began);
            match outcome {
                Ok(answer) => return Ok((answer, target.clone())),
                Err(error) => course.after(error, targets, budget).await?,
            }
        }
    }
    Err(CallError::Unreachable("none".to_owned()))
}

/// A full upstream or a rate limit gets worse from more calls, so those go straight to the next target.
fn retries_help(error: &CallError) -> bool {
    !matches!(error, CallError::Shed(_) | CallError::Timeout(..) | CallError::Status { status: 429, .. })
}

/// What stays on record of a call if nobody waits for its end: the client hung up, or the gateway
/// stops.
fn abandoned(purpose: &str, target: &Target) -> Attempt {
    Attempt {
        purpose: purpose.to_owned(),
        upstream: target.upstream.name().to_owned(),
        model: target.model.clone(),
        at: Timestamp::now(),
        status: None,
        error: Some(ABANDONED.to_owned()),
        duration_ms: 0.0,
    }
}

fn note(attempt: &mut Attempt, outcome: &Result<Body, CallError>, began: Instant) {
    (attempt.status, attempt.error) = match outcome {
        Ok(_) => (Some(200), None),
        Err(CallError::Status { status, .. }) => (Some(*status), Some("status".to_owned())),
        Err(error) => (None, Some(error.word().to_owned())),
    };
    attempt.duration_ms = began.elapsed().as_secs_f64() * 1e3;
}
