//! Every metric of the gateway. An exchange is counted once, from its record, where that is made; nothing is
//! counted that is not on it. Labels come from fixed lists, and upstreams' names from the configuration; they hold no
//! texts, ids or names of callers.

mod cells;
mod labels;
mod text;

use std::borrow::Cow;

use http::StatusCode;
use jiff::Timestamp;
use waltz_exchange::Verdict;
use waltz_exchange::record::{ChoiceRecord, Decision, ExchangeRecord, RevisionFault};

use cells::{ByUpstream, Counters, Histogram, counter, gauge};
pub use cells::{Family, Kind, Sample, Value};
use labels::{
    CALL_ERROR, CATEGORY, DECISION, DEGRADED, DROPPED, DROPPED_REVISION, ENDPOINT, LEVEL, MILLISECONDS,
    PURPOSE, REFUSAL, ROUNDS, SECONDS, SHARE, SIGNAL, SIGNED, STATUS, TOKENS, VERDICT,
};
pub use text::{CONTENT_TYPE, write};

use crate::Gateway;

/// Every metric that exchanges change.
#[derive(Debug)]
pub struct Metrics {
    started: Timestamp,
    requests: Counters<3>,
    evaluations: Counters<3>,
    prompts: Counters<1>,
    answers: Counters<1>,
    refusals: Counters<1>,
    triggers: Counters<0>,
    changes: Counters<0>,
    dropped_revisions: Counters<1>,
    degraded: Counters<1>,
    late_violations: Counters<0>,
    anomalies: Counters<0>,
    upstream_calls: Counters<1>,
    upstream_errors: ByUpstream,
    tokens: Counters<1>,
    dropped: Counters<2>,
    overhead_seconds: Histogram,
    total_ms: Histogram,
    generation_ms: Histogram,
    feedback_ms: Histogram,
    evaluation_ms: Histogram,
    revision_ms: Histogram,
    safety_score: Histogram,
    helpfulness_score: Histogram,
    dir_reward: Histogram,
    rounds: Histogram,
}

impl Metrics {
    /// Metrics that all stand at zero.
    pub fn new(started: Timestamp) -> Self {
        Self {
            started,
            requests: Counters::new([ENDPOINT, STATUS, DECISION]),
            evaluations: Counters::new([VERDICT, CATEGORY, LEVEL]),
            prompts: Counters::new([LEVEL]),
            answers: Counters::new([VERDICT]),
            refusals: Counters::new([REFUSAL]),
            triggers: Counters::new([]),
            changes: Counters::new([]),
            dropped_revisions: Counters::new([DROPPED_REVISION]),
            degraded: Counters::new([DEGRADED]),
            late_violations: Counters::new([]),
            anomalies: Counters::new([]),
            upstream_calls: Counters::new([PURPOSE]),
            upstream_errors: ByUpstream::new(CALL_ERROR),
            tokens: Counters::new([TOKENS]),
            dropped: Counters::new([SIGNAL, DROPPED]),
            overhead_seconds: Histogram::new(&SECONDS),
            total_ms: Histogram::new(&MILLISECONDS),
            generation_ms: Histogram::new(&MILLISECONDS),
            feedback_ms: Histogram::new(&MILLISECONDS),
            evaluation_ms: Histogram::new(&MILLISECONDS),
            revision_ms: Histogram::new(&MILLISECONDS),
            safety_score: Histogram::new(&SHARE),
            helpfulness_score: Histogram::new(&SHARE),
            dir_reward: Histogram::new(&SIGNED),
            rounds: Histogram::new(&ROUNDS),
        }
    }

    /// When the gateway started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Counts what was not delivered to a collector.
    pub fn dropped(&self, signal: &str, reason: &str, amount: usize) {
        self.dropped.add([signal, reason], amount as u64);
    }

