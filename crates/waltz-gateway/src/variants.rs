//! Which variant of an agent serves a request. The boards of all agents are read from the store by a task of its own
//! ([`learn`]) and looked at here in memory, so that no request waits for a database.

pub mod context;
pub mod learn;
pub mod lesson;
pub mod mirror;
pub mod program;
pub mod shadow;
pub mod webhook;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::Map;
use tokio::sync::{Mutex, Semaphore};
use waltz_coach::conversation::{ConversationAgent, SharedAgent};
use waltz_coach::upstream::Target;
use waltz_exchange::openai::ApiError;
use waltz_exchange::record::ExchangeRecord;
use waltz_exchange::release::Pause;
use waltz_exchange::variant::{Choice, DEFAULT_VARIANT, RequestContext, Variant};
use waltz_rollout::Board;
use waltz_rollout::patch::{self, Setup};
use waltz_store::{BoardKey, BoardStored, RolloutState};

use crate::live::Live;

/// Kinds of tasks per agent that have a board. Clients name kinds, and must not fill the memory with them.
const MOST_TASK_TYPES: usize = 64;
/// Answers in shadow at the same time.
const SHADOWS: usize = 4;

/// The boards as they were last read.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The version of the store that they are of.
    pub version: i64,
    /// Who paused everything, while it is.
    pub paused: Option<Pause>,
    boards: HashMap<String, HashMap<String, Arc<Board>>>,
}

/// What the gateway knows of variants.
#[derive(Debug)]
pub struct Variants {
    snapshot: ArcSwap<Snapshot>,
    /// A pause that is wanted on this gateway and that the store may not know of yet.
    held: ArcSwapOption<Pause>,
    shadows: Arc<Semaphore>,
    /// One at a time reads the boards, so that nothing older takes the place of what is newer.
    reading: Mutex<()>,
}

/// An agent as one of its variants.
#[derive(Debug)]
pub struct Served {
    /// The agent with the variant's prompt, model and parameters.
    pub agent: SharedAgent,
    /// What could have been chosen.
    pub choice: Choice,
    /// The candidate of a release in shadow, which answers too, and nobody sees it.
    pub shadow: Option<SharedAgent>,
}

impl Default for Variants {
    fn default() -> Self {
        Self {
            snapshot: ArcSwap::default(),
            held: ArcSwapOption::empty(),
            shadows: Arc::new(Semaphore::new(SHADOWS)),
            reading: Mutex::new(()),
        }
    }
}

impl Snapshot {
    /// The boards after some of them changed.
    fn next(&self, state: RolloutState, stored: Vec<BoardStored>) -> Self {
        let mut boards = self.boards.clone();
        for BoardStored { key, state, .. } in stored {
            let BoardKey { agent, task_type } = key;
            match serde_json::from_str(&state) {
                Ok(board) => {
                    boards.entry(agent).or_default().insert(task_type, Arc::new(board));
                }
                // The agent as it is configured serves, and not what an older state of the board says.
                Err(error) => {
                    tracing::error!(agent, task_type, %error, "a board cannot be read");
                    if let Some(boards) = boards.get_mut(&agent) {
                        boards.remove(&task_type);
                    }
                }
            }
        }
        Self { version: state.version, paused: state.paused, boards }
    }

    /// The board of an agent and a kind of task.
    pub fn board(&self, agent: &str, task_type: &str) -> Option<&Board> {
        self.boards.get(agent)?.get(task_type).map(Arc::as_ref)
    }

    fn has_room(&self, agent: &str) -> bool {
        self.boards.get(agent).is_none_or(|boards| boards.len() < MOST_TASK_TYPES)
    }
}

impl Variants {
    /// The boards as they were last read.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Whether everything is paused, by the store or on this gateway.
    pub fn is_paused(&self) -> bool {
        self.held.load().is_some() || self.snapshot.load().paused.is_some()
    }

    /// Pauses everything on this gateway alone, or ends that.
    pub fn hold(&self, pause: Option<Pause>) {
        self.held.store(pause.map(Arc::new));
    }

