//! What an exchange, or a report on one, teaches about the variant that answered.

use jiff::Timestamp;
use waltz_exchange::record::{ChoiceRecord, Decision, ExchangeRecord};
use waltz_exchange::variant::{
    DEFAULT_VARIANT, Lesson, LessonKind, OutcomeClass, RequestContext, SafetyOutcome, VariantOutcome,
};
use waltz_exchange::{Outcome, Verdict, VerdictState};

/// What the choice among variants looks at.
pub fn context(request: &str) -> RequestContext {
    RequestContext { length: request.chars().count() as u64, ..RequestContext::default() }
}

/// What the judge says came of an answer. A variant is measured by its draft: what coaching made good is not its
/// merit. None where no variant was chosen, or nothing was answered or judged.
pub fn served(record: &ExchangeRecord) -> Option<VariantOutcome> {
    record.variant_choice.as_ref()?;
    let verdicts: Vec<&Verdict> =
        record.choices.iter().filter_map(|choice| choice.draft.verdict.as_ref()).collect();
    let class = match record.decision {
        Decision::Blocked | Decision::Invalid | Decision::ClientGone | Decision::Evaluated => return None,
        // An upstream that does not want the request: a model that it does not know, a parameter that it refuses.
        Decision::Failed if refused(record) && record.variant != DEFAULT_VARIANT => OutcomeClass::Failure,
        Decision::Failed | Decision::Incomplete | Decision::Degraded => OutcomeClass::Infrastructure,
        _ if verdicts.is_empty() => return None,
        _ if verdicts.iter().any(|verdict| verdict.state != VerdictState::Decided) => {
            OutcomeClass::Infrastructure
        }
        _ if verdicts.iter().all(|verdict| verdict.is_satisfactory()) => OutcomeClass::Success,
        _ => OutcomeClass::Failure,
    };
    let score = |verdict: &&Verdict| f64::from(verdict.safety_score + verdict.helpfulness_score) / 2.0;
    let quality = verdicts.iter().map(score).sum::<f64>() / verdicts.len() as f64;
    let last_resorts = record.choices.iter().filter(|choice| choice.last_resort).count();
    Some(VariantOutcome {
        variant: record.variant.clone(),
        class,
        quality: (!verdicts.is_empty()).then(|| quality.clamp(0.0, 1.0)),
        duration_ms: record.duration_ms,
        errors: u32::try_from(last_resorts).unwrap_or(u32::MAX),
        subject: record.subject.clone(),
        context: context(&record.user_request),
        safety: safety(record),
    })
}

fn refused(record: &ExchangeRecord) -> bool {
    (400..500).contains(&record.status) && !matches!(record.status, 401 | 403 | 408 | 409 | 429)
}

/// What judges said of the answer as the client got it.
fn safety(record: &ExchangeRecord) -> Option<SafetyOutcome> {
    let verdicts: Vec<&Verdict> = record.choices.iter().filter_map(ChoiceRecord::verdict).collect();
    if verdicts.is_empty() {
        return None;
    }
    Some(SafetyOutcome {
        unsafe_answer: Some(verdicts.iter().any(|verdict| verdict.is_unsafe)),
        overrefused: Some(verdicts.iter().any(|verdict| verdict.overrefuse)),
        feedback_triggered: record.choices.iter().any(|choice| !choice.rounds.is_empty()),
        overhead_ms: record.overhead_ms,
        critical: record.scanned.late_violation,
    })
}

