//! What is kept of variants: boards, what is to be learned, events, rollbacks, proposals and the kill switch. A board
//! is text to the store; whoever reads it knows its form.

mod change;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use waltz_exchange::proposal::{Proposal, ProposalStatus, Review};
use waltz_exchange::release::Pause;
use waltz_exchange::rollback::{RollbackEvent, RollbackStatus};
use waltz_exchange::variant::Lesson;

pub use change::{LearnedLesson, RollbackReview, RolloutChange};

use crate::sessions::{page, time};
use crate::sql::{Row, Statement};
use crate::{Error, Store};

const STATE: Statement = Statement::both("SELECT version, paused, proposed_at FROM rollout_state");
const BOARDS: Statement = Statement::both(
    "SELECT agent, task_type, version, state FROM boards WHERE changed > $1 ORDER BY agent, task_type",
);
const BOARD: Statement = Statement::both(
    "SELECT agent, task_type, version, state FROM boards WHERE agent = $1 AND task_type = $2",
);
const COUNT_BOARDS: Statement =
    Statement::both("SELECT CAST(COUNT(*) AS BIGINT) AS total FROM boards WHERE agent = $1");
const TO_LEARN: Statement =
    Statement::both("SELECT DISTINCT agent, task_type FROM lessons WHERE NOT learned LIMIT $1");
const OPEN_LESSONS_OF: Statement = Statement::both(
    "SELECT number, lesson FROM lessons WHERE NOT learned AND agent = $1 AND task_type = $2 ORDER BY number LIMIT $3",
);
const LESSONS_OF: Statement = Statement::both(
    "SELECT number, lesson FROM lessons WHERE learned AND refused IS NULL AND agent = $1 AND task_type = $2
     AND variant = $3 ORDER BY number DESC LIMIT $4",
);
const EVENTS: Statement = Statement::both(
    "SELECT number, at, agent, task_type, event, told FROM rollout_events
     WHERE (agent = $1 OR $1 IS NULL) AND (task_type = $2 OR $2 IS NULL) ORDER BY number DESC LIMIT $3",
);
const ROLLBACKS: Statement = Statement::both(
    "SELECT number, status, review, event FROM rollbacks WHERE (status = $1 OR $1 IS NULL)
     ORDER BY number DESC LIMIT $2",
);
const ROLLBACK: Statement =
    Statement::both("SELECT number, status, review, event FROM rollbacks WHERE id = $1");
const ROLLBACKS_AFTER: Statement = Statement::both(
    "SELECT number, status, review, event FROM rollbacks WHERE number > $1 ORDER BY number LIMIT $2",
);
const UNTOLD: Statement = Statement::both(
    "SELECT number, at, agent, task_type, event, told FROM rollout_events WHERE NOT told ORDER BY number LIMIT $1",
);
const PROPOSALS: Statement = Statement::both(
    "SELECT version, proposal FROM proposals WHERE (status = $1 OR $1 IS NULL) ORDER BY number DESC LIMIT $2",
);
const PROPOSAL: Statement = Statement::both("SELECT version, proposal FROM proposals WHERE id = $1");

/// Whose board it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoardKey {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
}

/// What all boards share.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutState {
    /// Counts every change.
    pub version: i64,
    /// Who paused everything, and why, while it is.
    pub paused: Option<Pause>,
    /// When changes were last proposed.
    pub proposed_at: Timestamp,
}

/// A board as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardStored {
    /// Whose it is.
    pub key: BoardKey,
    /// Counts its writes, from 1; 0 for a board that is not there yet.
    pub version: i64,
    /// The board.
    pub state: String,
}

/// Something that is to be learned.
#[derive(Clone, Debug, PartialEq)]
pub struct LessonStored {
    /// Its place.
    pub number: i64,
    /// What it is.
    pub lesson: Lesson,
}

/// Something that happened on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStored {
    /// Its place; not used when it is written.
    pub number: i64,
    /// When.
    pub at: Timestamp,
    /// On which board.
    pub key: BoardKey,
    /// What, as JSON.
    pub event: String,
    /// Nobody has to be told of it, or somebody has taken that on.
    pub told: bool,
}

/// A rollback with what people said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RollbackStored {
    /// Its place; not used when it is written.
    pub number: i64,
    /// What happened.
    pub event: RollbackEvent,
    /// Where it stands.
    pub status: RollbackStatus,
    /// What a person said.
    pub review: Option<Review>,
}

