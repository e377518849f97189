//! What an exchange, or a report on one, teaches about the variant that answered.

use jiff::Timestamp;
use waltz_exchange::openai::ApiError;
use waltz_exchange::record::{ChoiceRecord, Decision, ExchangeRecord};
use waltz_exchange::variant::{
    Lesson, LessonKind, Modification, OutcomeClass, SafetyOutcome, VariantOutcome,
};
use waltz_exchange::{Outcome, Verdict, id};

/// What the judge says came of an answer. A variant is measured by its draft: what coaching made good is not its
/// merit. `blamed` says that an upstream refused what the variant has changed. None where no variant was chosen,
/// or nothing was answered or judged, or the request itself was at fault.
pub fn served(record: &ExchangeRecord, blamed: bool) -> Option<VariantOutcome> {
    record.variant_choice.as_ref()?;
    judged(record, &record.variant, blamed)
}

/// The same for a version of whatever competes.
pub(super) fn judged(record: &ExchangeRecord, variant: &str, blamed: bool) -> Option<VariantOutcome> {
    let verdicts: Vec<&Verdict> =
        record.choices.iter().filter_map(|choice| choice.draft.verdict.as_ref()).collect();
    let class = match record.decision {
        Decision::Blocked | Decision::Invalid | Decision::ClientGone | Decision::Evaluated => return None,
        // Harm that was found is the variant's, whoever else disagreed or failed.
        _ if verdicts.iter().any(|verdict| verdict.is_unsafe) => OutcomeClass::Failure,
        Decision::Failed if blamed => OutcomeClass::Failure,
        // A client could otherwise roll a variant back with requests that nobody can answer.
        Decision::Failed if faults_request(record.status) => return None,
        Decision::Failed | Decision::Incomplete | Decision::Degraded => OutcomeClass::Infrastructure,
        _ if verdicts.is_empty() => return None,
        _ if verdicts.iter().any(|verdict| verdict.state.is_degraded()) => OutcomeClass::Infrastructure,
        // What was replaced was no good answer, even where no harm was found in it.
        Decision::Coached | Decision::Refused => OutcomeClass::Failure,
        _ if verdicts.iter().all(|verdict| verdict.is_satisfactory()) => OutcomeClass::Success,
        _ => OutcomeClass::Failure,
    };
    let score = |verdict: &&Verdict| f64::from(verdict.safety_score + verdict.helpfulness_score) / 2.0;
    let quality = verdicts.iter().map(score).sum::<f64>() / verdicts.len() as f64;
    let last_resorts = record.choices.iter().filter(|choice| choice.last_resort).count();
    Some(VariantOutcome {
        variant: variant.to_owned(),
        class,
        quality: (!verdicts.is_empty()).then(|| quality.clamp(0.0, 1.0)),
        duration_ms: record.duration_ms,
        errors: u32::try_from(last_resorts).unwrap_or(u32::MAX),
        subject: Some(subject(record)),
        context: record.request_context.clone().unwrap_or_default(),
        safety: safety(record),
    })
}

/// What a request that rules did not let through says of those rules: that they flagged it.
pub(super) fn blocked(record: &ExchangeRecord, variant: &str) -> VariantOutcome {
    VariantOutcome {
        variant: variant.to_owned(),
        class: OutcomeClass::Failure,
        quality: None,
        duration_ms: record.duration_ms,
        errors: 0,
        subject: Some(subject(record)),
        context: record.request_context.clone().unwrap_or_default(),
        safety: Some(SafetyOutcome {
            unsafe_answer: None,
            overrefused: None,
            feedback_triggered: true,
            overhead_ms: record.overhead_ms,
            critical: false,
        }),
    }
}

/// Whether a status says that the request is at fault, and not whoever had to answer it.
fn faults_request(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 401 | 403 | 408 | 409 | 429)
}