/// What a client's report teaches. None where no variant was chosen, or the report says neither success nor failure.
pub fn reported(record: &ExchangeRecord, report: &Outcome, at: Timestamp) -> Option<Box<Lesson>> {
    record.variant_choice.as_ref()?;
    let rated = report.rating.map(|_| f64::from(report.rating_share()));
    let class = match (report.success, rated) {
        _ if report.blames_infrastructure() => OutcomeClass::Infrastructure,
        (Some(true), _) => OutcomeClass::Success,
        (Some(false), _) => OutcomeClass::Failure,
        (None, Some(rating)) if rating >= 0.5 => OutcomeClass::Success,
        (None, Some(_)) => OutcomeClass::Failure,
        (None, None) => report.error_class.as_ref().map(|_| OutcomeClass::Failure)?,
    };
    let outcome = VariantOutcome {
        variant: record.variant.clone(),
        class,
        quality: rated,
        duration_ms: report.duration_ms.map_or(record.duration_ms, |milliseconds| milliseconds as f64),
        errors: u32::from(report.error_class.is_some()),
        subject: record.subject.clone(),
        context: context(&record.user_request),
        safety: None,
    };
    Some(Box::new(Lesson {
        exchange_id: record.id.clone(),
        kind: LessonKind::Reported,
        tenant: record.tenant.clone(),
        agent: record.agent.clone(),
        task_type: record.task_type.clone(),
        at,
        outcome,
        served: record.lesson.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use waltz_exchange::record::{Assessment, AssessmentSource, DraftRecord};
    use waltz_exchange::variant::Choice;

    use super::*;
    use crate::receive::blank_record;

    fn record(decision: Decision, verdict: Option<Verdict>) -> ExchangeRecord {
        let mut record = blank_record(
            "req_1".to_owned(),
            "acme".to_owned(),
            "/v1/chat/completions",
            Timestamp::UNIX_EPOCH,
        );
        record.decision = decision;
        record.variant = "fast".to_owned();
        record.variant_choice = Some(Choice {
            variant: "fast".into(),
            action_prob: 1.0,
            candidates: [("fast".into(), 1.0)].into(),
        });
        let assessment = Assessment {
            source: AssessmentSource::Judge,
            confidence: 1.0,
            reasoning: String::new(),
            risk_score: 0.0,
            risk_categories: Vec::new(),
        };
        record.choices.push(ChoiceRecord {
            index: 0,
            draft: DraftRecord { text: "a".into(), assessment, verdict },
            self_check: None,
            rounds: Vec::new(),
            last_resort: false,
            unchanged: true,
            final_text: String::new(),
            final_verdict: None,
            dir_score: 0.0,
        });
        record
    }

    fn good() -> Verdict {
        Verdict { safety_score: 1.0, helpfulness_score: 0.8, ..Verdict::default() }
    }

    fn class(record: &ExchangeRecord) -> Option<OutcomeClass> {
        served(record).map(|outcome| outcome.class)
    }

    #[test]
    fn a_variant_is_measured_by_its_draft() {
        use OutcomeClass::{Failure, Infrastructure, Success};
        let harmful = Verdict { is_unsafe: true, ..good() };
        let timed_out = Verdict { state: VerdictState::Timeout, ..good() };
        for (decision, verdict, expected) in [
            (Decision::Released, Some(good()), Some(Success)),
            (Decision::Passthrough, Some(good()), Some(Success)),
            (Decision::Coached, Some(harmful.clone()), Some(Failure)),
            (Decision::Refused, Some(harmful.clone()), Some(Failure)),
            (Decision::Stopped, Some(harmful), Some(Failure)),
            (Decision::Released, Some(timed_out), Some(Infrastructure)),
            (Decision::Degraded, Some(good()), Some(Infrastructure)),
            (Decision::Failed, None, Some(Infrastructure)),
            (Decision::Incomplete, None, Some(Infrastructure)),
            (Decision::Passthrough, None, None),
            (Decision::Blocked, None, None),
            (Decision::ClientGone, None, None),
        ] {
            assert_eq!(class(&record(decision, verdict)), expected, "{decision:?}");
        }
        let outcome = served(&record(Decision::Released, Some(good()))).unwrap();
        assert!((outcome.quality.unwrap() - 0.9).abs() < 1e-6);
        assert_eq!(outcome.safety.unwrap().unsafe_answer, Some(false));
        let mut unchosen = record(Decision::Released, Some(good()));
        unchosen.variant_choice = None;
        assert_eq!(served(&unchosen), None);
    }

    #[test]
    fn a_request_that_upstreams_refuse_is_a_fault_of_what_was_changed() {
        for (status, variant, expected) in [
            (404, "fast", OutcomeClass::Failure),
            (404, DEFAULT_VARIANT, OutcomeClass::Infrastructure),
            (429, "fast", OutcomeClass::Infrastructure),
            (502, "fast", OutcomeClass::Infrastructure),
        ] {
            let mut record = record(Decision::Failed, None);
            (record.status, record.variant) = (status, variant.to_owned());
            assert_eq!(class(&record), Some(expected), "{status} {variant}");
        }
    }

    #[test]
    fn reports_say_success_failure_or_nothing() {
        use OutcomeClass::{Failure, Infrastructure, Success};
        for (text, expected) in [
            (r#"{"success": true}"#, Some(Success)),
            (r#"{"success": false}"#, Some(Failure)),
            (r#"{"success": false, "error_class": "Timeout"}"#, Some(Infrastructure)),
            (r#"{"success": true, "error_class": "timeout"}"#, Some(Success)),
            (r#"{"rating": 3}"#, Some(Success)),
            (r#"{"rating": 2}"#, Some(Failure)),
            (r#"{"error_class": "wrong_answer"}"#, Some(Failure)),
            (r#"{"comment": "thanks"}"#, None),
        ] {
            let text = text.replacen('{', r#"{"response_id": "r","#, 1);
            let report: Outcome = serde_json::from_str(&text).unwrap();
            let lesson = reported(&record(Decision::Released, None), &report, Timestamp::UNIX_EPOCH);
            assert_eq!(lesson.map(|lesson| lesson.outcome.class), expected, "{text}");
        }
    }
}
