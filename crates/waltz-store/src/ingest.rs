//! Writing of prepared entries. The drain task calls [`commit`] with one batch at a time, on the one
//! connection that writes.

use std::collections::HashSet;

use sqlx::sqlite::SqlitePool;
use sqlx::{Row as _, Sqlite, Transaction};

use crate::journal::Position;
use crate::rows::{ExchangeRows, OutcomeRow, PastRow, Prepared, RejectedRow};
use crate::{Error, similar};

/// Where the database stands.
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

/// Writes a batch and the position after it in one transaction. Each table takes its rows as one JSON
/// list: a statement per row would spend most of its time on the way to the thread of the connection.
pub(crate) async fn commit(pool: &SqlitePool, batch: &[Prepared], next: Position) -> Result<(), Failure> {
    let begin = pool.begin_with("BEGIN IMMEDIATE").await;
    let mut transaction = begin.map_err(Error::database("begin a drain")).map_err(Failure::Later)?;
    if let Err(source) = insert(&mut transaction, batch).await {
        let lasting = is_lasting(&source);
        let error = Error::Database { operation: "store journal entries", source };
        return Err(if lasting { Failure::Refused(error) } else { Failure::Later(error) });
    }
    let moved = sqlx::query(include_str!("../sql/set_position.sql"))
        .bind(next.segment.cast_signed())
        .bind(next.offset.cast_signed())
        .execute(&mut *transaction)
        .await;
    moved.map_err(Error::database("store the journal position")).map_err(Failure::Later)?;
    transaction.commit().await.map_err(Error::database("commit a drain")).map_err(Failure::Later)
}

/// Reads where the database stands.
pub(crate) async fn stand(pool: &SqlitePool) -> Result<Stand, Error> {
    let operation = "read the journal position";
    let row = sqlx::query(include_str!("../sql/get_position.sql"))
        .fetch_one(pool)
        .await
        .map_err(Error::database(operation))?;
    let segment: i64 = row.try_get("segment").map_err(Error::database(operation))?;
    let offset: i64 = row.try_get("position").map_err(Error::database(operation))?;
    let rejected: i64 = row.try_get("rejected").map_err(Error::database(operation))?;
    Ok(Stand {
        drained: Position { segment: segment.cast_unsigned(), offset: offset.cast_unsigned() },
        rejected: rejected.cast_unsigned(),
    })
}

/// A refusal of the row itself, which no retry can change: a broken constraint, or text that is too
/// large (18) or of the wrong type (20).
fn is_lasting(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else {
        return matches!(error, sqlx::Error::Encode(_));
    };
    !matches!(database.kind(), sqlx::error::ErrorKind::Other)
        || matches!(database.code().as_deref(), Some("18" | "20"))
}

async fn insert(transaction: &mut Transaction<'_, Sqlite>, batch: &[Prepared]) -> Result<(), sqlx::Error> {
    let mut exchanges = Vec::new();
    for prepared in batch {
        match prepared {
            Prepared::Exchange(rows) => exchanges.push(&**rows),
            Prepared::Outcome(row) => insert_outcome(transaction, row).await?,
            Prepared::Rejected(row) => insert_rejected(transaction, row).await?,
        }
    }
    if exchanges.is_empty() { Ok(()) } else { insert_exchanges(transaction, &exchanges).await }
}

async fn insert_exchanges(
    transaction: &mut Transaction<'_, Sqlite>,
    exchanges: &[&ExchangeRows],
) -> Result<(), sqlx::Error> {
    let inserted: Vec<String> = sqlx::query_scalar(include_str!("../sql/insert_exchanges.sql"))
        .bind(list(exchanges.iter().map(|rows| &rows.exchange)))
        .fetch_all(&mut **transaction)
        .await?;
    // An exchange that was there already has everything that hangs on it; of two with the same id in
    // one batch the first was inserted.
    let mut inserted: HashSet<String> = inserted.into_iter().collect();
    let new: Vec<&ExchangeRows> =
        exchanges.iter().copied().filter(|rows| inserted.remove(&rows.id)).collect();
    let sessions = list(new.iter().map(|rows| &rows.session));
    sqlx::query(include_str!("../sql/upsert_sessions.sql"))
        .bind(sessions)
        .execute(&mut **transaction)
        .await?;
    let evaluations = list(new.iter().flat_map(|rows| &rows.evaluations));
    sqlx::query(include_str!("../sql/insert_evaluations.sql"))
        .bind(evaluations)
        .execute(&mut **transaction)
        .await?;
    let trajectories = list(new.iter().flat_map(|rows| &rows.trajectories));
    sqlx::query(include_str!("../sql/insert_trajectories.sql"))
        .bind(trajectories)
        .execute(&mut **transaction)
        .await?;
    for row in new.iter().flat_map(|rows| &rows.past) {
        insert_past(transaction, row).await?;
    }
    Ok(())
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

async fn insert_past(transaction: &mut Transaction<'_, Sqlite>, row: &PastRow) -> Result<(), sqlx::Error> {
    let number: i64 = sqlx::query_scalar(include_str!("../sql/insert_past_coaching.sql"))
        .bind(&row.exchange_id)
        .bind(row.choice)
        .bind(&row.tenant)
        .bind(&row.subject)
        .bind(&row.request_hash)
        .bind(&row.user_request)
        .bind(&row.feedback)
        .bind(&row.accepted)
        .bind(row.dir_score)
        .fetch_one(&mut **transaction)
        .await?;
    sqlx::query(include_str!("../sql/insert_coaching_text.sql"))
        .bind(number)
        .bind(similar::tenant_key(&row.tenant))
        .bind(&row.user_request)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn insert_outcome(
    transaction: &mut Transaction<'_, Sqlite>,
    row: &OutcomeRow,
) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../sql/insert_outcome.sql"))
        .bind(&row.id)
        .bind(&row.tenant)
        .bind(&row.response_id)
        .bind(row.received_at)
        .bind(row.success)
        .bind(row.rating)
        .bind(&row.json)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn insert_rejected(
    transaction: &mut Transaction<'_, Sqlite>,
    row: &RejectedRow,
) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("../sql/insert_rejected.sql"))
        .bind(row.position.segment.cast_signed())
        .bind(row.position.offset.cast_signed())
        .bind(&row.reason)
        .bind(&row.payload)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
