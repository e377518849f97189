//! The rows of `safety_evaluations`: one per text of an exchange that the judge read.

use serde::Serialize;
use waltz_exchange::record::{ChoiceRecord, DraftRecord};
use waltz_exchange::{ExchangeRecord, Verdict};

use super::micros;
use crate::evaluations::TextKind;

#[derive(Serialize)]
struct EvaluationRow<'a> {
    id: String,
    exchange_id: &'a str,
    tenant: &'a str,
    subject: Option<&'a str>,
    session_id: &'a str,
    judged_at: i64,
    text_kind: &'static str,
    choice: Option<u32>,
    round: Option<u32>,
    is_unsafe: bool,
    overrefuse: bool,
    degraded: bool,
    blocks: bool,
    state: &'static str,
    level: u8,
    micros: u64,
    prompt_harm: f32,
    response_harm: f32,
    refusal: f32,
    safety_score: f32,
    helpfulness_score: f32,
    categories: String,
    issues: String,
}

/// The rows of an exchange as JSON objects.
pub(super) fn evaluation_rows(record: &ExchangeRecord) -> Result<Vec<String>, serde_json::Error> {
    let mut rows = Vec::new();
    let mut add = |kind: TextKind, choice: Option<u32>, round: Option<u32>, verdict: Option<&Verdict>| {
        if let Some(verdict) = verdict {
            let id = format!("{}.{:04}", record.id, rows.len());
            rows.push(evaluation_row(record, id, kind, choice, round, verdict)?);
        }
        Ok::<(), serde_json::Error>(())
    };
    add(TextKind::Prompt, None, None, record.prompt_verdict.as_ref())?;
    for choice in &record.choices {
        let index = Some(choice.index);
        add(TextKind::Draft, index, Some(0), choice.draft.verdict.as_ref())?;
        if let Some(check) = &choice.self_check {
            add(TextKind::SelfCheck, index, Some(0), check.verdict.as_ref())?;
        }
        for round in &choice.rounds {
            add(TextKind::Revision, index, Some(round.number), round.revision.verdict.as_ref())?;
        }
        if !judged_before(choice) {
            add(TextKind::Final, index, None, choice.final_verdict.as_ref())?;
        }
    }
    Ok(rows)
}

fn evaluation_row(
    record: &ExchangeRecord,
    id: String,
    kind: TextKind,
    choice: Option<u32>,
    round: Option<u32>,
    verdict: &Verdict,
) -> Result<String, serde_json::Error> {
    serde_json::to_string(&EvaluationRow {
        id,
        exchange_id: &record.id,
        tenant: &record.tenant,
        subject: record.subject.as_deref(),
        session_id: &record.session_id,
        judged_at: micros(record.started_at),
        text_kind: kind.as_str(),
        choice,
        round,
        is_unsafe: verdict.is_unsafe,
        overrefuse: verdict.overrefuse,
        degraded: verdict.state.is_degraded(),
        blocks: verdict.blocks,
        state: verdict.state.as_str(),
        level: u8::from(verdict.level),
        micros: verdict.micros,
        prompt_harm: verdict.prompt_harm,
        response_harm: verdict.response_harm,
        refusal: verdict.refusal,
        safety_score: verdict.safety_score,
        helpfulness_score: verdict.helpfulness_score,
        categories: serde_json::to_string(&verdict.categories)?,
        issues: serde_json::to_string(&verdict.issues)?,
    })
}

/// Whether the text that the client got already has a row as a draft or a revision.
fn judged_before(choice: &ChoiceRecord) -> bool {
    let same = |text: &DraftRecord| text.verdict.is_some() && text.text == choice.final_text;
    same(&choice.draft)
        || choice.self_check.as_ref().is_some_and(same)
        || choice.rounds.iter().any(|round| same(&round.revision))
}
