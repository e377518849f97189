//! Writing what is kept of variants. One change is one transaction on a connection of its own, and every part of it
//! that names a version is written only while that is still the version: of two that change the same thing at the
//! same time, on whatever gateways, one is told that it came too late.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;
use waltz_exchange::proposal::Review;
use waltz_exchange::release::Pause;
use waltz_exchange::rollback::RollbackStatus;

use super::{BoardStored, EventStored, ProposalStored, RollbackStored};
use crate::rows::micros;
use crate::sql::{Statement, Transaction, Value};
use crate::{Error, Store};

/// The row is held until the change is committed, so that versions appear in order. All gateways want it: it is taken
/// last, when nothing is left to be done but to commit.
const NEXT_VERSION: Statement =
    Statement::both("UPDATE rollout_state SET version = version + 1 RETURNING version");
const INSERT_BOARD: Statement = Statement::both(
    "INSERT INTO boards (agent, task_type, version, state, changed) VALUES ($1, $2, 1, $3, 0)
     ON CONFLICT (agent, task_type) DO NOTHING RETURNING version",
);
const UPDATE_BOARD: Statement = Statement::both(
    "UPDATE boards SET state = $3, version = version + 1 WHERE agent = $1 AND task_type = $2 AND version = $4
     RETURNING version",
);
const BOARD_CHANGED: Statement =
    Statement::both("UPDATE boards SET changed = $3 WHERE agent = $1 AND task_type = $2");
const LEARN: Statement = Statement::each(
    "UPDATE lessons SET learned = TRUE WHERE NOT learned AND number IN (SELECT value FROM json_each($1))
     RETURNING number",
    "UPDATE lessons SET learned = TRUE
     WHERE NOT learned AND number IN (SELECT value::bigint FROM json_array_elements_text($1::json)) RETURNING number",
);
/// Takes pairs of number and reason.
const REFUSE: Statement = Statement::each(
    "UPDATE lessons SET refused = json_extract(given.value, '$[1]') FROM json_each($1) AS given
     WHERE lessons.number = json_extract(given.value, '$[0]')",
    "UPDATE lessons SET refused = given.value ->> 1 FROM json_array_elements($1::json) AS given
     WHERE lessons.number = (given.value ->> 0)::bigint",
);
const INSERT_EVENT: Statement = Statement::both(
    "INSERT INTO rollout_events (at, agent, task_type, event, told) VALUES ($1, $2, $3, $4, $5)",
);
const INSERT_ROLLBACK: Statement = Statement::both(
    "INSERT INTO rollbacks (id, status, review, event) VALUES ($1, $2, $3, $4)
     ON CONFLICT (id) DO NOTHING RETURNING number",
);
const REVIEW_ROLLBACK: Statement = Statement::both(
    "UPDATE rollbacks SET status = $2, review = $3 WHERE id = $1 AND status = 'waiting' RETURNING number",
);
const TAKE_NOTICE: Statement =
    Statement::both("UPDATE rollout_events SET told = $2 WHERE number = $1 AND NOT told RETURNING number");
const INSERT_PROPOSAL: Statement = Statement::both(
    "INSERT INTO proposals (id, version, status, proposal) VALUES ($1, 1, $2, $3)
     ON CONFLICT (id) DO NOTHING RETURNING version",
);
const UPDATE_PROPOSAL: Statement = Statement::both(
    "UPDATE proposals SET status = $2, proposal = $3, version = version + 1 WHERE id = $1 AND version = $4
     RETURNING version",
);
const MAKE_SECRET: Statement = Statement::both("UPDATE rollout_state SET secret = $1 WHERE secret IS NULL");
const SECRET: Statement = Statement::both("SELECT secret FROM rollout_state");
const SET_PAUSED: Statement = Statement::both("UPDATE rollout_state SET paused = $1");
const SET_PROPOSED: Statement =
    Statement::both("UPDATE rollout_state SET proposed_at = $1 WHERE proposed_at = $2 RETURNING proposed_at");

/// What one step changes: all of it, or nothing.
#[derive(Clone, Debug, Default)]
pub struct RolloutChange {
    /// The board as it shall be, with the version that it was read at.
    pub board: Option<BoardStored>,
    /// What the board has learned.
    pub learned: Vec<LearnedLesson>,
    /// What happened.
    pub events: Vec<EventStored>,
    /// Rollbacks among it.
    pub rollbacks: Vec<RollbackStored>,
    /// What a person said of a rollback that waits.
    pub review: Option<RollbackReview>,
    /// Proposals as they shall be, each with the version that it was read at.
    pub proposals: Vec<ProposalStored>,
    /// The kill switch, when it is turned: who pauses everything, or none.
    pub pause: Option<Option<Pause>>,
    /// When changes were proposed: before, and now.
    pub proposed_at: Option<(Timestamp, Timestamp)>,
}

/// A lesson that is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedLesson {
    /// Its place.
    pub number: i64,
    /// Why it could not be learned.
    pub refused: Option<String>,
}

/// What a person said of a rollback.
#[derive(Clone, Debug)]
pub struct RollbackReview {
    /// The rollback.
    pub id: String,
    /// Where it stands now.
    pub status: RollbackStatus,
    /// Who says so, and why.
    pub review: Review,
}

impl Store {
    /// Makes a change. Returns false, and changes nothing, when somebody else changed one of its parts first.
    pub async fn change_rollout(&self, change: &RolloutChange) -> Result<bool, Error> {
        self.with_pen(async |transaction| {
            Ok(write(transaction, change).await? && write_state(transaction, change).await?)
        })
        .await
    }

