//! The rows of `safety_evaluations`: one per text of an exchange that the judge read.

use waltz_exchange::record::{ChoiceRecord, DraftRecord};
use waltz_exchange::{ExchangeRecord, Verdict};

use super::{micros, plain};
use crate::evaluations::TextKind;
use crate::sql::Value;

/// One judged text. What it shares with its exchange is not repeated here.
#[derive(Debug)]
pub(crate) struct EvaluationRow {
    id: String,
    text_kind: &'static str,
    choice: Option<i64>,
    round: Option<i64>,
    is_unsafe: bool,
    overrefuse: bool,
    degraded: bool,
    blocks: bool,
    state: &'static str,
    level: u8,
    micros: i64,
    scores: [f64; 5],
    categories: String,
    issues: String,
}

impl EvaluationRow {
    /// The row of `safety_evaluations`.
    pub(crate) fn values<'a>(&'a self, exchange: &'a ExchangeRecord) -> [Value<'a>; 23] {
        let [prompt_harm, response_harm, refusal, safety_score, helpfulness_score] = self.scores;
        [
            self.id.as_str().into(),
            exchange.id.as_str().into(),
            exchange.tenant.as_str().into(),
            exchange.subject.as_deref().into(),
            exchange.session_id.as_str().into(),
            micros(exchange.started_at).into(),
            self.text_kind.into(),
            self.choice.into(),
            self.round.into(),
            Some(self.is_unsafe).into(),
            Some(self.overrefuse).into(),
            Some(self.degraded).into(),
            Some(self.blocks).into(),
            self.state.into(),
            i64::from(self.level).into(),
            self.micros.into(),
            prompt_harm.into(),
            response_harm.into(),
            refusal.into(),
            safety_score.into(),
            helpfulness_score.into(),
            self.categories.as_str().into(),
            self.issues.as_str().into(),
        ]
    }
}

/// The rows of an exchange.
pub(super) fn evaluation_rows(record: &ExchangeRecord) -> Result<Vec<EvaluationRow>, serde_json::Error> {
    let mut rows = Vec::new();
    let mut add = |kind: TextKind, choice: Option<u32>, round: Option<u32>, verdict: Option<&Verdict>| {
        if let Some(verdict) = verdict {
            let id = format!("{}.{:04}", record.id, rows.len());
            rows.push(evaluation_row(id, kind, choice, round, verdict)?);
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
            add(TextKind::Final, index, None, choice.verdict())?;
        }
    }
    Ok(rows)
}

fn evaluation_row(
    id: String,
    kind: TextKind,
    choice: Option<u32>,
    round: Option<u32>,
    verdict: &Verdict,
) -> Result<EvaluationRow, serde_json::Error> {
    let Verdict { prompt_harm, response_harm, refusal, safety_score, helpfulness_score, .. } = verdict;
    Ok(EvaluationRow {
        id,
        text_kind: kind.as_str(),
        choice: choice.map(i64::from),
        round: round.map(i64::from),
        is_unsafe: verdict.is_unsafe,
        overrefuse: verdict.overrefuse,
        degraded: verdict.state.is_degraded(),
        blocks: verdict.blocks,
        state: verdict.state.as_str(),
        level: u8::from(verdict.level),
        micros: i64::try_from(verdict.micros).unwrap_or(i64::MAX),
        scores: [prompt_harm, response_harm, refusal, safety_score, helpfulness_score]
            .map(|score| plain(*score)),
        categories: serde_json::to_string(&verdict.categories)?,
        issues: serde_json::to_string(&verdict.issues)?,
    })
}

/// Whether the text that the client got already has a row as a draft or a revision.
fn judged_before(choice: &ChoiceRecord) -> bool {
    let same = |text: &DraftRecord| text.verdict.is_some() && text.text == choice.answered();
    same(&choice.draft)
        || choice.self_check.as_ref().is_some_and(same)
        || choice.rounds.iter().any(|round| same(&round.revision))
}
