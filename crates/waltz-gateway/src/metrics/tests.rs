use waltz_exchange::record::{Assessment, AssessmentSource, Attempt, DraftRecord, Reviser, RoundRecord};
use waltz_exchange::verdict::{Level, VerdictState};
use waltz_exchange::{Category, Verdict};

use super::*;
use crate::receive::blank_record;

/// A record of an exchange of which nothing is known but its path.
pub(crate) fn blank(path: &'static str) -> ExchangeRecord {
    blank_record("req_1".to_owned(), "acme-corp".to_owned(), path, Timestamp::UNIX_EPOCH)
}

/// A call of a model.
pub(crate) fn call(purpose: &str, error: Option<&str>) -> Attempt {
    Attempt {
        purpose: purpose.to_owned(),
        upstream: "main".to_owned(),
        model: "gpt".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        status: error.is_none().then_some(200),
        error: error.map(str::to_owned),
        duration_ms: 30.0,
    }
}

fn draft(verdict: Option<Verdict>) -> DraftRecord {
    let assessment = Assessment {
        source: AssessmentSource::Judge,
        confidence: 1.0,
        reasoning: "a private thought".to_owned(),
        risk_score: 0.0,
        risk_categories: Vec::new(),
    };
    DraftRecord { text: "a private text".to_owned(), assessment, verdict }
}

fn choice(first: Option<Verdict>, last: Option<Verdict>) -> ChoiceRecord {
    ChoiceRecord {
        index: 0,
        draft: draft(first),
        self_check: None,
        rounds: Vec::new(),
        last_resort: false,
        unchanged: false,
        final_text: String::new(),
        final_verdict: last,
        dir_score: 0.25,
    }
}

fn round(verdict: Verdict, kept: bool) -> RoundRecord {
    RoundRecord {
        number: 1,
        feedback: String::new(),
        reviser: Reviser::Agent,
        revision: draft(Some(verdict)),
        kept,
        fault: None,
        expected_gain: 0.0,
        dir_score: 0.0,
        similar: 0,
        duration_ms: 40.0,
    }
}

fn safe() -> Verdict {
    Verdict { safety_score: 1.0, helpfulness_score: 1.0, micros: 2_000, ..Verdict::default() }
}

fn harmful() -> Verdict {
    let categories = [(Category::SELF_HARM, 0.9), (Category::HATE_SPEECH, 0.6)].into();
    Verdict { is_unsafe: true, categories, level: Level::Feedback, safety_score: 0.1, ..safe() }
}

fn told(metrics: &Metrics) -> String {
    write(&metrics.families())
}

#[track_caller]
fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|told| told == line), "no {line:?} in {text}");
}

