//! Records for tests, the kill test's child and the bench. Every item serves `coached`, so that each
//! program that includes this file uses all of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use waltz_exchange::record::{
    Assessment, AssessmentSource, ChoiceRecord, Context, DraftRecord, Reviser, RoundRecord, RunTask, Scanned,
    Turn, UsageRecord,
};
use waltz_exchange::{Category, Decision, Depth, ExchangeRecord, Issue, Level, Risk, Verdict, id};
use waltz_store::Entry;

/// A fixed time, `seconds` after the first of January 2026.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::constant(1_767_225_600 + seconds, 123_456_000)
}

pub(crate) fn safe() -> Verdict {
    Verdict {
        safety_score: 0.9,
        helpfulness_score: 0.8,
        micros: 40,
        level: Level::Linear,
        ..Verdict::default()
    }
}

pub(crate) fn harmful() -> Verdict {
    Verdict {
        is_unsafe: true,
        blocks: true,
        prompt_harm: 0.3,
        response_harm: 0.7,
        safety_score: 0.3,
        helpfulness_score: 0.8,
        categories: BTreeMap::from([(Category::VIOLENCE_HARM, 0.7), (Category::ILLEGAL_ACTIVITY, 0.2)]),
        issues: vec![Issue {
            category: Category::VIOLENCE_HARM,
            severity: 0.7,
            description: "names a weapon".to_owned(),
            evidence: None,
            mitigation: "leave it out".to_owned(),
        }],
        level: Level::Feedback,
        feedback: "leave the weapon out".to_owned(),
        ..Verdict::default()
    }
}

pub(crate) fn draft(text: &str, verdict: Option<Verdict>) -> DraftRecord {
    DraftRecord {
        text: text.to_owned(),
        assessment: Assessment {
            source: AssessmentSource::Judge,
            confidence: 0.9,
            reasoning: "as the judge says".to_owned(),
            risk_score: 0.1,
            risk_categories: Vec::new(),
        },
        verdict,
    }
}

pub(crate) fn round(number: u32, text: &str, verdict: Verdict, kept: bool, dir_score: f32) -> RoundRecord {
    RoundRecord {
        number,
        feedback: format!("advice {number}"),
        reviser: Reviser::Agent,
        revision: draft(text, Some(verdict)),
        kept,
        fault: None,
        expected_gain: 0.4,
        dir_score,
        similar: 0,
        duration_ms: 12.5,
    }
}

/// An exchange whose first draft was good.
pub(crate) fn released(id: &str, tenant: &str, session: &str, seconds: i64, request: &str) -> ExchangeRecord {
    let choice = ChoiceRecord {
        index: 0,
        draft: draft("Here is how.", Some(safe())),
        self_check: None,
        rounds: Vec::new(),
        last_resort: false,
        unchanged: false,
        final_text: "Here is how.".to_owned(),
        final_verdict: Some(safe()),
        dir_score: 0.0,
    };
    ExchangeRecord {
        id: id.to_owned(),
        session_id: session.to_owned(),
        tenant: tenant.to_owned(),
        subject: Some("user-1".to_owned()),
        endpoint: "/v1/chat/completions".to_owned(),
        traceparent: None,
        streamed: false,
        started_at: at(seconds),
        duration_ms: 321.5,
        overhead_ms: 0.7,
        decision: Decision::Released,
        status: 200,
        error: None,
        degraded: None,
        response_id: Some(id::response_id(id, "51g")),
        upstream_id: None,
        agent: "default".to_owned(),
        route_reason: Some("rule `words` (priority 10): words are the writer's".to_owned()),
        run: Some(RunTask { id: "req_run".to_owned(), task: "write".to_owned() }),
        model: "small".to_owned(),
        variant: "base".to_owned(),
        variant_choice: None,
        program_choice: None,
        request_context: None,
        lesson: None,
        stage: 1,
        task_type: "user_interaction".to_owned(),
        depth: Depth::Flagged,
        risk: Risk::Low,
        scanned: Scanned::default(),
        request_hash: id::request_hash(request),
        user_request: request.to_owned(),
        embedding: None,
        context: Some(Context {
            turns: vec![Turn { speaker: "operator".into(), text: "Be brief.".to_owned() }],
            tools: vec!["search".to_owned()],
        }),
        prompt_verdict: None,
        choices: vec![choice],
        attempts: Vec::new(),
        usage: UsageRecord::default(),
    }
}

/// An exchange that two rounds of coaching brought from harm to a good answer.
pub(crate) fn coached(id: &str, tenant: &str, session: &str, seconds: i64, request: &str) -> ExchangeRecord {
    let mut record = released(id, tenant, session, seconds, request);
    record.decision = Decision::Coached;
    record.prompt_verdict = Some(safe());
    let choice = &mut record.choices[0];
    choice.draft = draft("Use a weapon.", Some(harmful()));
    choice.rounds = vec![
        round(1, "Use a smaller weapon.", harmful(), false, -0.1),
        round(2, "Call a locksmith.", safe(), true, 0.3),
    ];
    choice.final_text = "Call a locksmith.".to_owned();
    choice.dir_score = 0.3;
    record
}

pub(crate) fn exchange(record: ExchangeRecord) -> Entry {
    Entry::Exchange(Box::new(record))
}
