//! The rows of one exchange. They are made by the thread that appends it, which then forgets the record: to free on one
//! thread what another allocated is dear, and a record has dozens of pieces.

use bytes::Bytes;
use waltz_exchange::record::{ChoiceRecord, RoundRecord};
use waltz_exchange::variant::{Lesson, LessonKind};
use waltz_exchange::{Embedding, ExchangeRecord, VerdictState};

use super::{LessonRow, lesson_row, micros, plain, refuse_nul};
use crate::evaluations::findings;
use crate::sql::Value;

/// The rows of one exchange.
#[derive(Debug)]
pub(crate) struct ExchangeRows {
    texts: Texts,
    id: Part,
    pub(super) tenant: Part,
    pub(super) subject: Option<Part>,
    pub(super) session_id: Part,
    response_id: Option<Part>,
    degraded: Option<Part>,
    endpoint: Part,
    agent: Part,
    variant: Part,
    task_type: Part,
    request_hash: Part,
    harms: Part,
    pub(super) started_at: i64,
    pub(super) decision: &'static str,
    risk: &'static str,
    status: i64,
    found: i64,
    pub(super) sums: Sums,
    /// The exchange as the journal has it, but for its embedding: JSON.
    text: Bytes,
    /// One per choice whose coaching ended well.
    pub(crate) past: Vec<PastRow>,
    /// What it teaches about the variant that answered.
    pub(crate) lesson: Option<LessonRow>,
}

/// Short texts in one piece of memory.
#[derive(Debug, Default)]
struct Texts(String);

/// Where one of them is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    start: usize,
    end: usize,
}

/// Sums over exchanges and their choices, so that statistics need no record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) exchanges: i64,
    pub(super) coached: i64,
    pub(super) coached_choices: i64,
    pub(super) rounds: i64,
    pub(super) dir_score: f64,
    pub(super) judged: i64,
    pub(super) safe: i64,
    pub(super) overrefused: i64,
    pub(super) undecided: i64,
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

/// About the bytes of an ordinary row's short texts.
const SHORT_TEXTS: usize = 320;

impl Texts {
    fn add(&mut self, text: &str) -> Part {
        let start = self.0.len();
        self.0.push_str(text);
        Part { start, end: self.0.len() }
    }

    fn get(&self, part: Part) -> &str {
        &self.0[part.start..part.end]
    }
}

impl ExchangeRows {
    /// The rows of an exchange, whose JSON the journal gives.
    pub(crate) fn new(record: &ExchangeRecord) -> Result<Self, serde_json::Error> {
        let ExchangeRecord {
            id, tenant, session_id, endpoint, agent, variant, task_type, request_hash, ..
        } = record;
        let given = [id, tenant, session_id, endpoint, agent, variant, task_type, request_hash];
        let optional = [&record.subject, &record.response_id, &record.degraded];
        let embedding = record.embedding.as_ref();
        let model = embedding.map(|embedding| &embedding.model);
        let found = findings(record);
        let harms = [&found.harms];
        refuse_nul(given.into_iter().chain(optional.into_iter().flatten()).chain(model).chain(harms))?;
        let mut texts = Texts(String::with_capacity(SHORT_TEXTS));
        Ok(Self {
            id: texts.add(id),
            tenant: texts.add(tenant),
            subject: record.subject.as_ref().map(|text| texts.add(text)),
            session_id: texts.add(session_id),
            response_id: record.response_id.as_ref().map(|text| texts.add(text)),
            degraded: record.degraded.as_ref().map(|text| texts.add(text)),
            endpoint: texts.add(endpoint),
            agent: texts.add(agent),
            variant: texts.add(variant),
            task_type: texts.add(task_type),
            request_hash: texts.add(request_hash),
            harms: texts.add(&found.harms),
            texts,
            started_at: micros(record.started_at),
            decision: record.decision.as_str(),
            risk: record.risk.as_str(),
            status: i64::from(record.status),
            found: found.bits,
            sums: sums(record),
            text: without_embedding(record)?,
            past: record.choices.iter().filter_map(|choice| past_row(record, choice, embedding)).collect(),
            lesson: lesson(record).map(|lesson| lesson_row(&lesson)).transpose()?,
        })
    }

    /// Completes the rows with the JSON of the exchange, unless they have their own.
    pub(super) fn with_text(mut self: Box<Self>, text: Bytes) -> Box<Self> {
        if self.text.is_empty() {
            self.text = text;
        }
        self
    }

    pub(super) fn short(&self, part: Part) -> &str {
        self.texts.get(part)
    }

    /// The row of `exchanges`.
    pub(crate) fn values(&self) -> [Value<'_>; 25] {
        let short = |part| Value::from(self.short(part));
        let optional = |part: Option<Part>| Value::from(part.map(|part| self.short(part)));
        [
            short(self.id),
            short(self.tenant),
            optional(self.subject),
            short(self.session_id),
            optional(self.response_id),
            self.started_at.into(),
            self.decision.into(),
            self.status.into(),
            optional(self.degraded),
            short(self.endpoint),
            short(self.agent),
            short(self.variant),
            short(self.task_type),
            self.risk.into(),
            short(self.request_hash),
            self.sums.coached_choices.into(),
            self.sums.rounds.into(),
            self.sums.dir_score.into(),
            self.sums.judged.into(),
            self.sums.safe.into(),
            self.sums.overrefused.into(),
            self.sums.undecided.into(),
            self.found.into(),
            short(self.harms),
            // It is JSON, which is text.
            str::from_utf8(&self.text).unwrap_or_default().into(),
        ]
    }
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
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

/// The JSON of a record that has an embedding: past coachings keep that, in the record nobody would read it. Empty for
/// others, which the journal has as they are.
fn without_embedding(record: &ExchangeRecord) -> Result<Bytes, serde_json::Error> {
    if record.embedding.is_none() {
        return Ok(Bytes::new());
    }
    let without = ExchangeRecord { embedding: None, ..record.clone() };
    Ok(serde_json::to_vec(&without)?.into())
}

fn lesson(record: &ExchangeRecord) -> Option<Lesson> {
    let outcome = record.lesson.clone()?;
    Some(Lesson {
        exchange_id: record.id.clone(),
        kind: LessonKind::Served,
        tenant: record.tenant.clone(),
        agent: record.agent.clone(),
        task_type: record.task_type.clone(),
        at: record.started_at,
        outcome,
        served: None,
    })
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
    let refused = record.choices.iter().any(|choice| choice.last_resort);
    let revised = record.choices.iter().flat_map(|choice| &choice.rounds).any(|round| round.kept);
    sums.coached = i64::from(revised && !refused);
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
