//! What an entry becomes in the tables. Pure: the drain calls it on a blocking thread, so that the
//! transaction holds only statements.

mod evaluation;
mod session;
mod trajectory;

use jiff::Timestamp;
use serde::Serialize;
use waltz_exchange::record::{ChoiceRecord, RoundRecord};
use waltz_exchange::score::shaped_score;
use waltz_exchange::{ExchangeRecord, VerdictState};

use crate::Entry;
use crate::journal::Position;
use evaluation::evaluation_rows;
pub(crate) use session::SessionRow;
use session::session_row;
use trajectory::trajectory_rows;

/// One journal entry, ready for the database.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// An exchange with everything that hangs on it.
    Exchange(Box<ExchangeRows>),
    /// A report on a reply.
    Outcome(OutcomeRow),
    /// An entry that cannot be stored as what it is.
    Rejected(RejectedRow),
}

/// The rows of one exchange. Each table takes the rows of a whole batch as one JSON list, so a row is
/// a JSON object already.
#[derive(Debug)]
pub(crate) struct ExchangeRows {
    /// The exchange's id.
    pub(crate) id: String,
    /// Its row in `exchanges`.
    pub(crate) exchange: String,
    /// What it adds to its session.
    pub(crate) session: SessionRow,
    /// One per judged text.
    pub(crate) evaluations: Vec<String>,
    /// One per step that training can learn from.
    pub(crate) trajectories: Vec<String>,
    /// One per choice whose coaching ended well.
    pub(crate) past: Vec<PastRow>,
}

#[derive(Serialize)]
struct ExchangeRow<'a> {
    id: &'a str,
    tenant: &'a str,
    subject: Option<&'a str>,
    session_id: &'a str,
    response_id: Option<&'a str>,
    started_at: i64,
    decision: &'static str,
    status: u16,
    degraded: Option<&'a str>,
    endpoint: &'a str,
    agent: &'a str,
    variant: &'a str,
    task_type: &'a str,
    risk: &'static str,
    request_hash: &'a str,
    coached_choices: i64,
    rounds: i64,
    dir_score_sum: f64,
    judged: i64,
    safe: i64,
    overrefused: i64,
    undecided: i64,
    record: String,
}

/// Sums over the choices of an exchange, so that statistics need no record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    coached_choices: i64,
    rounds: i64,
    dir_score: f64,
    judged: i64,
    safe: i64,
    overrefused: i64,
    undecided: i64,
}

/// A choice whose coaching ended well.
#[derive(Debug)]
pub(crate) struct PastRow {
    pub(crate) exchange_id: String,
    pub(crate) choice: i64,
    pub(crate) tenant: String,
    pub(crate) subject: Option<String>,
    pub(crate) request_hash: String,
    pub(crate) user_request: String,
    pub(crate) feedback: String,
    pub(crate) accepted: String,
    pub(crate) dir_score: f64,
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
}

/// An entry that cannot be stored as what it is.
#[derive(Debug)]
pub(crate) struct RejectedRow {
    pub(crate) position: Position,
    pub(crate) reason: String,
    pub(crate) payload: String,
}

/// Turns a payload of the journal into rows.
pub(crate) fn prepare(position: Position, payload: &[u8]) -> Prepared {
    match serde_json::from_slice(payload).and_then(rows) {
        Ok(prepared) => prepared,
        Err(error) => Prepared::Rejected(rejected(position, payload, error.to_string())),
    }
}

/// The row of an entry that cannot be stored.
pub(crate) fn rejected(position: Position, payload: &[u8], reason: String) -> RejectedRow {
    // A NUL is no text for PostgreSQL, just as bytes that are not UTF-8 are none for either database.
    let storable = |text: &str| text.replace('\0', "\u{fffd}");
    RejectedRow { position, reason: storable(&reason), payload: storable(&String::from_utf8_lossy(payload)) }
}

/// Microseconds since 1970, as times are stored.
pub(crate) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// The double that prints like the given score, so that 0.7 is stored as 0.7.
pub(crate) fn plain(score: f32) -> f64 {
    score.to_string().parse().unwrap_or_else(|_| f64::from(score))
}

/// A shaped score with the user's rating in it. The gains weigh 0.8 together and the rating 0.2, so that
/// adding the rating's part to the unrated score is the whole formula.
pub(crate) fn rated(dir_score: f32, rating: Option<u8>) -> f32 {
    let share = rating.map_or(0.0, |stars| (f32::from(stars) - 1.0) / 4.0);
    (dir_score + shaped_score(0.0, 0.0, share)).clamp(-1.0, 1.0)
}

