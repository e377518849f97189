//! Safety evaluations: one row per text that the judge read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::{Category, Issue};

use crate::sessions::{page, time};
use crate::sql::{Row, Statement};
use crate::{Cursor, Error, Store};

const EVALUATIONS: Statement = Statement::both(include_str!("../sql/evaluations.sql"));

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

impl VerdictFilter {
    fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Unsafe => "unsafe",
            Self::OverRefuse => "overrefuse",
            Self::Degraded => "degraded",
        }
    }
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

/// A verdict on one text, as it is stored.
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
    /// Evaluations, newest first.
    pub async fn evaluations(&self, filter: EvaluationFilter) -> Result<Vec<SafetyEvaluation>, Error> {
        let EvaluationFilter { tenant, verdict, limit, before } = filter;
        let before = before.unwrap_or_else(Cursor::start);
        let arguments = [
            tenant.as_deref().into(),
            before.at.into(),
            before.id.as_str().into(),
            verdict.map(VerdictFilter::as_str).into(),
            page(limit).into(),
        ];
        let rows = self
            .readers
            .fetch_all(EVALUATIONS, &arguments)
            .await
            .map_err(Error::database("list evaluations"))?;
        rows.iter().map(evaluation).collect()
    }
}

/// Reads one row of the table.
pub(crate) fn evaluation(row: &Row) -> Result<SafetyEvaluation, Error> {
    let id: String = row.try_get("id").map_err(Error::database("read an evaluation"))?;
    let (partial, categories, issues) = columns(row, id).map_err(Error::database("read an evaluation"))?;
    let decode = |source| Error::Decode { what: "evaluation", id: partial.id.clone(), source };
    let categories = serde_json::from_str(&categories).map_err(decode)?;
    let issues = serde_json::from_str(&issues).map_err(decode)?;
    Ok(SafetyEvaluation { categories, issues, ..partial })
}

fn columns(row: &Row, id: String) -> Result<(SafetyEvaluation, String, String), sqlx::Error> {
    let partial = SafetyEvaluation {
        id,
        exchange_id: row.try_get("exchange_id")?,
        tenant: row.try_get("tenant")?,
        subject: row.try_get("subject")?,
        session_id: row.try_get("session_id")?,
        judged_at: time(row, "judged_at")?,
        text_kind: row.try_get("text_kind")?,
        choice: small(row, "choice")?,
        round: small(row, "round")?,
        is_unsafe: row.try_get("is_unsafe")?,
        overrefuse: row.try_get("overrefuse")?,
        blocks: row.try_get("blocks")?,
        state: row.try_get("state")?,
        level: u8::try_from(row.try_get::<i64>("level")?).unwrap_or(0),
        micros: row.try_get::<i64>("micros")?.cast_unsigned(),
        prompt_harm: row.try_get("prompt_harm")?,
        response_harm: row.try_get("response_harm")?,
        refusal: row.try_get("refusal")?,
        safety_score: row.try_get("safety_score")?,
        helpfulness_score: row.try_get("helpfulness_score")?,
        categories: BTreeMap::new(),
        issues: Vec::new(),
    };
    Ok((partial, row.try_get("categories")?, row.try_get("issues")?))
}

fn small(row: &Row, column: &'static str) -> Result<Option<u32>, sqlx::Error> {
    let number: Option<i64> = row.try_get(column)?;
    Ok(number.and_then(|number| u32::try_from(number).ok()))
}
