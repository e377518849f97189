//! What waltz keeps: the journal that no crash loses, the database it drains into, and every question
//! that is asked of it. This crate holds the only SQL of the product.
//!
//! A request task calls [`Store::append`] before the terminal frame of an answer leaves: one write to
//! an append-only file. One background task drains that file into SQLite or PostgreSQL in group commits
//! and stores how far it came in the same transaction, so that a replay after a crash stores every
//! entry exactly once. Gateway, dashboard, trainer and command line read through [`Store`].

#![cfg_attr(test, expect(non_snake_case, reason = "fault tests carry the ids of the fault list"))]

mod choices;
mod cursor;
mod database;
mod drain;
mod entry;
mod error;
mod evaluations;
mod export;
mod frame;
mod ingest;
mod journal;
mod lock;
mod rollout;
mod rows;
mod sessions;
mod settings;
mod similar;
mod sql;
mod stats;
mod store;

pub use choices::LearnedChoice;
pub use cursor::Cursor;
pub use entry::Entry;
pub use error::{Error, chain};
pub use export::{Format, Namespace};
pub use journal::{Recovered, recover};
pub use rollout::{
    BoardKey, BoardStored, EventStored, LearnedLesson, LessonStored, ProposalStored, RollbackReview,
    RollbackStored, RolloutChange, RolloutState,
};
pub use sessions::{ExchangeDetail, OutcomeRecord, SessionDetail, SessionFilter, SessionSummary};
pub use settings::{Database, MAX_ENTRY_BYTES, Settings, Sync};
pub use stats::{CategoryCount, DecisionCount, Rate, Stats};
pub use store::{Health, Store};