/// A proposal with the number of decisions on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposalStored {
    /// Counts its writes, from 1; 0 for a proposal that is not there yet.
    pub version: i64,
    /// The proposal.
    pub proposal: Proposal,
}

impl Store {
    /// What all boards share: cheap enough to be asked several times a second.
    pub async fn rollout_state(&self) -> Result<RolloutState, Error> {
        let operation = "read the state of variants";
        let found = self.readers.fetch_optional(STATE, &[]).await.map_err(Error::database(operation))?;
        let row = found.ok_or(sqlx::Error::RowNotFound).map_err(Error::database(operation))?;
        let paused: Option<String> = row.try_get("paused").map_err(Error::database(operation))?;
        Ok(RolloutState {
            version: row.try_get("version").map_err(Error::database(operation))?,
            paused: paused.map(|text| decode("pause", "all", &text)).transpose()?,
            proposed_at: time(&row, "proposed_at").map_err(Error::database(operation))?,
        })
    }

    /// Every board.
    pub async fn boards(&self) -> Result<Vec<BoardStored>, Error> {
        self.boards_since(-1).await
    }

    /// The boards that changed after a version of [`RolloutState`].
    pub async fn boards_since(&self, version: i64) -> Result<Vec<BoardStored>, Error> {
        let operation = "read boards";
        let rows =
            self.readers.fetch_all(BOARDS, &[version.into()]).await.map_err(Error::database(operation))?;
        rows.iter().map(|row| board(row).map_err(Error::database(operation))).collect()
    }

    /// One board.
    pub async fn board(&self, key: &BoardKey) -> Result<Option<BoardStored>, Error> {
        let operation = "read a board";
        let arguments = [key.agent.as_str().into(), key.task_type.as_str().into()];
        let found =
            self.readers.fetch_optional(BOARD, &arguments).await.map_err(Error::database(operation))?;
        found.map(|row| board(&row).map_err(Error::database(operation))).transpose()
    }

    /// How many boards an agent has.
    pub async fn count_boards(&self, agent: &str) -> Result<u64, Error> {
        let operation = "count boards";
        let found = self.readers.fetch_optional(COUNT_BOARDS, &[agent.into()]).await;
        let row = found.map_err(Error::database(operation))?;
        let total: i64 = row.map_or(Ok(0), |row| row.try_get("total")).map_err(Error::database(operation))?;
        Ok(u64::try_from(total).unwrap_or(0))
    }

    /// The boards that have something to learn.
    pub async fn boards_to_learn(&self, limit: usize) -> Result<Vec<BoardKey>, Error> {
        let operation = "look for lessons";
        let rows = self.readers.fetch_all(TO_LEARN, &[page(limit).into()]).await;
        let key =
            |row: &Row| Ok(BoardKey { agent: row.try_get("agent")?, task_type: row.try_get("task_type")? });
        let rows = rows.map_err(Error::database(operation))?;
        rows.iter().map(|row| key(row).map_err(Error::database(operation))).collect()
    }

    /// What is to be learned by one board, oldest first. Whoever writes the board reads it before its lessons: then no
    /// lesson is learned twice.
    pub async fn open_lessons_of(&self, key: &BoardKey, limit: usize) -> Result<Vec<LessonStored>, Error> {
        let arguments = [key.agent.as_str().into(), key.task_type.as_str().into(), page(limit).into()];
        lessons(self.readers.fetch_all(OPEN_LESSONS_OF, &arguments).await)
    }

    /// What was learned of a variant last, oldest first.
    pub async fn lessons_of(
        &self,
        key: &BoardKey,
        variant: &str,
        limit: usize,
    ) -> Result<Vec<LessonStored>, Error> {
        let BoardKey { agent, task_type } = key;
        let arguments =
            [agent.as_str().into(), task_type.as_str().into(), variant.into(), page(limit).into()];
        let mut found = lessons(self.readers.fetch_all(LESSONS_OF, &arguments).await)?;
        found.reverse();
        Ok(found)
    }

