//! Asks one target after the other until one answers.

use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use waltz_exchange::record::Attempt;

use super::{Body, Call, CallError, RetryBudget, Target};

/// Posts to the targets in order until one answers. A transient error is tried again at the same
/// target while its time and the budget last, then the next target is asked. Every call is noted in
/// `attempts`.
pub async fn post_with_fallback(
    targets: &[Target],
    budget: &RetryBudget,
    purpose: &str,
    call: Call,
    body_for: impl Fn(&Target) -> Bytes,
    attempts: &mut Vec<Attempt>,
) -> Result<(Body, Target), CallError> {
    budget.deposit();
    let mut last = None;
    for target in targets {
        let body = body_for(target);
        let deadline = target.upstream.deadline();
        let mut tries = 0;
        loop {
            tries += 1;
            let began = Instant::now();
            let position = attempts.len();
            attempts.push(abandoned(purpose, target));
            let outcome = target.upstream.post(call, body.clone(), deadline).await;
            note(&mut attempts[position], &outcome, began);
            match outcome {
                Ok(answer) => return Ok((answer, target.clone())),
                Err(error) => {
                    let transient = error.is_transient();
                    let next = tokio::time::Instant::now() + budget.pause(tries);
                    let again =
                        transient && retries_help(&error) && tries <= budget.max_retries() && next < deadline;
                    last = Some(error);
                    if again && budget.withdraw() {
                        tokio::time::sleep_until(next).await;
                        continue;
                    }
                    if !transient {
                        return Err(last.unwrap_or_else(|| CallError::Unreachable(String::new())));
                    }
                    break;
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| CallError::Unreachable("none".to_owned())))
}

/// A full upstream or a rate limit gets worse from more calls, so those go straight to the next target.
fn retries_help(error: &CallError) -> bool {
    !matches!(error, CallError::Shed(_) | CallError::Timeout(..) | CallError::Status { status: 429, .. })
}

/// What stays on record of a call if nobody waits for its end: the client hung up, or the judge's time is
/// over.
fn abandoned(purpose: &str, target: &Target) -> Attempt {
    Attempt {
        purpose: purpose.to_owned(),
        upstream: target.upstream.name().to_owned(),
        model: target.model.clone(),
        at: Timestamp::now(),
        status: None,
        error: Some("abandoned".to_owned()),
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
