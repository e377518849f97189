//! What an entry becomes in the tables. Pure: rows of exchanges are made where those are appended, others by the drain
//! on a blocking thread, so that the transaction holds only statements.

mod exchange;
mod lesson;
mod session;
mod totals;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use waltz_exchange::ExchangeRecord;
use waltz_exchange::score::shaped_score;

use crate::Entry;
use crate::journal::{Payload, Position};
pub(crate) use exchange::{ExchangeRows, PastRow};
pub(crate) use lesson::LessonRow;
use lesson::lesson_row;
pub(crate) use session::SessionRow;
pub(crate) use totals::TotalsRow;

/// One journal entry, ready for the database.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// An exchange with everything that hangs on it.
    Exchange(Box<ExchangeRows>),
    /// A report on a reply.
    Outcome(OutcomeRow),
    /// What an answer that nobody saw teaches.
    Lesson(LessonRow),
    /// An entry that cannot be stored as what it is.
    Rejected(RejectedRow),
}

impl Prepared {
    /// The rows of an exchange, if it is one.
    pub(crate) fn exchange(&self) -> Option<&ExchangeRows> {
        match self {
            Self::Exchange(rows) => Some(rows),
            _ => None,
        }
    }
}

/// A report on a reply.
#[derive(Debug)]
pub(crate) struct OutcomeRow {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) response_id: String,
    pub(crate) received_at: i64,
    pub(crate) success: Option<bool>,
    pub(crate) rating: Option<i64>,
    pub(crate) json: String,
    pub(crate) lesson: Option<LessonRow>,
}

/// An entry that cannot be stored as what it is.
#[derive(Debug)]
pub(crate) struct RejectedRow {
    pub(crate) position: Position,
    pub(crate) reason: String,
    pub(crate) payload: String,
}

/// Turns an entry of the journal into rows.
pub(crate) fn prepare(payload: &mut Payload) -> Prepared {
    let prepared = match in_memory(payload) {
        Some(rows) => Ok(Prepared::Exchange(rows)),
        None => read(&payload.bytes),
    };
    prepared.unwrap_or_else(|error| Prepared::Rejected(rejected(payload, error.to_string())))
}

/// The rows that were made when the exchange was appended, where they are kept in memory.
fn in_memory(payload: &mut Payload) -> Option<Box<ExchangeRows>> {
    let rows = payload.rows.take()?;
    let text = payload.bytes.strip_prefix(br#"{"kind":"exchange","entry":"#)?.strip_suffix(b"}")?;
    Some(rows.with_text(payload.bytes.slice_ref(text)))
}

/// An entry whose content is kept as it was written, so that an exchange need not be written anew.
#[derive(Deserialize)]
struct Raw<'a> {
    kind: &'a str,
    #[serde(borrow)]
    entry: &'a RawValue,
}

fn read(payload: &Bytes) -> Result<Prepared, serde_json::Error> {
    let raw: Raw<'_> = serde_json::from_slice(payload)?;
    if raw.kind == "exchange" {
        let text = raw.entry.get();
        return exchange(&serde_json::from_str(text)?, payload.slice_ref(text.as_bytes()));
    }
    match serde_json::from_slice(payload)? {
        Entry::Exchange(record) => {
            let text = serde_json::to_vec(&record)?;
            exchange(&record, text.into())
        }
        Entry::Lesson(lesson) => lesson_row(&lesson).map(Prepared::Lesson),
        Entry::Outcome { outcome, tenant, received_at, id, lesson } => {
            refuse_nul([&id, &tenant, &outcome.response_id])?;
            Ok(Prepared::Outcome(OutcomeRow {
                lesson: lesson.as_deref().map(lesson_row).transpose()?,
                id,
                tenant,
                json: serde_json::to_string(&outcome)?,
                response_id: outcome.response_id,
                received_at: micros(received_at),
                success: outcome.success,
                rating: outcome.rating.map(i64::from),
            }))
        }
    }
}

fn exchange(record: &ExchangeRecord, text: Bytes) -> Result<Prepared, serde_json::Error> {
    Ok(Prepared::Exchange(Box::new(ExchangeRows::new(record)?).with_text(text)))
}

/// The row of an entry that cannot be stored.
pub(crate) fn rejected(payload: &Payload, reason: String) -> RejectedRow {
    // A NUL is no text for PostgreSQL, just as bytes that are not UTF-8 are none for either database.
    let storable = |text: &str| text.replace('\0', "\u{fffd}");
    RejectedRow {
        position: payload.position,
        reason: storable(&reason),
        payload: storable(&String::from_utf8_lossy(&payload.bytes)),
    }
}

/// Microseconds since 1970, as times are stored.
pub(crate) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// The double that prints like the given score, so that 0.7 is stored as 0.7.
pub(crate) fn plain(score: f32) -> f64 {
    if score == 0.0 || score == 1.0 {
        return f64::from(score);
    }
    score.to_string().parse().unwrap_or_else(|_| f64::from(score))
}

/// A shaped score with the user's rating in it. The gains weigh 0.8 together and the rating 0.2, so that
/// adding the rating's part to the unrated score is the whole formula.
pub(crate) fn rated(dir_score: f32, rating: Option<u8>) -> f32 {
    let share = rating.map_or(0.0, |stars| (f32::from(stars) - 1.0) / 4.0);
    (dir_score + shaped_score(0.0, 0.0, share)).clamp(-1.0, 1.0)
}

/// PostgreSQL knows no text with a NUL, so that a key with one could not be found again.
fn refuse_nul<'a>(keys: impl IntoIterator<Item = &'a String>) -> Result<(), serde_json::Error> {
    if keys.into_iter().any(|text| text.contains('\0')) {
        return Err(serde::de::Error::custom("a key of the entry holds a NUL character"));
    }
    Ok(())
}