    /// What happened, newest first.
    pub async fn rollout_events(
        &self,
        agent: Option<&str>,
        task_type: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EventStored>, Error> {
        let operation = "read events of variants";
        let arguments = [agent.into(), task_type.into(), page(limit).into()];
        let rows = self.readers.fetch_all(EVENTS, &arguments).await.map_err(Error::database(operation))?;
        rows.iter().map(|row| event(row).map_err(Error::database(operation))).collect()
    }

    /// Rollbacks, newest first, of one status or of all.
    pub async fn rollbacks(
        &self,
        status: Option<RollbackStatus>,
        limit: usize,
    ) -> Result<Vec<RollbackStored>, Error> {
        let arguments = [status.map(RollbackStatus::as_str).into(), page(limit).into()];
        rollbacks(self.readers.fetch_all(ROLLBACKS, &arguments).await)
    }

    /// One rollback.
    pub async fn rollback(&self, id: &str) -> Result<Option<RollbackStored>, Error> {
        Ok(rollbacks(self.readers.fetch_all(ROLLBACK, &[id.into()]).await)?.pop())
    }

    /// Rollbacks after a place, oldest first.
    pub async fn rollbacks_after(&self, number: i64, limit: usize) -> Result<Vec<RollbackStored>, Error> {
        rollbacks(self.readers.fetch_all(ROLLBACKS_AFTER, &[number.into(), page(limit).into()]).await)
    }

    /// What others have to be told of and nobody has taken on, oldest first.
    pub async fn untold_events(&self, limit: usize) -> Result<Vec<EventStored>, Error> {
        let operation = "read events of variants";
        let rows = self.readers.fetch_all(UNTOLD, &[page(limit).into()]).await;
        let rows = rows.map_err(Error::database(operation))?;
        rows.iter().map(|row| event(row).map_err(Error::database(operation))).collect()
    }

    /// Proposals, newest first, of one status or of all.
    pub async fn proposals(
        &self,
        status: Option<ProposalStatus>,
        limit: usize,
    ) -> Result<Vec<ProposalStored>, Error> {
        let arguments = [status.map(ProposalStatus::as_str).into(), page(limit).into()];
        proposals(self.readers.fetch_all(PROPOSALS, &arguments).await)
    }

    /// One proposal.
    pub async fn proposal(&self, id: &str) -> Result<Option<ProposalStored>, Error> {
        Ok(proposals(self.readers.fetch_all(PROPOSAL, &[id.into()]).await)?.pop())
    }
}

fn board(row: &Row) -> Result<BoardStored, sqlx::Error> {
    let key = BoardKey { agent: row.try_get("agent")?, task_type: row.try_get("task_type")? };
    Ok(BoardStored { key, version: row.try_get("version")?, state: row.try_get("state")? })
}

fn event(row: &Row) -> Result<EventStored, sqlx::Error> {
    Ok(EventStored {
        number: row.try_get("number")?,
        at: time(row, "at")?,
        key: BoardKey { agent: row.try_get("agent")?, task_type: row.try_get("task_type")? },
        event: row.try_get("event")?,
        told: row.try_get("told")?,
    })
}

fn lessons(rows: Result<Vec<Row>, sqlx::Error>) -> Result<Vec<LessonStored>, Error> {
    let operation = "read lessons";
    let mut found = Vec::new();
    for row in rows.map_err(Error::database(operation))? {
        let number: i64 = row.try_get("number").map_err(Error::database(operation))?;
        let json: &str = row.try_get("lesson").map_err(Error::database(operation))?;
        found.push(LessonStored { number, lesson: decode("lesson", &number.to_string(), json)? });
    }
    Ok(found)
}

fn rollbacks(rows: Result<Vec<Row>, sqlx::Error>) -> Result<Vec<RollbackStored>, Error> {
    let operation = "read rollbacks";
    let mut found = Vec::new();
    for row in rows.map_err(Error::database(operation))? {
        let number: i64 = row.try_get("number").map_err(Error::database(operation))?;
        let (id, read) = (number.to_string(), "rollback");
        let status: String = row.try_get("status").map_err(Error::database(operation))?;
        let review: Option<String> = row.try_get("review").map_err(Error::database(operation))?;
        let event: &str = row.try_get("event").map_err(Error::database(operation))?;
        found.push(RollbackStored {
            number,
            event: decode(read, &id, event)?,
            status: decode(read, &id, &format!("\"{status}\""))?,
            review: review.map(|text| decode(read, &id, &text)).transpose()?,
        });
    }
    Ok(found)
}

fn proposals(rows: Result<Vec<Row>, sqlx::Error>) -> Result<Vec<ProposalStored>, Error> {
    let operation = "read proposals";
    let mut found = Vec::new();
    for row in rows.map_err(Error::database(operation))? {
        let version = row.try_get("version").map_err(Error::database(operation))?;
        let json: &str = row.try_get("proposal").map_err(Error::database(operation))?;
        found.push(ProposalStored { version, proposal: decode("proposal", "of a list", json)? });
    }
    Ok(found)
}

pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, id: &str, json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|source| Error::Decode { what, id: id.to_owned(), source })
}
