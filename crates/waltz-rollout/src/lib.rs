//! Which variant serves and when it gains or loses traffic: values, choice, evidence, decisions, rollback, proposals
//! and releases. Everything is a pure function or a plain state: the time is handed in, nothing is read or
//! written, and the same inputs give the same results on every machine.

pub mod assign;
mod board;
pub mod choose;
pub mod compare;
pub mod decide;
mod error;
pub mod evidence;
pub mod explain;
pub mod gate;
pub mod guard;
pub mod learned;
pub mod offpolicy;
pub mod patch;
pub mod propose;
pub mod release;
pub mod review;
mod reward;
mod settings;
mod special;
mod subject;
mod value;
pub mod window;

pub use board::{Board, BoardEvent, Change, Entry};
pub use error::Error;
pub use reward::{RewardParts, reward, reward_parts};
pub use settings::{
    ChooseRule, ChooseSettings, DecideSettings, ProposeSettings, ReleaseSettings, RollbackMode,
    RollbackSettings, Settings, SubjectSettings,
};
pub use value::{Prior, Value};