    /// The secret that all gateways on this database share; the first of them makes it.
    pub async fn secret(&self) -> Result<String, Error> {
        let operation = "read the secret";
        // 244 random bits of the system's generator.
        let new = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let made = self.with_pen(async |transaction| {
            transaction.execute(MAKE_SECRET, &[new.as_str().into()]).await.map(|()| true)
        });
        made.await?;
        let found = self.readers.fetch_optional(SECRET, &[]).await.map_err(Error::database(operation))?;
        let row = found.ok_or(sqlx::Error::RowNotFound).map_err(Error::database(operation))?;
        row.try_get("secret").map_err(Error::database(operation))
    }

    /// Takes on to tell others of an event. Returns false when another gateway has.
    pub async fn take_notice(&self, number: i64) -> Result<bool, Error> {
        self.with_pen(async |transaction| {
            let taken = transaction.fetch_all(TAKE_NOTICE, &[number.into(), Some(true).into()]).await?;
            Ok(!taken.is_empty())
        })
        .await
    }
}

async fn write(transaction: &mut Transaction<'_>, change: &RolloutChange) -> Result<bool, sqlx::Error> {
    if let Some(BoardStored { key, version, state }) = &change.board {
        let (agent, task_type) = (key.agent.as_str().into(), key.task_type.as_str().into());
        let state = state.as_str().into();
        let written = match version {
            0 => transaction.fetch_all(INSERT_BOARD, &[agent, task_type, state]).await?,
            version => {
                transaction.fetch_all(UPDATE_BOARD, &[agent, task_type, state, (*version).into()]).await?
            }
        };
        if written.is_empty() {
            return Ok(false);
        }
    }
    if !change.learned.is_empty() {
        let numbers: Vec<i64> = change.learned.iter().map(|learned| learned.number).collect();
        let learned = transaction.fetch_all(LEARN, &[json(&numbers)?.as_str().into()]).await?;
        if learned.len() != numbers.len() {
            return Ok(false);
        }
    }
    let refused = |lesson: &LearnedLesson| Some((lesson.number, lesson.refused.clone()?));
    let refused: Vec<(i64, String)> = change.learned.iter().filter_map(refused).collect();
    if !refused.is_empty() {
        transaction.execute(REFUSE, &[json(&refused)?.as_str().into()]).await?;
    }
    for proposal in &change.proposals {
        if !write_proposal(transaction, proposal).await? {
            return Ok(false);
        }
    }
    if let Some(RollbackReview { id, status, review }) = &change.review {
        let review = json(review)?;
        let arguments = [id.as_str().into(), status.as_str().into(), review.as_str().into()];
        if transaction.fetch_all(REVIEW_ROLLBACK, &arguments).await?.is_empty() {
            return Ok(false);
        }
    }
    for EventStored { at, key, event, told, .. } in &change.events {
        let arguments: [Value<'_>; 5] = [
            micros(*at).into(),
            key.agent.as_str().into(),
            key.task_type.as_str().into(),
            event.as_str().into(),
            Some(*told).into(),
        ];
        transaction.execute(INSERT_EVENT, &arguments).await?;
    }
    for RollbackStored { event, status, review, .. } in &change.rollbacks {
        let (review, event_json) = (review.as_ref().map(json).transpose()?, json(event)?);
        let arguments = [
            event.rollback_id.as_str().into(),
            status.as_str().into(),
            review.as_deref().into(),
            event_json.as_str().into(),
        ];
        transaction.fetch_all(INSERT_ROLLBACK, &arguments).await?;
    }
    Ok(true)
}

/// Writes what is in the one row that all share.
async fn write_state(transaction: &mut Transaction<'_>, change: &RolloutChange) -> Result<bool, sqlx::Error> {
    let rows = transaction.fetch_all(NEXT_VERSION, &[]).await?;
    let version: i64 = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get("version")?;
    if let Some((before, now)) = change.proposed_at {
        let arguments = [micros(now).into(), micros(before).into()];
        if transaction.fetch_all(SET_PROPOSED, &arguments).await?.is_empty() {
            return Ok(false);
        }
    }
    if let Some(BoardStored { key, .. }) = &change.board {
        let arguments = [key.agent.as_str().into(), key.task_type.as_str().into(), version.into()];
        transaction.execute(BOARD_CHANGED, &arguments).await?;
    }
    if let Some(pause) = &change.pause {
        let paused = pause.as_ref().map(json).transpose()?;
        transaction.execute(SET_PAUSED, &[paused.as_deref().into()]).await?;
    }
    Ok(true)
}

async fn write_proposal(
    transaction: &mut Transaction<'_>,
    stored: &ProposalStored,
) -> Result<bool, sqlx::Error> {
    let ProposalStored { version, proposal } = stored;
    let text = json(proposal)?;
    let (id, status) = (proposal.proposal_id.as_str().into(), proposal.status.as_str().into());
    let written = match version {
        0 => transaction.fetch_all(INSERT_PROPOSAL, &[id, status, text.as_str().into()]).await?,
        version => {
            let arguments = [id, status, text.as_str().into(), (*version).into()];
            transaction.fetch_all(UPDATE_PROPOSAL, &arguments).await?
        }
    };
    Ok(!written.is_empty())
}

fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|source| sqlx::Error::Encode(Box::new(source)))
}