/// Whether an upstream's error is the fault of a patch: it does not know the model, or names a parameter, that the patch
/// has set.
pub(crate) fn blames(error: &ApiError, patch: &[Modification]) -> bool {
    if !faults_request(error.status) {
        return false;
    }
    let named = |name: &str| {
        let rest = error.param.as_deref().and_then(|param| param.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    patch.iter().any(|change| match change {
        Modification::Model(_) => error.status == 404 || named("model"),
        Modification::Parameter(change) => named(&change.parameter),
        Modification::Prompt(_) => false,
    })
}

/// Whose outcome it is, so that nobody decides for all: the end user, or else the session, of this tenant.
fn subject(record: &ExchangeRecord) -> String {
    let who = record.subject.as_deref().unwrap_or(&record.session_id);
    id::sha256_hex(format!("{}\u{1f}{who}", record.tenant).as_bytes())
}

/// What judges said of the answer as the client got it.
fn safety(record: &ExchangeRecord) -> Option<SafetyOutcome> {
    let verdicts: Vec<&Verdict> = record.choices.iter().filter_map(ChoiceRecord::verdict).collect();
    if verdicts.is_empty() {
        return None;
    }
    let (unsafe_answer, overrefused) = rates(record.prompt_verdict.as_ref(), &verdicts);
    Some(SafetyOutcome {
        unsafe_answer,
        overrefused,
        feedback_triggered: record.choices.iter().any(|choice| !choice.rounds.is_empty()),
        overhead_ms: record.overhead_ms,
        critical: record.scanned.late_violation,
    })
}

/// What counts for the rate of harmful answers, which is one of harmful prompts, and for the rate of needless refusals,
/// which is one of harmless prompts. Harm that was found counts; that none was found counts only where the judge could
/// do its work.
pub(super) fn rates(prompt: Option<&Verdict>, answers: &[&Verdict]) -> (Option<bool>, Option<bool>) {
    let undecided = answers.iter().any(|verdict| verdict.state.is_degraded());
    let found = |found: bool| (found || !undecided).then_some(found);
    match prompt {
        Some(prompt) if prompt.is_unsafe => (found(answers.iter().any(|verdict| verdict.is_unsafe)), None),
        Some(prompt) if !prompt.state.is_degraded() => {
            (None, found(answers.iter().any(|verdict| verdict.overrefuse)))
        }
        _ => (None, None),
    }
}

/// What a client's report teaches. None where no variant was chosen, the report says neither success nor failure, or it
/// praises a reply of waltz's own, which is no merit of the variant's.
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
    if class == OutcomeClass::Success && record.choices.iter().any(|choice| choice.last_resort) {
        return None;
    }
    let outcome = VariantOutcome {
        variant: record.variant.clone(),
        class,
        quality: rated,
        duration_ms: report.duration_ms.map_or(record.duration_ms, |milliseconds| milliseconds as f64),
        errors: u32::from(report.error_class.is_some()),
        subject: Some(subject(record)),
        context: record.request_context.clone().unwrap_or_default(),
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
    use waltz_exchange::VerdictState;
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
        served(record, false).map(|outcome| outcome.class)
    }

    #[test]
    fn a_variant_is_measured_by_its_draft() {
        use OutcomeClass::{Failure, Infrastructure, Success};
        let harmful = Verdict { is_unsafe: true, ..good() };
        let timed_out = Verdict { state: VerdictState::Timeout, ..good() };
        let disputed = Verdict { state: VerdictState::Disagreement, ..harmful.clone() };
        let unheard = Verdict { state: VerdictState::Timeout, ..harmful.clone() };
        for (decision, verdict, expected) in [
            (Decision::Released, Some(good()), Some(Success)),
            (Decision::Passthrough, Some(good()), Some(Success)),
            (Decision::Coached, Some(harmful.clone()), Some(Failure)),
            (Decision::Refused, Some(harmful.clone()), Some(Failure)),
            (Decision::Stopped, Some(harmful), Some(Failure)),
            // The judge found nothing wrong, and yet something else was sent: a reply of ours, or a revision.
            (Decision::Refused, Some(good()), Some(Failure)),
            (Decision::Coached, Some(good()), Some(Failure)),
            (Decision::Released, Some(timed_out), Some(Infrastructure)),
            // A rule is sure of harm, and the feedback model is not, or says nothing.
            (Decision::Coached, Some(disputed), Some(Failure)),
            (Decision::Degraded, Some(unheard), Some(Failure)),
            (Decision::Degraded, Some(good()), Some(Infrastructure)),
            (Decision::Failed, None, Some(Infrastructure)),
            (Decision::Incomplete, None, Some(Infrastructure)),
            (Decision::Passthrough, None, None),
            (Decision::Blocked, None, None),
            (Decision::ClientGone, None, None),
        ] {
            assert_eq!(class(&record(decision, verdict)), expected, "{decision:?}");
        }
        let outcome = served(&record(Decision::Released, Some(good())), false).unwrap();
        assert!((outcome.quality.unwrap() - 0.9).abs() < 1e-6);
        let mut unchosen = record(Decision::Released, Some(good()));
        unchosen.variant_choice = None;
        assert_eq!(served(&unchosen, false), None);
    }

    #[test]
    fn harm_is_a_rate_of_harmful_prompts_and_refusal_one_of_harmless_ones() {
        let (harmful, harmless) = (Verdict { is_unsafe: true, ..good() }, good());
        let refusal = Verdict { overrefuse: true, ..good() };
        let unheard = |verdict: &Verdict| Verdict { state: VerdictState::Timeout, ..verdict.clone() };
        for (prompt, answer, expected) in [
            (Some(&harmful), &harmful, (Some(true), None)),
            (Some(&harmful), &harmless, (Some(false), None)),
            (Some(&harmless), &harmful, (None, Some(false))),
            (Some(&harmless), &refusal, (None, Some(true))),
            // Nobody could say that all is well; what was found was found.
            (Some(&harmful), &unheard(&harmless), (None, None)),
            (Some(&harmful), &unheard(&harmful), (Some(true), None)),
            (Some(&unheard(&harmless)), &refusal, (None, None)),
            (Some(&unheard(&harmful)), &harmful, (Some(true), None)),
            (None, &harmful, (None, None)),
        ] {
            assert_eq!(rates(prompt, &[answer]), expected, "{prompt:?} {answer:?}");
            let mut record = record(Decision::Released, Some(answer.clone()));
            record.prompt_verdict = prompt.cloned();
            let safety = safety(&record).unwrap();
            assert_eq!((safety.unsafe_answer, safety.overrefused), expected);
        }
    }

    #[test]
    fn a_request_that_upstreams_refuse_is_a_fault_of_what_was_changed_alone() {
        use OutcomeClass::{Failure, Infrastructure};
        let of = |json: &str| -> Vec<Modification> { serde_json::from_str(json).unwrap() };
        let (model, cooler) = (r#"[{"model": "fast"}]"#, r#"[{"parameter": "temperature", "value": 9}]"#);
        for (status, param, patch, expected) in [
            (404, None, model, Some(Failure)),
            (400, Some("model"), model, Some(Failure)),
            (400, Some("temperature"), cooler, Some(Failure)),
            // The request is at fault, and nobody learns from it.
            (404, None, cooler, None),
            (400, None, model, None),
            (413, None, model, None),
            (422, Some("messages"), cooler, None),
            (400, Some("temperature_of_tea"), cooler, None),
            (404, None, "[]", None),
            (429, None, model, Some(Infrastructure)),
            (502, Some("temperature"), cooler, Some(Infrastructure)),
        ] {
            let mut error = ApiError::invalid("no", param);
            error.status = status;
            let mut record = record(Decision::Failed, None);
            record.status = status;
            let outcome = served(&record, blames(&error, &of(patch)));
            assert_eq!(outcome.map(|outcome| outcome.class), expected, "{status} {param:?} {patch}");
        }
    }

    #[test]
    fn a_subject_is_one_tenants_end_user_or_else_its_session() {
        let subject = |tenant: &str, user: Option<&str>, session: &str| {
            let mut record = record(Decision::Released, Some(good()));
            (record.tenant, record.session_id) = (tenant.to_owned(), session.to_owned());
            record.subject = user.map(str::to_owned);
            let report: Outcome = serde_json::from_str(r#"{"response_id": "r", "success": true}"#).unwrap();
            let reported = reported(&record, &report, Timestamp::UNIX_EPOCH).unwrap().outcome.subject;
            assert_eq!(reported, served(&record, false).unwrap().subject, "the same on both sides");
            reported.unwrap()
        };
        let one = subject("acme", Some("ann"), "s1");
        assert_eq!(one, subject("acme", Some("ann"), "s2"));
        for other in [
            subject("bolt", Some("ann"), "s1"),
            subject("acme", Some("bob"), "s1"),
            subject("acme", None, "s1"),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(subject("acme", None, "s1"), subject("acme", None, "s1"));
        assert_ne!(subject("acme", None, "s1"), subject("acme", None, "s2"));
        assert_ne!(subject("acme", None, "s1"), subject("bolt", None, "s1"));
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
            let mut canned = record(Decision::Refused, Some(good()));
            canned.choices[0].last_resort = true;
            let lesson = reported(&canned, &report, Timestamp::UNIX_EPOCH);
            let expected = expected.filter(|class| *class != Success);
            assert_eq!(lesson.map(|lesson| lesson.outcome.class), expected, "of a reply of ours: {text}");
        }
    }
}
