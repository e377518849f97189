//! Writing of prepared entries. The drain task calls [`commit`] with one batch at a time, on the one
//! connection that writes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::LazyLock;
use std::{io, slice};

use serde::Serialize;
use waltz_exchange::embedding::{to_base64, to_bytes};
use waltz_exchange::{Embedding, id};

use crate::database::Writer;
use crate::journal::Position;
use crate::rows::{ExchangeRows, OutcomeRow, PastRow, Prepared, RejectedRow, SessionRow, TotalsRow};
use crate::sql::{ManyRows, Statement, Transaction};
use crate::{Error, similar};

/// The texts differ.
macro_rules! each {
    ($name:literal) => {
        Statement::each(
            include_str!(concat!("../sql/sqlite/", $name, ".sql")),
            include_str!(concat!("../sql/postgres/", $name, ".sql")),
        )
    };
}

static INSERT_EXCHANGES: LazyLock<ManyRows> = LazyLock::new(|| ManyRows::new(each!("insert_exchanges")));
static UPSERT_SESSIONS: LazyLock<ManyRows> = LazyLock::new(|| ManyRows::new(each!("upsert_sessions")));
static UPSERT_TOTALS: LazyLock<ManyRows> =
    LazyLock::new(|| ManyRows::new(Statement::both(include_str!("../sql/upsert_totals.sql"))));
static INSERT_LESSONS: LazyLock<ManyRows> =
    LazyLock::new(|| ManyRows::new(Statement::both(include_str!("../sql/insert_lessons.sql"))));
const INSERT_OUTCOME: Statement = Statement::both(include_str!("../sql/insert_outcome.sql"));
// The next three are kept per gateway in PostgreSQL.
const INSERT_REJECTED: Statement = each!("insert_rejected");
const GET_POSITION: Statement = each!("get_position");
const SET_POSITION: Statement = each!("set_position");
const INSERT_PAST_COACHING: Statement =
    Statement::both(include_str!("../sql/sqlite/insert_past_coaching.sql"));
const INSERT_COACHING_TEXT: Statement =
    Statement::both(include_str!("../sql/sqlite/insert_coaching_text.sql"));
const INSERT_COACHING_VECTOR: Statement =
    Statement::both(include_str!("../sql/sqlite/insert_coaching_vector.sql"));
const INSERT_PAST_COACHINGS: Statement =
    Statement::both(include_str!("../sql/postgres/insert_past_coachings.sql"));

/// Where the database stands.
#[derive(Default)]
pub(crate) struct Stand {
    /// Everything before this place in the journal is in the database.
    pub(crate) drained: Position,
    /// Entries that could not be stored as what they are.
    pub(crate) rejected: u64,
}

/// Why a batch was not committed.
pub(crate) enum Failure {
    /// The database cannot work now; the same batch may succeed later.
    Later(Error),
    /// The database will never take one of the entries.
    Refused(Error),
}

/// Writes a batch and the position after it in one transaction. Whether a commit that was not confirmed
/// took place is not known: the same batch may come again, and every insert lets a known key be.
pub(crate) async fn commit(writer: &mut Writer, batch: &[Prepared], next: Position) -> Result<(), Failure> {
    let outcome = match writer.limit() {
        None => attempt(writer, batch, next).await,
        Some(limit) => tokio::time::timeout(limit, attempt(writer, batch, next)).await.unwrap_or_else(|_| {
            let source = sqlx::Error::Io(io::Error::from(io::ErrorKind::TimedOut));
            Err(Failure::Later(Error::Database { operation: "store journal entries", source }))
        }),
    };
    if let Err(Failure::Later(_)) = &outcome {
        writer.give_up_connection().await;
    }
    outcome
}

/// Reads where the database stands.
pub(crate) async fn stand(writer: &mut Writer) -> Result<Stand, Error> {
    let operation = "read the journal position";
    let instance = writer.instance();
    let mut transaction = writer.begin().await?;
    let rows = transaction
        .fetch_all(GET_POSITION, &[instance.as_str().into()])
        .await
        .map_err(Error::database(operation))?;
    transaction.commit().await.map_err(Error::database(operation))?;
    let Some(row) = rows.first() else {
        // A gateway that is new to this database: all that its journal holds is to be drained.
        return Ok(Stand::default());
    };
    let segment: i64 = row.try_get("segment").map_err(Error::database(operation))?;
    let offset: i64 = row.try_get("position").map_err(Error::database(operation))?;
    let rejected: i64 = row.try_get("rejected").map_err(Error::database(operation))?;
    Ok(Stand {
        drained: Position { segment: segment.cast_unsigned(), offset: offset.cast_unsigned() },
        rejected: rejected.cast_unsigned(),
    })
}

/// How exchanges are inserted.
#[derive(Clone, Copy)]
enum Pace {
    /// Many with one statement, which says how many of them were new.
    Together,
    /// Each with its own, which says whether that one was.
    OneByOne,
}

