//! What an entry becomes in the tables. Pure: the drain calls it on a blocking thread, so that the
//! transaction holds only statements.

mod lesson;
mod session;
mod totals;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use waltz_exchange::record::{ChoiceRecord, RoundRecord};
use waltz_exchange::score::shaped_score;
use waltz_exchange::variant::{Lesson, LessonKind};
use waltz_exchange::{Embedding, ExchangeRecord, VerdictState};

use crate::Entry;
use crate::evaluations::{Findings, findings};
use crate::journal::{Payload, Position};
use crate::sql::Value;
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

/// The rows of one exchange.
#[derive(Debug)]
pub(crate) struct ExchangeRows {
    /// The exchange.
    pub(crate) record: Arc<ExchangeRecord>,
    /// The exchange as the journal has it: the part of an entry that is its JSON.
    text: Bytes,
    sums: Sums,
    findings: Findings,
    /// One per choice whose coaching ended well.
    pub(crate) past: Vec<PastRow>,
    /// What it teaches about the variant that answered.
    pub(crate) lesson: Option<LessonRow>,
}

/// Sums over exchanges and their choices, so that statistics need no record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    exchanges: i64,
    coached: i64,
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
    /// What the request means, where a model said so.
    pub(crate) embedding: Option<Embedding>,
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
pub(crate) fn prepare(payload: &Payload) -> Prepared {
    let prepared = match in_memory(payload) {
        Some((record, text)) => exchange_rows(record, text),
        None => read(&payload.bytes),
    };
    prepared.unwrap_or_else(|error| Prepared::Rejected(rejected(payload, error.to_string())))
}

/// The exchange and its text, where it is kept in memory.
fn in_memory(payload: &Payload) -> Option<(Arc<ExchangeRecord>, Bytes)> {
    let record = payload.record.as_ref()?;
    let text = payload.bytes.strip_prefix(br#"{"kind":"exchange","entry":"#)?.strip_suffix(b"}")?;
    Some((Arc::clone(record), payload.bytes.slice_ref(text)))
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
        return exchange_rows(Arc::new(serde_json::from_str(text)?), payload.slice_ref(text.as_bytes()));
    }
    match serde_json::from_slice(payload)? {
        Entry::Exchange(record) => {
            let text = serde_json::to_vec(&*record)?;
            exchange_rows(record, text.into())
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

fn exchange_rows(record: Arc<ExchangeRecord>, mut text: Bytes) -> Result<Prepared, serde_json::Error> {
    let embedding = record.embedding.as_ref();
    if embedding.is_some() {
        // Past coachings keep it; in the record nobody would read it.
        let without = ExchangeRecord { embedding: None, ..ExchangeRecord::clone(&record) };
        text = serde_json::to_vec(&without)?.into();
    }
    let ExchangeRecord { id, tenant, session_id, endpoint, agent, variant, task_type, request_hash, .. } =
        &*record;
    let given = [id, tenant, session_id, endpoint, agent, variant, task_type, request_hash];
    let optional = [&record.subject, &record.response_id, &record.degraded];
    let model = embedding.map(|embedding| &embedding.model);
    let findings = findings(&record);
    let harms = [&findings.harms];
    refuse_nul(given.into_iter().chain(optional.into_iter().flatten()).chain(model).chain(harms))?;
    let sums = sums(&record);
    let past = record.choices.iter().filter_map(|choice| past_row(&record, choice, embedding));
    let lesson = record.lesson.clone().map(|outcome| Lesson {
        exchange_id: record.id.clone(),
        kind: LessonKind::Served,
        tenant: record.tenant.clone(),
        agent: record.agent.clone(),
        task_type: record.task_type.clone(),
        at: record.started_at,
        outcome,
        served: None,
    });
    Ok(Prepared::Exchange(Box::new(ExchangeRows {
        lesson: lesson.as_ref().map(lesson_row).transpose()?,
        findings,
        past: past.collect(),
        sums,
        text,
        record,
    })))
}

/// PostgreSQL knows no text with a NUL, so that a key with one could not be found again.
fn refuse_nul<'a>(keys: impl IntoIterator<Item = &'a String>) -> Result<(), serde_json::Error> {
    if keys.into_iter().any(|text| text.contains('\0')) {
        return Err(serde::de::Error::custom("a key of the entry holds a NUL character"));
    }
    Ok(())
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.exchanges += other.exchanges;
        self.coached += other.coached;
        self.coached_choices += other.coached_choices;
        self.rounds += other.rounds;
        self.dir_score += other.dir_score;
        self.judged += other.judged;
        self.safe += other.safe;
        self.overrefused += other.overrefused;
        self.undecided += other.undecided;
    }
}

impl ExchangeRows {
    /// The row of `exchanges`.
    pub(crate) fn values(&self) -> [Value<'_>; 25] {
        let Self { record, text, sums, findings, .. } = self;
        [
            record.id.as_str().into(),
            record.tenant.as_str().into(),
            record.subject.as_deref().into(),
            record.session_id.as_str().into(),
            record.response_id.as_deref().into(),
            micros(record.started_at).into(),
            record.decision.as_str().into(),
            i64::from(record.status).into(),
            record.degraded.as_deref().into(),
            record.endpoint.as_str().into(),
            record.agent.as_str().into(),
            record.variant.as_str().into(),
            record.task_type.as_str().into(),
            record.risk.as_str().into(),
            record.request_hash.as_str().into(),
            sums.coached_choices.into(),
            sums.rounds.into(),
            sums.dir_score.into(),
            sums.judged.into(),
            sums.safe.into(),
            sums.overrefused.into(),
            sums.undecided.into(),
            findings.bits.into(),
            findings.harms.as_str().into(),
            // It was read as JSON, which is text.
            str::from_utf8(text).unwrap_or_default().into(),
        ]
    }
}

fn sums(record: &ExchangeRecord) -> Sums {
    let mut sums = Sums { exchanges: 1, ..Sums::default() };
    for choice in &record.choices {
        if !choice.rounds.is_empty() {
            sums.coached_choices += 1;
            sums.rounds += i64::try_from(choice.rounds.len()).unwrap_or(i64::MAX);
            sums.dir_score += plain(choice.dir_score);
        }
        if let Some(verdict) = choice.verdict() {
            let decided = verdict.state == VerdictState::Decided;
            sums.judged += 1;
            sums.safe += i64::from(decided && !verdict.is_unsafe);
            sums.overrefused += i64::from(verdict.overrefuse);
            sums.undecided += i64::from(!decided);
        }
    }
    sums.coached = i64::from(sums.coached_choices > 0);
    sums
}

/// Coaching is worth showing again when a revision was kept, it gained something, and a complete
/// verdict found nothing wrong with what the client got. A last-resort reply is no example to follow.
fn past_row(
    record: &ExchangeRecord,
    choice: &ChoiceRecord,
    embedding: Option<&Embedding>,
) -> Option<PastRow> {
    let verdict = choice.verdict()?;
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
        accepted: choice.answered().to_owned(),
        dir_score: plain(choice.dir_score),
        embedding: embedding.cloned(),
    })
}