fn rows(entry: Entry) -> Result<Prepared, serde_json::Error> {
    match entry {
        Entry::Exchange(record) => Ok(Prepared::Exchange(Box::new(exchange_rows(&record)?))),
        Entry::Outcome { outcome, tenant, received_at, id } => {
            refuse_nul([&id, &tenant, &outcome.response_id])?;
            Ok(Prepared::Outcome(OutcomeRow {
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

fn exchange_rows(record: &ExchangeRecord) -> Result<ExchangeRows, serde_json::Error> {
    let ExchangeRecord { id, tenant, session_id, endpoint, agent, variant, task_type, request_hash, .. } =
        record;
    let given = [id, tenant, session_id, endpoint, agent, variant, task_type, request_hash];
    let optional = [&record.subject, &record.response_id, &record.degraded];
    refuse_nul(given.into_iter().chain(optional.into_iter().flatten()))?;
    let sums = sums(record);
    Ok(ExchangeRows {
        id: record.id.clone(),
        exchange: exchange_row(record, sums)?,
        session: session_row(record, sums),
        evaluations: evaluation_rows(record)?,
        trajectories: trajectory_rows(record)?,
        past: record.choices.iter().filter_map(|choice| past_row(record, choice)).collect(),
    })
}

/// SQLite ends a text taken out of JSON at a NUL and PostgreSQL knows no such text, so that a key with
/// one could not be found again.
fn refuse_nul<'a>(keys: impl IntoIterator<Item = &'a String>) -> Result<(), serde_json::Error> {
    if keys.into_iter().any(|text| text.contains('\0')) {
        return Err(serde::de::Error::custom("a key of the entry holds a NUL character"));
    }
    Ok(())
}

fn exchange_row(record: &ExchangeRecord, sums: Sums) -> Result<String, serde_json::Error> {
    serde_json::to_string(&ExchangeRow {
        id: &record.id,
        tenant: &record.tenant,
        subject: record.subject.as_deref(),
        session_id: &record.session_id,
        response_id: record.response_id.as_deref(),
        started_at: micros(record.started_at),
        decision: record.decision.as_str(),
        status: record.status,
        degraded: record.degraded.as_deref(),
        endpoint: &record.endpoint,
        agent: &record.agent,
        variant: &record.variant,
        task_type: &record.task_type,
        risk: record.risk.as_str(),
        request_hash: &record.request_hash,
        coached_choices: sums.coached_choices,
        rounds: sums.rounds,
        dir_score_sum: sums.dir_score,
        judged: sums.judged,
        safe: sums.safe,
        overrefused: sums.overrefused,
        undecided: sums.undecided,
        record: serde_json::to_string(record)?,
    })
}

fn sums(record: &ExchangeRecord) -> Sums {
    let mut sums = Sums::default();
    for choice in &record.choices {
        if !choice.rounds.is_empty() {
            sums.coached_choices += 1;
            sums.rounds += i64::try_from(choice.rounds.len()).unwrap_or(i64::MAX);
            sums.dir_score += plain(choice.dir_score);
        }
        if let Some(verdict) = &choice.final_verdict {
            let decided = verdict.state == VerdictState::Decided;
            sums.judged += 1;
            sums.safe += i64::from(decided && !verdict.is_unsafe);
            sums.overrefused += i64::from(verdict.overrefuse);
            sums.undecided += i64::from(!decided);
        }
    }
    sums
}

/// Coaching is worth showing again when a revision was kept, it gained something, and a complete
/// verdict found nothing wrong with what the client got. A last-resort reply is no example to follow.
fn past_row(record: &ExchangeRecord, choice: &ChoiceRecord) -> Option<PastRow> {
    let verdict = choice.final_verdict.as_ref()?;
    let advice: &RoundRecord = choice.rounds.iter().rfind(|round| round.kept)?;
    if choice.last_resort
        || !verdict.is_satisfactory()
        || verdict.state != VerdictState::Decided
        || choice.dir_score <= 0.0
    {
        return None;
    }
    Some(PastRow {
        exchange_id: record.id.clone(),
        choice: i64::from(choice.index),
        tenant: record.tenant.clone(),
        subject: record.subject.clone(),
        request_hash: record.request_hash.clone(),
        user_request: record.user_request.clone(),
        feedback: advice.feedback.clone(),
        accepted: choice.final_text.clone(),
        dir_score: plain(choice.dir_score),
    })
}
