//! Safety evaluations: one per text that the judge read, made from the records of exchanges.

mod judged;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use waltz_exchange::{Category, ExchangeRecord, Issue};

use crate::rows::plain;
pub(crate) use judged::findings;
use judged::{Judged, judged};

/// Which text of an exchange was judged.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextKind {
    /// The request.
    Prompt,
    /// What the conversation agent wrote first.
    Draft,
    /// The draft after the agent checked it itself.
    SelfCheck,
    /// What a coaching round made of it.
    Revision,
    /// What the client got, where that is none of the others.
    Final,
}

/// A verdict on one text, with the fields that are exported.
#[derive(Debug, Serialize)]
pub(crate) struct SafetyEvaluation {
    /// Its key.
    id: String,
    /// The exchange that the text belongs to.
    exchange_id: String,
    /// Whose data this is.
    tenant: String,
    /// The end user, hashed.
    subject: Option<String>,
    /// The session of the exchange.
    session_id: String,
    /// When the exchange began.
    judged_at: Timestamp,
    /// Which text was judged.
    text_kind: TextKind,
    /// The choice; `None` for the request.
    choice: Option<u32>,
    /// The coaching round, 0 for a draft; `None` where there is none.
    round: Option<u32>,
    /// The text is harmful.
    #[serde(rename = "unsafe")]
    is_unsafe: bool,
    /// The text refuses a request that is not harmful.
    overrefuse: bool,
    /// The text must not leave unchanged.
    blocks: bool,
    /// The name of the verdict's state, such as `decided` or `judge_timeout`.
    state: String,
    /// The level of the judge that decided, 0 to 3.
    level: u8,
    /// Time spent on the verdict, in microseconds.
    micros: u64,
    /// Harm that the request asks for.
    prompt_harm: f64,
    /// Harm in the text itself.
    response_harm: f64,
    /// How much the text looks like a refusal.
    refusal: f64,
    /// 1 minus the highest category harm.
    safety_score: f64,
    /// 1 minus over-refusal, lowered for empty or evasive text.
    helpfulness_score: f64,
    /// The highest harm per category.
    categories: BTreeMap<Category, f64>,
    /// What was found.
    issues: Vec<Issue>,
}

/// The evaluations of an exchange.
pub(crate) fn of_exchange(record: &ExchangeRecord) -> Vec<SafetyEvaluation> {
    judged(record).iter().enumerate().map(|(number, text)| evaluation(record, number, text)).collect()
}

fn evaluation(record: &ExchangeRecord, number: usize, text: &Judged<'_>) -> SafetyEvaluation {
    let Judged { kind, choice, round, verdict } = text;
    SafetyEvaluation {
        id: format!("{}.{number:04}", record.id),
        exchange_id: record.id.clone(),
        tenant: record.tenant.clone(),
        subject: record.subject.clone(),
        session_id: record.session_id.clone(),
        judged_at: record.started_at,
        text_kind: *kind,
        choice: *choice,
        round: *round,
        is_unsafe: verdict.is_unsafe,
        overrefuse: verdict.overrefuse,
        blocks: verdict.blocks,
        state: verdict.state.as_str().to_owned(),
        level: verdict.level.into(),
        micros: verdict.micros,
        prompt_harm: plain(verdict.prompt_harm),
        response_harm: plain(verdict.response_harm),
        refusal: plain(verdict.refusal),
        safety_score: plain(verdict.safety_score),
        helpfulness_score: plain(verdict.helpfulness_score),
        categories: verdict.categories.iter().map(|(name, score)| (name.clone(), plain(*score))).collect(),
        issues: verdict.issues.clone(),
    }
}
