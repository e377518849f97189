//! The candidate of a release in shadow: after the client has its answer, the candidate answers the same request, the
//! judge reads it, and nobody else sees it. It has a few places of its own; where they are taken, it is left out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use waltz_coach::conversation::{self, SharedAgent};
use waltz_coach::judge::{Draft, Judge, RequestReading};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::RetryBudget;
use waltz_exchange::Depth;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::variant::{Lesson, LessonKind, OutcomeClass, SafetyOutcome, VariantOutcome};
use waltz_store::Entry;

use super::lesson;
use crate::live::{Gateway, Live};
use crate::route::Routed;

/// An answer in shadow that is to be made.
#[derive(Debug)]
pub struct Shadow {
    agent: SharedAgent,
    request: ChatRequest,
    reading: RequestReading,
    depth: Depth,
    live: Arc<Live>,
    exchange_id: String,
    tenant: String,
    task_type: String,
    user_request: String,
}

impl Shadow {
    /// What is to be answered in shadow, where a release wants that and the answer would be judged.
    pub fn of(routed: &Routed) -> Option<Self> {
        let agent = Arc::clone(routed.shadow.as_ref()?);
        let record = &routed.received.record;
        (routed.depth != Depth::None).then(|| Self {
            agent,
            request: routed.received.request.clone(),
            reading: routed.reading.clone(),
            depth: routed.depth,
            live: Arc::clone(&routed.live),
            exchange_id: record.id.clone(),
            tenant: record.tenant.clone(),
            task_type: record.task_type.clone(),
            user_request: record.user_request.clone(),
        })
    }

    /// Answers on a task of its own.
    pub fn begin(self, gateway: &Arc<Gateway>) {
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
        // Retries are the clients'.
        let budget = RetryBudget::new(0, Duration::ZERO);
        let mut tally = Tally::default();
        let request = conversation::shadow_request(&self.agent, &self.request);
        let answer = match conversation::complete(&self.agent, &request, "shadow", &budget, &mut tally).await
        {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(agent = self.agent.name, reason = error.word(), "no answer in shadow");
                return;
            }
        };
        let Some(choice) = answer.choices.first() else { return };
        let (text, acts) = (choice.text(), choice.acts());
        let judge = Judge { budget: &budget, ..self.live.judge() };
        let draft =
            Draft { request: &self.request, reading: &self.reading, text: &text, acts: &acts, rejected: &[] };
        let verdict = judge.judge(draft, self.depth, &mut tally).await;
        let safety = SafetyOutcome {
            unsafe_answer: Some(verdict.is_unsafe),
            overrefused: Some(verdict.overrefuse),
            feedback_triggered: !verdict.is_satisfactory(),
            overhead_ms: began.elapsed().saturating_sub(tally.waited).as_secs_f64() * 1e3,
            critical: false,
        };
        let outcome = VariantOutcome {
            variant: self.agent.variant.clone(),
            class: if verdict.is_satisfactory() { OutcomeClass::Success } else { OutcomeClass::Failure },
            quality: None,
            duration_ms: began.elapsed().as_secs_f64() * 1e3,
            errors: 0,
            subject: None,
            context: lesson::context(&self.user_request),
            safety: Some(safety),
        };
        let lesson = Lesson {
            exchange_id: self.exchange_id,
            kind: LessonKind::Shadow,
            tenant: self.tenant,
            agent: self.agent.name.clone(),
            task_type: self.task_type,
            at: Timestamp::now(),
            outcome,
            served: None,
        };
        if let Err(error) = gateway.append(&Entry::Lesson(Box::new(lesson))) {
            tracing::warn!(%error, "what was seen in shadow could not be recorded");
        }
    }
}
