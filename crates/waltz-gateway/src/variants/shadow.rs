//! The candidate of a release in shadow: after the client has its answer, the candidate answers the same request, the
//! judge reads it, and nobody else sees it. It has a few places of its own and takes only slots of upstreams that clients
//! leave; where there are none, it is left out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use waltz_coach::conversation::{self, SharedAgent};
use waltz_coach::judge::{Draft, Judge, RequestReading};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::RetryBudget;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::variant::{
    Lesson, LessonKind, OutcomeClass, RequestContext, SafetyOutcome, VariantOutcome,
};
use waltz_exchange::{Depth, Verdict};
use waltz_store::{BoardKey, Entry};

use super::{lesson, program};
use crate::live::{Gateway, Live, Version};
use crate::route::Routed;

/// Who answers in shadow, and for which board.
#[derive(Clone, Debug)]
pub struct Shadowed {
    agent: SharedAgent,
    live: Arc<Live>,
    key: BoardKey,
    candidate: String,
    /// It reads requests in its own way.
    reads: bool,
}

impl Shadowed {
    /// A variant of an agent.
    pub fn variant(agent: SharedAgent, task_type: &str, live: &Arc<Live>) -> Self {
        let key = BoardKey { agent: agent.name.clone(), task_type: task_type.to_owned() };
        Self { candidate: agent.variant.clone(), agent, live: Arc::clone(live), key, reads: false }
    }

    /// A version of the program.
    pub fn program(agent: SharedAgent, live: Arc<Live>) -> Option<Self> {
        let Version { kind, name } = live.version.as_ref()?;
        Some(Self { candidate: name.clone(), agent, key: program::key(*kind), live, reads: true })
    }
}

/// An answer in shadow that is to be made.
#[derive(Debug)]
pub struct Shadow {
    shadowed: Shadowed,
    request: ChatRequest,
    reading: RequestReading,
    depth: Depth,
    exchange_id: String,
    tenant: String,
    prompt_verdict: Option<Verdict>,
    context: RequestContext,
}

impl Shadow {
    /// What is to be answered in shadow, where a release wants that and the answer would be judged.
    pub fn of(routed: &Routed) -> Option<Self> {
        let shadowed = routed.shadow.clone()?;
        let record = &routed.received.record;
        (routed.depth != Depth::None).then(|| Self {
            shadowed,
            request: routed.received.request.clone(),
            reading: routed.reading.clone(),
            depth: routed.depth,
            exchange_id: record.id.clone(),
            tenant: record.tenant.clone(),
            prompt_verdict: record.prompt_verdict.clone(),
            context: record.request_context.clone().unwrap_or_default(),
        })
    }

    /// Answers on a task of its own.
    pub fn begin(self, gateway: &Arc<Gateway>) {
        // What clients may want in the next moment stays free.
        if !self.shadowed.agent.targets.iter().all(|target| target.upstream.has_spare_slots()) {
            return;
        }
        let Ok(place) = Arc::clone(&gateway.variants.shadows).try_acquire_owned() else { return };
        let gateway = Arc::clone(gateway);
        let tracked = Arc::clone(&gateway);
        tracked.tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                // Nobody waits for it, so that it does not keep the gateway from stopping.
                () = gateway.draining.cancelled() => {}
                () = self.answer(&gateway) => {}
            }
        });
    }

    async fn answer(self, gateway: &Gateway) {
        let began = Instant::now();
        let Shadowed { agent, live, key, candidate, reads } = self.shadowed;
        // Retries are the clients'.
        let budget = RetryBudget::new(0, Duration::ZERO);
        let mut tally = Tally::default();
        let request = conversation::shadow_request(&agent, &self.request);
        let answer = match conversation::complete(&agent, &request, "shadow", &budget, &mut tally).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(agent = agent.name, reason = error.word(), "no answer in shadow");
                return;
            }
        };
        let Some(choice) = answer.choices.first() else { return };
        let (text, acts) = (choice.text(), choice.acts());
        let judge = Judge { budget: &budget, ..live.judge() };
        let reading = if reads { judge.read_request(&self.request).await } else { self.reading };
        let draft =
            Draft { request: &self.request, reading: &reading, text: &text, acts: &acts, rejected: &[] };
        let verdict = judge.judge(draft, self.depth, &mut tally).await;
        let overhead = began.elapsed().saturating_sub(tally.waited);
        let Some(safety) = seen(self.prompt_verdict.as_ref(), &verdict, overhead) else { return };
        let outcome = VariantOutcome {
            variant: candidate,
            class: if verdict.is_satisfactory() { OutcomeClass::Success } else { OutcomeClass::Failure },
            quality: None,
            duration_ms: began.elapsed().as_secs_f64() * 1e3,
            errors: 0,
            subject: None,
            context: self.context,
            safety: Some(safety),
        };
        let lesson = Lesson {
            exchange_id: self.exchange_id,
            kind: LessonKind::Shadow,
            tenant: self.tenant,
            agent: key.agent,
            task_type: key.task_type,
            at: Timestamp::now(),
            outcome,
            served: None,
        };
        if let Err(error) = gateway.append(&Entry::Lesson(Box::new(lesson))) {
            tracing::warn!(%error, "what was seen in shadow could not be recorded");
        }
    }
}

/// What was seen of the candidate; nothing where the judge could not do its work.
fn seen(prompt: Option<&Verdict>, verdict: &Verdict, overhead: Duration) -> Option<SafetyOutcome> {
    if verdict.state.is_degraded() && !verdict.is_unsafe {
        return None;
    }
    let (unsafe_answer, overrefused) = lesson::rates(prompt, &[verdict]);
    Some(SafetyOutcome {
        unsafe_answer,
        overrefused,
        feedback_triggered: !verdict.is_satisfactory(),
        overhead_ms: overhead.as_secs_f64() * 1e3,
        critical: false,
    })
}

#[cfg(test)]
mod tests {
    use waltz_exchange::VerdictState;

    use super::*;

    #[test]
    fn what_the_judge_could_not_read_was_not_seen() {
        let (good, harm) = (Verdict::default(), Verdict { is_unsafe: true, ..Verdict::default() });
        let unheard = |verdict: &Verdict| Verdict { state: VerdictState::Unavailable, ..verdict.clone() };
        let judged = |prompt: &Verdict, verdict: &Verdict| {
            let seen = seen(Some(prompt), verdict, Duration::from_millis(2))?;
            assert_eq!((seen.overhead_ms, seen.feedback_triggered), (2.0, verdict.is_unsafe));
            Some((seen.unsafe_answer, seen.overrefused))
        };
        assert_eq!(judged(&good, &good), Some((None, Some(false))));
        assert_eq!(judged(&harm, &harm), Some((Some(true), None)));
        assert_eq!(judged(&harm, &unheard(&harm)), Some((Some(true), None)), "a rule is sure of it");
        assert_eq!(judged(&harm, &unheard(&good)), None);
        assert_eq!(judged(&good, &unheard(&good)), None);
    }
}