async fn attempt(writer: &mut Writer, batch: &[Prepared], next: Position) -> Result<(), Failure> {
    match write(writer, batch, next, Pace::Together).await? {
        Written::All => Ok(()),
        Written::Undone => write(writer, batch, next, Pace::OneByOne).await.map(|_| ()),
    }
}

/// What became of a batch.
enum Written {
    All,
    /// Some of its exchanges are there already, and which was not told.
    Undone,
}

async fn write(
    writer: &mut Writer,
    batch: &[Prepared],
    next: Position,
    pace: Pace,
) -> Result<Written, Failure> {
    let instance = writer.instance();
    let mut transaction = writer.begin().await.map_err(Failure::Later)?;
    match insert(&mut transaction, batch, &instance, pace).await {
        Ok(Written::All) => {}
        Ok(Written::Undone) => {
            let undone = transaction.undo().await.map_err(Error::database("store journal entries"));
            return undone.map(|()| Written::Undone).map_err(Failure::Later);
        }
        Err(source) => {
            let lasting = is_lasting(&source);
            let error = Error::Database { operation: "store journal entries", source };
            return Err(if lasting { Failure::Refused(error) } else { Failure::Later(error) });
        }
    }
    let position =
        [next.segment.cast_signed().into(), next.offset.cast_signed().into(), instance.as_str().into()];
    let moved = transaction.execute(SET_POSITION, &position).await;
    moved.map_err(Error::database("store the journal position")).map_err(Failure::Later)?;
    let committed = transaction.commit().await.map_err(Error::database("commit a drain"));
    committed.map(|()| Written::All).map_err(Failure::Later)
}

/// A refusal of the row itself, which no retry can change: a broken constraint, or text that is too
/// large or of the wrong type. SQLite's codes for the latter are 18 and 20; PostgreSQL's begin with 22,
/// 23 and 54.
fn is_lasting(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else {
        return matches!(error, sqlx::Error::Encode(_));
    };
    let code = database.code().unwrap_or_default();
    let of_row = code.len() == 5 && ["22", "23", "54"].iter().any(|class| code.starts_with(class));
    !matches!(database.kind(), sqlx::error::ErrorKind::Other) || of_row || matches!(&*code, "18" | "20")
}

async fn insert(
    transaction: &mut Transaction<'_>,
    batch: &[Prepared],
    instance: &str,
    pace: Pace,
) -> Result<Written, sqlx::Error> {
    let exchanges: Vec<&ExchangeRows> = batch.iter().filter_map(Prepared::exchange).collect();
    // First: what is reported of one looks for it.
    let Some(new) = insert_exchanges(transaction, exchanges, pace).await? else {
        return Ok(Written::Undone);
    };
    insert_following(transaction, &new).await?;
    let mut lessons = Vec::new();
    for prepared in batch {
        match prepared {
            Prepared::Exchange(rows) => lessons.extend(&rows.lesson),
            Prepared::Outcome(row) => {
                insert_outcome(transaction, row).await?;
                lessons.extend(&row.lesson);
            }
            Prepared::Lesson(row) => lessons.push(row),
            Prepared::Rejected(row) => insert_rejected(transaction, row, instance).await?,
        }
    }
    // What is known by its exchange and kind is let be.
    let rows: Vec<_> = lessons.iter().map(|row| row.values()).collect();
    INSERT_LESSONS.run(transaction, &rows).await?;
    Ok(Written::All)
}

/// Returns the exchanges that are new, if that is known.
async fn insert_exchanges<'a>(
    transaction: &mut Transaction<'_>,
    exchanges: Vec<&'a ExchangeRows>,
    pace: Pace,
) -> Result<Option<Vec<&'a ExchangeRows>>, sqlx::Error> {
    let rows: Vec<_> = exchanges.iter().map(|rows| rows.values()).collect();
    match pace {
        Pace::Together => {
            let written = INSERT_EXCHANGES.run(transaction, &rows).await?;
            Ok((written == exchanges.len()).then_some(exchanges))
        }
        Pace::OneByOne => {
            let mut new = Vec::new();
            for (exchange, row) in exchanges.into_iter().zip(&rows) {
                if INSERT_EXCHANGES.run(transaction, slice::from_ref(row)).await? > 0 {
                    new.push(exchange);
                }
            }
            Ok(Some(new))
        }
    }
}

/// Writes what hangs on exchanges that are new. One that was there already has all of it.
async fn insert_following(
    transaction: &mut Transaction<'_>,
    new: &[&ExchangeRows],
) -> Result<(), sqlx::Error> {
    let sessions = summed(new.iter().map(|rows| SessionRow::of(rows)), SessionRow::key, SessionRow::add);
    let rows: Vec<_> = sessions.iter().map(SessionRow::values).collect();
    UPSERT_SESSIONS.run(transaction, &rows).await?;
    insert_past(transaction, new.iter().flat_map(|rows| &rows.past)).await?;
    // All gateways write the same few rows: last, so that they wait for each other as little as can be.
    let totals = summed(new.iter().map(|rows| TotalsRow::of(rows)), TotalsRow::key, TotalsRow::add);
    let rows: Vec<_> = totals.iter().map(TotalsRow::values).collect();
    UPSERT_TOTALS.run(transaction, &rows).await.map(|_| ())
}

