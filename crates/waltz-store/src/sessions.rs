//! Coaching sessions: all exchanges that a client grouped under one session id.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::record::ChoiceRecord;
use waltz_exchange::{ExchangeRecord, Outcome, id};

use crate::sql::{Row, Statement};
use crate::{Cursor, Error, Store, rows};

const SESSIONS_OF_TENANT: Statement = Statement::both(include_str!("../sql/sessions_of_tenant.sql"));
const SESSIONS_OF_ALL: Statement = Statement::both(include_str!("../sql/sessions_of_all.sql"));
const SESSION: Statement = Statement::both(include_str!("../sql/session.sql"));
const SESSION_EXCHANGES: Statement = Statement::both(include_str!("../sql/session_exchanges.sql"));
const EXCHANGE_OF_RESPONSE: Statement = Statement::both(include_str!("../sql/exchange_of_response.sql"));
const OUTCOMES: Statement = Statement::both(include_str!("../sql/outcomes_of_response.sql"));

/// The most exchanges of one session that are read at once, newest kept.
const MAX_EXCHANGES: i64 = 1000;
/// The most rows of one page.
const MAX_PAGE: usize = 1000;

/// Which sessions to list.
#[derive(Clone, Debug)]
pub struct SessionFilter {
    /// Only this tenant's; `None` for all.
    pub tenant: Option<String>,
    /// The size of a page, at most 1000.
    pub limit: usize,
    /// The cursor of the last session of the page before.
    pub before: Option<Cursor>,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self { tenant: None, limit: 50, before: None }
    }
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Whose data this is.
    pub tenant: String,
    /// The session.
    pub session_id: String,
    /// The end user, hashed.
    pub subject: Option<String>,
    /// When its first exchange began.
    pub started_at: Timestamp,
    /// When its newest exchange began.
    pub last_at: Timestamp,
    /// How many exchanges it has.
    pub exchanges: u64,
    /// How many choices took coaching rounds, whatever came of them.
    pub coached_choices: u64,
    /// Coaching rounds of all of them.
    pub rounds: u64,
    /// Mean shaped score of these choices, before ratings; `None` when there is none.
    pub mean_dir_score: Option<f64>,
    /// Where the next page begins when this is the last session of a page.
    pub cursor: Cursor,
}

/// A session with everything that is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionDetail {
    /// The session.
    pub summary: SessionSummary,
    /// Its exchanges in the order in which they began; of a longer session the newest 1000.
    pub exchanges: Vec<ExchangeDetail>,
}

/// An exchange and what was reported about its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeDetail {
    /// The record: rounds, verdicts, scores.
    pub record: ExchangeRecord,
    /// Reports in the order in which they arrived.
    pub outcomes: Vec<OutcomeRecord>,
    /// The newest rating, 1 to 5.
    pub rating: Option<u8>,
    /// The shaped score of each choice of the record with that rating in it. `dir_score` in the record
    /// is the score before any rating.
    pub rated_dir_scores: Vec<f32>,
}

/// A report as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// The key of the report.
    pub id: String,
    /// When it arrived.
    pub received_at: Timestamp,
    /// What it says.
    pub outcome: Outcome,
}

