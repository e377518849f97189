//! Safety evaluations: one per text that the judge read, made from the records of exchanges.

mod judged;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::{Category, ExchangeRecord, Issue};

use crate::rows::plain;
use crate::sessions::{MAX_PAGE, record};
use crate::sql::Statement;
use crate::{Cursor, Error, Store, sessions};
pub(crate) use judged::{Findings, findings};
use judged::{Judged, judged};

const ALL: Statement = Statement::both(include_str!("../sql/judged_exchanges.sql"));
const FOUND: Statement = Statement::both(include_str!("../sql/found_exchanges.sql"));

/// Which evaluations to list.
#[derive(Clone, Debug)]
pub struct EvaluationFilter {
    /// Only this tenant's; `None` for all.
    pub tenant: Option<String>,
    /// Only those that say this; `None` for all.
    pub verdict: Option<VerdictFilter>,
    /// The size of a page, at most 1000.
    pub limit: usize,
    /// The cursor of the last evaluation of the page before.
    pub before: Option<Cursor>,
}

impl Default for EvaluationFilter {
    fn default() -> Self {
        Self { tenant: None, verdict: None, limit: 50, before: None }
    }
}

/// What an evaluation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictFilter {
    /// Not harmful, by a complete verdict.
    Safe,
    /// Harmful.
    Unsafe,
    /// Refuses a request that is not harmful.
    OverRefuse,
    /// The feedback model was wanted and gave nothing usable.
    Degraded,
}

/// Which text of an exchange was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextKind {
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

impl TextKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Draft => "draft",
            Self::SelfCheck => "self_check",
            Self::Revision => "revision",
            Self::Final => "final",
        }
    }
}

/// A verdict on one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SafetyEvaluation {
    /// Its key.
    pub id: String,
    /// The exchange that the text belongs to.
    pub exchange_id: String,
    /// Whose data this is.
    pub tenant: String,
    /// The end user, hashed.
    pub subject: Option<String>,
    /// The session of the exchange.
    pub session_id: String,
    /// When the exchange began.
    pub judged_at: Timestamp,
    /// Which text was judged: `prompt`, `draft`, `self_check`, `revision` or `final`.
    pub text_kind: String,
    /// The choice; `None` for the request.
    pub choice: Option<u32>,
    /// The coaching round, 0 for a draft; `None` where there is none.
    pub round: Option<u32>,
    /// The text is harmful.
    #[serde(rename = "unsafe")]
    pub is_unsafe: bool,
    /// The text refuses a request that is not harmful.
    pub overrefuse: bool,
    /// The text must not leave unchanged.
    pub blocks: bool,
    /// The name of the verdict's state, such as `decided` or `judge_timeout`.
    pub state: String,
    /// The level of the judge that decided, 0 to 3.
    pub level: u8,
    /// Time spent on the verdict, in microseconds.
    pub micros: u64,
    /// Harm that the request asks for.
    pub prompt_harm: f64,
    /// Harm in the text itself.
    pub response_harm: f64,
    /// How much the text looks like a refusal.
    pub refusal: f64,
    /// 1 minus the highest category harm.
    pub safety_score: f64,
    /// 1 minus over-refusal, lowered for empty or evasive text.
    pub helpfulness_score: f64,
    /// The highest harm per category.
    pub categories: BTreeMap<Category, f64>,
    /// What was found.
    pub issues: Vec<Issue>,
}

impl SafetyEvaluation {
    /// Where the next page begins when this is the last row of a page.
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.judged_at.as_microsecond(), id: self.id.clone(), tenant: String::new() }
    }
}

impl Store {
    /// Evaluations, newest first: in the order of the ids of their exchanges, which is that of time.
    pub async fn evaluations(&self, filter: EvaluationFilter) -> Result<Vec<SafetyEvaluation>, Error> {
        let EvaluationFilter { tenant, verdict, limit, before } = filter;
        let limit = limit.clamp(1, MAX_PAGE);
        // A page may end in the middle of an exchange, which is then looked at again.
        let (mut newest, mut left) = before.map_or((LAST.to_owned(), usize::MAX), |before| place(before.id));
        let mut page = Vec::new();
        loop {
            // Most exchanges have an evaluation; that of the first may have been on the page before.
            let (tenant, from, most) =
                (tenant.as_deref().into(), newest.as_str().into(), sessions::page(limit) + 1);
            let rows = match verdict.and_then(VerdictFilter::bit) {
                Some(bit) => self.readers.fetch_all(FOUND, &[tenant, from, most.into(), bit.into()]).await,
                None => self.readers.fetch_all(ALL, &[tenant, from, most.into()]).await,
            }
            .map_err(Error::database("list evaluations"))?;
            for row in &rows {
                let record = record(row)?;
                if record.id != newest {
                    left = usize::MAX;
                }
                for (number, text) in judged(&record).iter().enumerate().take(left).rev() {
                    if verdict.is_none_or(|verdict| verdict.fits(text.verdict)) {
                        page.push(evaluation(&record, number, text));
                    }
                    if page.len() == limit {
                        return Ok(page);
                    }
                }
                (newest, left) = (record.id, 0);
            }
            if rows.len() <= limit {
                return Ok(page);
            }
        }
    }
}

/// After every id of an exchange: those begin with a letter.
const LAST: &str = "~";

/// The exchange of an evaluation and its number in it.
fn place(id: String) -> (String, usize) {
    match id.rsplit_once('.').map(|(exchange, number)| (exchange, number.parse())) {
        Some((exchange, Ok(number))) => (exchange.to_owned(), number),
        _ => (id, usize::MAX),
    }
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
        text_kind: kind.as_str().to_owned(),
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