/// Rows with one per key, in the order of keys: PostgreSQL takes a row only once per statement, and gateways that write
/// the same rows must lock them in the same order.
fn summed<R, K: Ord>(rows: impl Iterator<Item = R>, key: fn(&R) -> K, add: fn(&mut R, &R)) -> Vec<R> {
    let mut sums: BTreeMap<K, R> = BTreeMap::new();
    for row in rows {
        match sums.entry(key(&row)) {
            Entry::Vacant(place) => _ = place.insert(row),
            Entry::Occupied(mut sum) => add(sum.get_mut(), &row),
        }
    }
    sums.into_values().collect()
}

/// JSON objects as one JSON list.
fn list<'a>(rows: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::from("[");
    for row in rows {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(row);
    }
    text.push(']');
    text
}

fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|source| sqlx::Error::Encode(Box::new(source)))
}

/// Coaching is rare. SQLite's rows go one by one, because it would end a text taken out of JSON at a NUL; to a
/// server every statement is a journey, and PostgreSQL gets a list of texts that are JSON themselves.
async fn insert_past<'a>(
    transaction: &mut Transaction<'_>,
    past: impl Iterator<Item = &'a PastRow>,
) -> Result<(), sqlx::Error> {
    if let Transaction::Sqlite(_) = transaction {
        for row in past {
            insert_past_row(transaction, row).await?;
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for row in past {
        rows.push(json(&serde_json::json!({
            "exchange_id": row.exchange_id,
            "choice": row.choice,
            "tenant": row.tenant,
            "subject": row.subject,
            "request_hash": row.request_hash,
            "user_request": json(&row.user_request)?,
            "feedback": json(&row.feedback)?,
            "accepted": json(&row.accepted)?,
            "dir_score": row.dir_score,
            "words": similar::index_words(&row.tenant, &row.user_request),
            "model": row.embedding.as_ref().map(|embedding| &embedding.model),
            "vector": row.embedding.as_ref().map(|embedding| to_base64(&embedding.vector)),
        }))?);
    }
    if rows.is_empty() {
        return Ok(());
    }
    transaction.execute(INSERT_PAST_COACHINGS, &[list(rows.iter()).as_str().into()]).await
}

async fn insert_past_row(transaction: &mut Transaction<'_>, row: &PastRow) -> Result<(), sqlx::Error> {
    let arguments = [
        row.exchange_id.as_str().into(),
        row.choice.into(),
        row.tenant.as_str().into(),
        row.subject.as_deref().into(),
        row.request_hash.as_str().into(),
        row.user_request.as_str().into(),
        row.feedback.as_str().into(),
        row.accepted.as_str().into(),
        row.dir_score.into(),
    ];
    for added in transaction.fetch_all(INSERT_PAST_COACHING, &arguments).await? {
        let number: i64 = added.try_get("number")?;
        let tenant = similar::tenant_key(&row.tenant);
        let text = [number.into(), tenant.as_str().into(), row.user_request.as_str().into()];
        transaction.execute(INSERT_COACHING_TEXT, &text).await?;
        if let Some(Embedding { model, vector }) = &row.embedding {
            let bytes = to_bytes(vector);
            let vector = [
                number.into(),
                row.tenant.as_str().into(),
                model.as_str().into(),
                row.request_hash.as_str().into(),
                bytes.as_slice().into(),
            ];
            transaction.execute(INSERT_COACHING_VECTOR, &vector).await?;
        }
    }
    Ok(())
}

async fn insert_outcome(transaction: &mut Transaction<'_>, row: &OutcomeRow) -> Result<(), sqlx::Error> {
    let exchange = id::exchange_of_response(&row.response_id);
    let arguments = [
        row.id.as_str().into(),
        row.tenant.as_str().into(),
        row.response_id.as_str().into(),
        row.received_at.into(),
        row.success.into(),
        row.rating.into(),
        row.json.as_str().into(),
        exchange.as_deref().into(),
    ];
    transaction.execute(INSERT_OUTCOME, &arguments).await
}

async fn insert_rejected(
    transaction: &mut Transaction<'_>,
    row: &RejectedRow,
    instance: &str,
) -> Result<(), sqlx::Error> {
    let arguments = [
        row.position.segment.cast_signed().into(),
        row.position.offset.cast_signed().into(),
        row.reason.as_str().into(),
        row.payload.as_str().into(),
        instance.into(),
    ];
    transaction.execute(INSERT_REJECTED, &arguments).await
}