impl Store {
    /// Sessions, most recently active first. A session that gets a new exchange while somebody pages
    /// moves to the front.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, Error> {
        let SessionFilter { tenant, limit, before } = filter;
        let operation = "list sessions";
        let before = before.unwrap_or_else(Cursor::start);
        let limit = page(limit);
        let (at, id) = (before.at.into(), before.id.as_str().into());
        let found = match &tenant {
            Some(tenant) => {
                let arguments = [tenant.as_str().into(), at, id, limit.into()];
                self.readers.fetch_all(SESSIONS_OF_TENANT, &arguments).await
            }
            None => {
                let arguments = [at, id, before.tenant.as_str().into(), limit.into()];
                self.readers.fetch_all(SESSIONS_OF_ALL, &arguments).await
            }
        };
        let rows = found.map_err(Error::database(operation))?;
        let summaries: Result<Vec<_>, sqlx::Error> = rows.iter().map(summary).collect();
        summaries.map_err(Error::database(operation))
    }

    /// One session, or `None` when the tenant has none of that id. Without a tenant, and where several
    /// tenants used the same id, the most recently active one.
    pub async fn session(
        &self,
        tenant: Option<&str>,
        session_id: &str,
    ) -> Result<Option<SessionDetail>, Error> {
        let operation = "read a session";
        let found = self
            .readers
            .fetch_optional(SESSION, &[session_id.into(), tenant.into()])
            .await
            .map_err(Error::database(operation))?;
        let Some(row) = found else {
            return Ok(None);
        };
        let summary = summary(&row).map_err(Error::database(operation))?;
        let arguments = [session_id.into(), summary.tenant.as_str().into(), MAX_EXCHANGES.into()];
        let rows = self
            .readers
            .fetch_all(SESSION_EXCHANGES, &arguments)
            .await
            .map_err(Error::database(operation))?;
        let mut exchanges = Vec::with_capacity(rows.len());
        for row in rows.iter().rev() {
            exchanges.push(self.exchange_detail(&summary.tenant, row).await?);
        }
        Ok(Some(SessionDetail { summary, exchanges }))
    }

    /// The exchange whose answer has that id, of `tenant` where one is given; none when no such answer is in the
    /// database.
    pub async fn exchange_of_response(
        &self,
        tenant: Option<&str>,
        response_id: &str,
    ) -> Result<Option<ExchangeRecord>, Error> {
        let operation = "look for a response";
        let Some(exchange) = id::exchange_of_response(response_id) else { return Ok(None) };
        let arguments = [exchange.as_str().into(), response_id.into(), tenant.into()];
        let found = self.readers.fetch_optional(EXCHANGE_OF_RESPONSE, &arguments).await;
        let Some(row) = found.map_err(Error::database(operation))? else { return Ok(None) };
        record(&row).map(Some)
    }

    async fn exchange_detail(&self, tenant: &str, row: &Row) -> Result<ExchangeDetail, Error> {
        let operation = "read an exchange";
        let response_id: Option<String> = row.try_get("response_id").map_err(Error::database(operation))?;
        let record = record(row)?;
        let outcomes = match response_id {
            Some(response_id) => self.outcomes(tenant, &response_id).await?,
            None => Vec::new(),
        };
        let rating = outcomes.iter().rev().find_map(|record: &OutcomeRecord| record.outcome.rating);
        let rated_dir_scores =
            record.choices.iter().map(|choice| rows::rated(choice.dir_score, rating)).collect();
        Ok(ExchangeDetail { record, outcomes, rating, rated_dir_scores })
    }

    async fn outcomes(&self, tenant: &str, response_id: &str) -> Result<Vec<OutcomeRecord>, Error> {
        let operation = "read outcomes";
        let rows = self
            .readers
            .fetch_all(OUTCOMES, &[response_id.into(), tenant.into()])
            .await
            .map_err(Error::database(operation))?;
        let mut outcomes = Vec::with_capacity(rows.len());
        for row in rows {
            let id: String = row.try_get("id").map_err(Error::database(operation))?;
            let received_at = time(&row, "received_at").map_err(Error::database(operation))?;
            let json: &str = row.try_get("outcome").map_err(Error::database(operation))?;
            let outcome = serde_json::from_str(json).map_err(|source| Error::Decode {
                what: "outcome",
                id: id.clone(),
                source,
            })?;
            outcomes.push(OutcomeRecord { id, received_at, outcome });
        }
        Ok(outcomes)
    }
}

/// Reads a record as a whole.
pub(crate) fn record(row: &Row) -> Result<ExchangeRecord, Error> {
    let operation = "read an exchange";
    let id: String = row.try_get("id").map_err(Error::database(operation))?;
    let json: &str = row.try_get("record").map_err(Error::database(operation))?;
    let mut record: ExchangeRecord =
        serde_json::from_str(json).map_err(|source| Error::Decode { what: "exchange", id, source })?;
    record.choices.iter_mut().for_each(ChoiceRecord::restore_repeated);
    Ok(record)
}

/// A page size as the database wants it.
pub(crate) fn page(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, MAX_PAGE)).unwrap_or(1)
}

/// Reads a time column.
pub(crate) fn time(row: &Row, column: &'static str) -> Result<Timestamp, sqlx::Error> {
    let micros: i64 = row.try_get(column)?;
    Timestamp::from_microsecond(micros)
        .map_err(|source| sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(source) })
}

/// Reads a count column.
pub(crate) fn count(row: &Row, column: &'static str) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn summary(row: &Row) -> Result<SessionSummary, sqlx::Error> {
    let tenant: String = row.try_get("tenant")?;
    let session_id: String = row.try_get("session_id")?;
    let coached_choices = count(row, "coached_choices")?;
    let dir_score_sum: f64 = row.try_get("dir_score_sum")?;
    let cursor = Cursor { at: row.try_get("last_at")?, id: session_id.clone(), tenant: tenant.clone() };
    Ok(SessionSummary {
        tenant,
        session_id,
        subject: row.try_get("subject")?,
        started_at: time(row, "started_at")?,
        last_at: time(row, "last_at")?,
        exchanges: count(row, "exchanges")?,
        coached_choices,
        rounds: count(row, "rounds")?,
        mean_dir_score: (coached_choices > 0).then(|| dir_score_sum / coached_choices as f64),
        cursor,
    })
}