    /// Counts an exchange that is over.
    pub fn observe(&self, record: &ExchangeRecord) {
        let status = StatusCode::from_u16(record.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.requests.add([&record.endpoint, status.as_str(), record.decision.as_str()], 1);
        self.overhead_seconds.observe(record.overhead_ms / 1e3);
        self.total_ms.observe(record.duration_ms);
        if let Some(reason) = &record.degraded {
            self.degraded.add([reason], 1);
        }
        self.late_violations.add([], u64::from(record.scanned.late_violation));
        self.anomalies.add([], record.scanned.anomalies as u64);
        for attempt in &record.attempts {
            self.upstream_calls.add([&attempt.purpose], 1);
            match &attempt.error {
                Some(error) => self.upstream_errors.add(&attempt.upstream, error, 1),
                None if attempt.purpose == "draft" => self.generation_ms.observe(attempt.duration_ms),
                None => {}
            }
        }
        self.tokens.add(["prompt"], record.usage.prompt_tokens);
        self.tokens.add(["completion"], record.usage.completion_tokens);
        self.tokens.add(["coaching"], record.usage.coaching_tokens);
        if let Some(verdict) = &record.prompt_verdict {
            self.prompts.add([level_of(verdict)], 1);
        }
        let mut judging_ms = None;
        for choice in &record.choices {
            for verdict in verdicts(choice) {
                *judging_ms.get_or_insert(0.0) += self.evaluate(verdict);
            }
            self.coach(choice);
            if is_answer(record.decision) {
                self.answer(choice);
            }
        }
        if let Some(judging_ms) = judging_ms {
            self.feedback_ms.observe(judging_ms);
        }
    }

    /// Counts one verdict and returns its time in milliseconds.
    fn evaluate(&self, verdict: &Verdict) -> f64 {
        let category = verdict.worst_category().filter(|_| verdict.is_unsafe);
        let category = category.map_or("none", |category| category.as_str());
        self.evaluations.add([label_of(verdict), category, level_of(verdict)], 1);
        #[expect(clippy::cast_precision_loss, reason = "a verdict takes less than 2^53 microseconds")]
        let milliseconds = verdict.micros as f64 / 1e3;
        self.evaluation_ms.observe(milliseconds);
        milliseconds
    }

    fn coach(&self, choice: &ChoiceRecord) {
        let mut changes = u64::from(choice.last_resort);
        for round in &choice.rounds {
            self.revision_ms.observe(round.duration_ms);
            changes += u64::from(round.kept);
            if !round.kept {
                self.dropped_revisions.add([round.fault.map_or("worse", RevisionFault::as_str)], 1);
            }
        }
        self.changes.add([], changes);
        if !choice.rounds.is_empty() {
            self.dir_reward.observe(choice.dir_score.into());
        }
    }

    /// Counts what a client gets, if it stays for the end: its record comes first.
    fn answer(&self, choice: &ChoiceRecord) {
        let Some(verdict) = choice.verdict() else {
            self.answers.add(["unjudged"], 1);
            return;
        };
        self.answers.add([label_of(verdict)], 1);
        #[expect(clippy::cast_precision_loss, reason = "a handful of rounds")]
        self.rounds.observe(choice.rounds.len() as f64);
        self.triggers.add([], u64::from(!choice.rounds.is_empty()));
        self.safety_score.observe(verdict.safety_score.into());
        self.helpfulness_score.observe(verdict.helpfulness_score.into());
        if verdict.overrefuse {
            self.refusals.add(["over"], 1);
        } else if verdict.refusal >= waltz_coach::judge::THRESHOLD {
            self.refusals.add(["justified"], 1);
        }
    }

    /// The share of answers with a verdict, among those that the judge could decide on.
    fn rate(&self, verdict: &str) -> Option<f64> {
        let decided = ["safe", "unsafe", "overrefusal"].map(|verdict| self.answers.sum(verdict)).iter().sum();
        share(self.answers.sum(verdict), decided)
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let judged = ["safe", "unsafe", "overrefusal", "undecided"].map(|verdict| self.answers.sum(verdict));
        vec![
            self.requests.family("waltz_requests_total", "Exchanges that are over."),
            self.evaluations.family(
                "waltz_evaluations_total",
                "Verdicts on drafts and revisions, by the worst category and the level that decided.",
            ),
            self.prompts.family("waltz_prompts_total", "Requests that were read, by the level that decided."),
            self.answers
                .family("waltz_answers_total", "Answers that were ready to be sent, by the verdict on them."),
            self.refusals.family("waltz_refusals_total", "Answers that were sent and refuse."),
            self.triggers.family("waltz_feedback_triggers_total", "Answers that were sent after coaching."),
            self.degraded
                .family("waltz_degraded_total", "Exchanges in which the judge could not do its work."),
            self.late_violations.family(
                "waltz_late_violations_total",
                "Streams that were found harmful as a whole after their windows had passed.",
            ),
            self.anomalies.family(
                "waltz_stream_anomalies_total",
                "Events that did not belong to an upstream's stream.",
            ),
            self.upstream_calls
                .family("waltz_upstream_calls_total", "Calls of models, failed ones included."),
            self.upstream_errors.family("waltz_upstream_errors_total", "Calls of models that failed."),
            self.tokens.family("waltz_tokens_total", "Tokens, as far as upstreams reported them."),
            self.dropped.family(
                "waltz_telemetry_dropped_total",
                "Spans, and pushes of metrics, that did not reach the collector.",
            ),
            self.overhead_seconds
                .family("waltz_overhead_seconds", "Time of an exchange that was not upstream's."),
            self.total_ms.family("waltzrl_total_time_ms", "Time of an exchange in milliseconds."),
            self.generation_ms.family(
                "waltzrl_conversation_generation_time_ms",
                "Time of a draft, to its end, in milliseconds.",
            ),
            self.feedback_ms
                .family("waltzrl_feedback_time_ms", "Time of all verdicts of an exchange in milliseconds."),
            self.evaluation_ms
                .family("waltzrl_feedback_evaluation_time_ms", "Time of one verdict in milliseconds."),
            self.revision_ms.family("waltzrl_revision_time_ms", "Time of a coaching round in milliseconds."),
            self.safety_score.family("waltzrl_safety_score", "Safety of answers that were ready to be sent."),
            self.helpfulness_score
                .family("waltzrl_helpfulness_score", "Helpfulness of answers that were ready to be sent."),
            self.dir_reward.family("waltzrl_dir_reward", "Gain of coached answers over their drafts."),
            self.rounds.family("waltzrl_coaching_rounds", "Coaching rounds of answers that were judged."),
            self.changes.family(
                "waltzrl_changes_made_total",
                "Revisions and last-resort replies that took a draft's place.",
            ),
            self.dropped_revisions.family(
                "waltz_dropped_revisions_total",
                "Revisions that did not take the place of what there was, by what was wrong with them.",
            ),
            gauge(
                "waltzrl_unsafe_rate",
                "Share of decided answers since the start that are unsafe; for alerts use waltz_answers_total.",
                self.rate("unsafe"),
            ),
            gauge(
                "waltzrl_overrefusal_rate",
                "Share of decided answers since the start that refuse without need.",
                self.rate("overrefusal"),
            ),
            gauge(
                "waltzrl_feedback_trigger_rate",
                "Share of judged answers since the start that were coached.",
                share(self.triggers.total(), judged.iter().sum()),
            ),
        ]
    }
}

/// Every metric of a gateway as it stands.
pub fn families(gateway: &Gateway) -> Vec<Family> {
    let metrics = &gateway.metrics;
    let health = gateway.store.health();
    let unrecorded = gateway.recording.failures();
    let flag = |on: bool| Some(f64::from(u8::from(on)));
    // A rate over time needs the zero before the first failure.
    for upstream in &gateway.live.load().upstreams {
        metrics.upstream_errors.add(upstream.name(), "other", 0);
    }
    let mut families = metrics.families();
    families.extend([
        counter("waltz_unrecorded_total", "Exchanges that could not be recorded.", unrecorded),
        gauge("waltz_record_failing", "1 while exchanges cannot be recorded.", {
            flag(gateway.seems_unrecordable())
        }),
        gauge("waltz_journal_undrained_bytes", "Journal that waits for the database.", {
            Some(float(health.undrained_bytes))
        }),
        gauge("waltz_journal_drain_failing", "1 while the journal cannot be put into the database.", {
            flag(health.drain_error.is_some())
        }),
        gauge("waltz_journal_unreadable_bytes", "Journal that could not be read since the start.", {
            Some(float(health.unreadable_bytes))
        }),
        gauge("waltz_journal_damaged_segments", "Journal segments that were set aside.", {
            Some(float(health.damaged_segments.len() as u64))
        }),
        gauge("waltz_rejected_entries", "Records that could not be put into tables.", {
            Some(float(health.rejected_entries))
        }),
        gauge("waltz_draining", "1 while the gateway stops.", flag(gateway.draining.is_cancelled())),
        gauge("process_start_time_seconds", "When the process started, in seconds since 1970.", {
            Some(metrics.started.as_duration().as_secs_f64())
        }),
        build_info(),
    ]);
    families
}

fn build_info() -> Family {
    let labels = vec![("version", Cow::Borrowed(env!("CARGO_PKG_VERSION")))];
    let sample = Sample { labels, value: Value::Number(1.0) };
    Family { name: "waltz_build_info", help: "The version.", kind: Kind::Gauge, samples: vec![sample] }
}

/// Whether an exchange that ended so had an answer for the client, drafted and ready to be sent.
fn is_answer(decision: Decision) -> bool {
    use Decision::{
        Blocked, ClientGone, Coached, Degraded, Evaluated, Failed, Incomplete, Invalid, Passthrough, Refused,
        Released, Stopped,
    };
    match decision {
        Released | Coached | Refused | Stopped | Passthrough | Degraded => true,
        Blocked | Evaluated | Invalid | Failed | Incomplete | ClientGone => false,
    }
}

/// Every verdict that was made on a choice.
fn verdicts(choice: &ChoiceRecord) -> impl Iterator<Item = &Verdict> {
    let revisions = choice.rounds.iter().map(|round| &round.revision);
    let texts = std::iter::once(&choice.draft).chain(&choice.self_check).chain(revisions);
    texts.filter_map(|text| text.verdict.as_ref())
}

/// The level that decided.
fn level_of(verdict: &Verdict) -> &'static str {
    LEVEL.values[usize::from(u8::from(verdict.level))]
}

/// The label of a verdict. One that could not be reached as the policy wants it is never "safe".
fn label_of(verdict: &Verdict) -> &'static str {
    match verdict {
        verdict if verdict.state.is_degraded() => "undecided",
        Verdict { is_unsafe: true, .. } => "unsafe",
        Verdict { overrefuse: true, .. } => "overrefusal",
        _ => "safe",
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which no count reaches")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(crate) mod tests;