    /// Whether an upstream refused a request because of what the variant that asked has changed.
    pub(crate) fn is_to_blame(&self, record: &ExchangeRecord, error: &ApiError) -> bool {
        let snapshot = self.snapshot.load();
        let board = snapshot.board(&record.agent, &record.task_type);
        let entry = board.and_then(|board| board.entry(&record.variant).ok());
        entry.is_some_and(|entry| lesson::blames(error, &entry.variant.patch))
    }

    /// The variant of a named agent that serves a unit, such as a session. None where nothing is to be learned: the
    /// agent has no name, or clients made up too many kinds of tasks.
    pub fn serve(
        &self,
        agent: &SharedAgent,
        task_type: &str,
        unit: impl FnOnce() -> String,
        context: &impl Deref<Target = RequestContext>,
        live: &Live,
    ) -> Option<Served> {
        if !live.settings.enabled || !live.agents.iter().any(|named| Arc::ptr_eq(named, agent)) {
            return None;
        }
        let snapshot = self.snapshot.load();
        let Some(board) = snapshot.board(&agent.name, task_type) else {
            let choice = certain(DEFAULT_VARIANT);
            return snapshot.has_room(&agent.name).then(|| Served {
                agent: Arc::clone(agent),
                choice,
                shadow: None,
            });
        };
        let settings = &live.settings.variants;
        let paused = self.is_paused();
        let choice = if paused {
            certain(&board.safe_default)
        } else {
            board.choose(&unit(), context, &settings.rollout)
        };
        let variant = &board.entry(&choice.variant).ok()?.variant;
        let served = match patched(agent, variant, live) {
            Ok(served) => served,
            Err(why) => {
                // The configuration changed under the variant; the agent as it is answers, and nobody learns.
                tracing::warn!(
                    agent = agent.name,
                    variant = variant.name,
                    why,
                    "a variant cannot be applied"
                );
                return None;
            }
        };
        let shadow = match shadowed(board).filter(|_| !paused) {
            Some(candidate) => patched(agent, candidate, live).ok(),
            None => None,
        };
        Some(Served { agent: served, choice, shadow })
    }
}

/// The candidate of a release that nobody sees yet.
fn shadowed(board: &Board) -> Option<&Variant> {
    use waltz_exchange::release::ReleaseStatus::Running;
    let run =
        board.release.as_ref().filter(|run| run.release.status == Running && run.current().percent == 0)?;
    let free = !board.paused && board.frozen.is_none();
    board.entry(&run.release.candidate).ok().map(|entry| &entry.variant).filter(|_| free)
}

fn certain(variant: &str) -> Choice {
    let variant = variant.to_owned();
    Choice { candidates: [(variant.clone(), 1.0)].into(), variant, action_prob: 1.0 }
}

/// What an agent is asked with before any variant.
pub fn setup(agent: &ConversationAgent) -> Setup {
    Setup {
        prompt: agent.system_prompt.clone().unwrap_or_default(),
        model: agent.targets.first().map(|target| target.model.clone()).unwrap_or_default(),
        parameters: Map::new(),
    }
}

/// An agent with a variant's patch.
fn patched(agent: &SharedAgent, variant: &Variant, live: &Live) -> Result<SharedAgent, String> {
    if variant.patch.is_empty() && variant.name == agent.variant {
        return Ok(Arc::clone(agent));
    }
    let before = setup(agent);
    let Setup { prompt, model, parameters } =
        patch::apply(&variant.patch, &before).map_err(|error| error.to_string())?;
    let targets = if model == before.model { agent.targets.clone() } else { serving(&model, live) };
    if targets.is_empty() {
        return Err(format!("no upstream serves the model `{model}`"));
    }
    Ok(Arc::new(ConversationAgent {
        name: agent.name.clone(),
        variant: variant.name.clone(),
        targets,
        system_prompt: Some(prompt).filter(|prompt| !prompt.is_empty()),
        parameters,
        self_assess: agent.self_assess,
        task_type: agent.task_type.clone(),
    }))
}

fn serving(model: &str, live: &Live) -> Vec<Target> {
    let serving = live.upstreams.iter().filter(|upstream| upstream.serves(model));
    serving.map(|upstream| Target { upstream: Arc::clone(upstream), model: model.to_owned() }).collect()
}