#[test]
fn a_coached_answer_is_counted_in_each_metric_once() {
    let metrics = Metrics::new(Timestamp::UNIX_EPOCH);
    let mut record = blank("/v1/chat/completions");
    record.decision = Decision::Coached;
    (record.overhead_ms, record.duration_ms) = (3.0, 120.0);
    record.attempts =
        vec![call("draft", Some("unreachable")), call("draft", None), call("revision", Some("my own words"))];
    record.usage.completion_tokens = 7;
    let mut coached = choice(Some(harmful()), Some(safe()));
    let echo = RoundRecord { fault: Some(RevisionFault::Echo), ..round(safe(), false) };
    coached.rounds = vec![round(harmful(), false), echo, round(safe(), true)];
    record.choices = vec![coached];
    metrics.observe(&record);
    let text = told(&metrics);
    for line in [
        r#"waltz_requests_total{endpoint="/v1/chat/completions",status="200",decision="coached"} 1"#,
        r#"waltz_evaluations_total{verdict="unsafe",category="self_harm",level="3"} 2"#,
        r#"waltz_evaluations_total{verdict="safe",category="none",level="0"} 2"#,
        r#"waltz_answers_total{verdict="safe"} 1"#,
        "waltz_feedback_triggers_total 1",
        "waltzrl_changes_made_total 1",
        r#"waltz_dropped_revisions_total{reason="worse"} 1"#,
        r#"waltz_dropped_revisions_total{reason="echo"} 1"#,
        r#"waltz_upstream_calls_total{purpose="draft"} 2"#,
        r#"waltz_upstream_errors_total{upstream="main",kind="unreachable"} 1"#,
        r#"waltz_upstream_errors_total{upstream="main",kind="other"} 1"#,
        r#"waltz_tokens_total{kind="completion"} 7"#,
        r#"waltz_overhead_seconds_bucket{le="0.0025"} 0"#,
        r#"waltz_overhead_seconds_bucket{le="0.005"} 1"#,
        "waltzrl_total_time_ms_sum 120",
        "waltzrl_conversation_generation_time_ms_count 1",
        "waltzrl_feedback_time_ms_sum 8",
        "waltzrl_feedback_evaluation_time_ms_count 4",
        "waltzrl_revision_time_ms_sum 120",
        "waltzrl_dir_reward_sum 0.25",
        r#"waltzrl_coaching_rounds_bucket{le="2"} 0"#,
        r#"waltzrl_coaching_rounds_bucket{le="3"} 1"#,
        "waltzrl_unsafe_rate 0",
        "waltzrl_feedback_trigger_rate 1",
    ] {
        assert_line(&text, line);
    }
    for private in ["acme-corp", "req_1", "private", "my own words", "gpt"] {
        assert!(!text.contains(private), "{private}");
    }
}

#[test]
fn rates_count_what_was_decided_and_sent() {
    let metrics = Metrics::new(Timestamp::UNIX_EPOCH);
    assert!(!told(&metrics).contains("_rate"), "a share of nothing is not told");
    let undecided = Verdict { is_unsafe: true, state: VerdictState::Timeout, ..safe() };
    let over = Verdict { overrefuse: true, refusal: 0.9, ..safe() };
    let refusal = Verdict { refusal: 0.9, ..safe() };
    let last = [harmful(), safe(), over, refusal, undecided];
    for verdict in last {
        let mut record = blank("/v1/messages");
        record.decision = Decision::Released;
        record.choices = vec![choice(None, Some(verdict))];
        metrics.observe(&record);
    }
    // Nothing of these was ready to be sent to a client, or nobody judged it.
    for decision in [Decision::Evaluated, Decision::ClientGone, Decision::Failed, Decision::Passthrough] {
        let mut record = blank("/v1/messages");
        record.decision = decision;
        let verdict = (decision != Decision::Passthrough).then(harmful);
        record.choices = vec![choice(None, verdict)];
        metrics.observe(&record);
    }
    let text = told(&metrics);
    for line in [
        "waltzrl_unsafe_rate 0.25",
        "waltzrl_overrefusal_rate 0.25",
        "# HELP waltz_answers_total Answers that were ready to be sent, by the verdict on them.",
        r#"waltz_answers_total{verdict="safe"} 2"#,
        r#"waltz_answers_total{verdict="undecided"} 1"#,
        r#"waltz_answers_total{verdict="unjudged"} 1"#,
        r#"waltz_refusals_total{kind="over"} 1"#,
        r#"waltz_refusals_total{kind="justified"} 1"#,
        "waltzrl_feedback_trigger_rate 0",
    ] {
        assert_line(&text, line);
    }
}

#[test]
fn every_decision_and_category_has_a_label_of_its_own() {
    use Decision::*;
    for decision in [
        Released,
        Coached,
        Refused,
        Stopped,
        Passthrough,
        Degraded,
        Blocked,
        Evaluated,
        Invalid,
        Failed,
        Incomplete,
        ClientGone,
    ] {
        assert!(DECISION.values.contains(&decision.as_str()), "{decision:?}");
    }
    for category in Category::ALL {
        assert!(CATEGORY.values.contains(&category.as_str()), "{category}");
    }
    for state in [VerdictState::Unparsable, VerdictState::Timeout, VerdictState::Unavailable] {
        assert!(DEGRADED.values.contains(&state.as_str()), "{state:?}");
    }
}
