//! Every action on variants, releases, proposals and rollbacks, for the interface and the command line alike. An
//! action reads from the store, asks `waltz-rollout` what follows, and writes all of it or nothing; where somebody
//! else was faster, it is done anew on what is there now.

mod proposals;
mod releases;
mod rollbacks;
mod variants;
mod view;

use std::collections::BTreeSet;

use jiff::Timestamp;
use waltz_exchange::id;
use waltz_exchange::release::PROGRAM;
use waltz_exchange::release::ReleaseStatus;
use waltz_exchange::rollback::RollbackStatus;
use waltz_exchange::variant::Modification;
use waltz_rollout::patch::{self, Setup};
use waltz_rollout::{Board, BoardEvent};
use waltz_store::{BoardKey, BoardStored, EventStored, RollbackStored, RolloutChange, Store};

pub use proposals::{Decide, Queue};
pub use releases::Start;
pub use rollbacks::{Judgement, RollbackView};
pub use variants::{Act, Add, Imported, VariantAction};
pub use view::{BoardView, EventView, Explained, ReleaseView, VariantView};

use crate::settings::VariantSettings;

/// How often an action is done anew when others are faster.
const ATTEMPTS: usize = 20;
/// The most rows of a list.
pub const MOST: usize = 1000;

/// Why an action was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It speaks of something that is not there.
    #[error("there is no {what} `{name}`")]
    Unknown {
        /// What it is.
        what: &'static str,
        /// What it is called.
        name: String,
    },
    /// It is not possible as things stand.
    #[error(transparent)]
    Refused(#[from] waltz_rollout::Error),
    /// It is not sound.
    #[error("{0}")]
    Invalid(String),
    /// Others change the same thing all the time.
    #[error("others change it at the same time; try again")]
    Busy,
    /// The database was asked and says nothing.
    #[error("the database does not answer")]
    Silent,
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] waltz_store::Error),
}

/// An agent that is configured.
#[derive(Clone, Debug)]
pub struct KnownAgent {
    /// Its name.
    pub name: String,
    /// What it is asked with.
    pub setup: Setup,
    /// Its kinds of tasks and its skills: what two agents share of these makes them similar.
    pub abilities: BTreeSet<String>,
    /// The models that upstreams serve, which a variant may ask in the place of its own; `*` stands for any.
    pub models: BTreeSet<String>,
}

impl KnownAgent {
    /// Whether the agent with a patch could answer. What cannot be applied to it as it is now would serve nobody.
    fn check(&self, changes: &[Modification]) -> Result<(), Error> {
        let Self { setup, models, .. } = self;
        let model = patch::apply(changes, setup)?.model;
        if model == setup.model || models.contains("*") || models.contains(&model) {
            return Ok(());
        }
        let known = models.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let why = format!("no upstream serves the model `{}`; served are {known}", beginning(&model));
        Err(waltz_rollout::Error::Patch(why).into())
    }
}

/// Whoever acts, and what on.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    /// Where everything is kept.
    pub store: &'a Store,
    /// The thresholds.
    pub settings: &'a VariantSettings,
    /// The agents that are configured.
    pub agents: &'a [KnownAgent],
    /// The version of the program itself that the configuration names.
    pub candidate: Option<&'a str>,
    /// Who acts.
    pub by: &'a str,
    /// When.
    pub at: Timestamp,
}

/// What an action makes of a board.
pub(crate) struct Step {
    /// What followed.
    pub(crate) events: Vec<BoardEvent>,
    /// What else is written with it.
    pub(crate) change: RolloutChange,
}

impl From<Vec<BoardEvent>> for Step {
    fn from(events: Vec<BoardEvent>) -> Self {
        Self { events, change: RolloutChange::default() }
    }
}

impl Desk<'_> {
    fn agent(&self, name: &str) -> Option<&KnownAgent> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// Changes a board that is there, or the new one of an agent that has none yet.
    async fn update(
        &self,
        key: &BoardKey,
        work: impl Fn(&mut Board) -> Result<Step, Error>,
    ) -> Result<(Board, Vec<BoardEvent>), Error> {
        for _ in 0..ATTEMPTS {
            let (version, mut board) = open(self.store, key).await?;
            let known = key.agent == PROGRAM || self.agent(&key.agent).is_some();
            if version == 0 && !known {
                return Err(Error::Unknown { what: "agent", name: key.agent.clone() });
            }
            board.stand(held(self.store).await?, self.at);
            let Step { events, mut change } = work(&mut board)?;
            fill(&mut change, (key, version, &board), &events, self.at)?;
            if self.store.change_rollout(&change).await? {
                return Ok((board, events));
            }
        }
        Err(Error::Busy)
    }
}

/// Reads a board with its version, or makes a new one of version 0.
pub(crate) async fn open(store: &Store, key: &BoardKey) -> Result<(i64, Board), Error> {
    match store.board(key).await? {
        Some(BoardStored { version, state, .. }) => Ok((version, parse(key, &state)?)),
        // The seed decides who meets which variant, and stays.
        None => Ok((
            0,
            Board::new(&key.agent, &key.task_type, &id::new_request_id().replacen("req_", "seed_", 1)),
        )),
    }
}

/// Since when everything is paused, while it is.
pub(crate) async fn held(store: &Store) -> Result<Option<Timestamp>, Error> {
    Ok(store.rollout_state().await?.paused.map(|pause| pause.at))
}

/// Reads a board out of its text.
pub(crate) fn parse(key: &BoardKey, state: &str) -> Result<Board, Error> {
    let what = |error| {
        Error::Invalid(format!("the board of {}/{} cannot be read: {error}", key.agent, key.task_type))
    };
    serde_json::from_str(state).map_err(what)
}

/// The beginning of what a person wrote, without signs that would disturb a log.
fn beginning(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(500).collect()
}

/// Whether an operator wants to hear of an event at once.
fn is_notice(event: &BoardEvent) -> bool {
    match event {
        BoardEvent::Suspect { .. } | BoardEvent::RolledBack(_) | BoardEvent::Frozen { .. } => true,
        BoardEvent::Release(event) => event.to_status == ReleaseStatus::Aborted,
        _ => false,
    }
}

/// Puts a board and what happened on it into a change.
pub(crate) fn fill(
    change: &mut RolloutChange,
    (key, version, board): (&BoardKey, i64, &Board),
    events: &[BoardEvent],
    at: Timestamp,
) -> Result<(), Error> {
    let written = |error: serde_json::Error| Error::Invalid(error.to_string());
    let state = serde_json::to_string(board).map_err(written)?;
    change.board = Some(BoardStored { key: key.clone(), version, state });
    // What a person asked for needs no look of a person.
    let asked = events.iter().any(|event| matches!(event, BoardEvent::Changed { .. }));
    let status = if asked { RollbackStatus::Confirmed } else { RollbackStatus::Waiting };
    for event in events {
        let text = serde_json::to_string(event).map_err(written)?;
        let told = !is_notice(event);
        change.events.push(EventStored { number: 0, at, key: key.clone(), event: text, told });
        if let BoardEvent::RolledBack(event) = event {
            change.rollbacks.push(RollbackStored { number: 0, event: event.clone(), status, review: None });
        }
    }
    Ok(())
}
