//! `waltz variants`.

mod evolve;
mod lookback;
mod office;
mod text;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use waltz_exchange::proposal::ProposalStatus;
use waltz_exchange::release::Pause;
use waltz_exchange::rollback::RollbackStatus;
use waltz_gateway::admin::{Act, Add, Decide, Desk, Judgement};
use waltz_rollout::review;
use waltz_store::BoardKey;

use super::{ConfigOptions, Exit, note, print, runtime};
pub(crate) use office::Office;
use text::{board, explained, proposal, queue, rollback};

/// Look at the variants of agents, and change which of them serve.
///
/// Works on the database, beside running gateways or without one; every gateway on it sees a change within a second.
#[derive(clap::Args)]
pub(crate) struct Variants {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    who: Who,
}

/// Who acts, and how results are printed.
#[derive(clap::Args)]
pub(crate) struct Who {
    /// Who acts, for the record; the user of this shell when left out.
    #[arg(long, global = true, value_name = "NAME")]
    by: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The configuration file; `waltz.toml` in this folder is taken if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the database and the journal.
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Who {
    /// Where the configuration is.
    fn options(&self) -> ConfigOptions {
        ConfigOptions { config: self.config.clone(), data: self.data.clone() }
    }
}

/// The agent and the kind of task.
#[derive(clap::Args)]
pub(crate) struct Where {
    /// The agent.
    pub(crate) agent: String,
    /// The kind of task.
    pub(crate) task_type: String,
}

#[derive(clap::Subcommand)]
enum Action {
    /// All agents and kinds of tasks with their variants.
    List,
    /// One agent and kind of task, with an explanation of every value.
    Show {
        #[command(flatten)]
        place: Where,
    },
    /// What happened, newest first.
    History {
        /// Only this agent.
        agent: Option<String>,
        /// Only this kind of task.
        task_type: Option<String>,
    },
    /// Two variants head to head.
    Compare {
        #[command(flatten)]
        place: Where,
        /// The first variant.
        first: String,
        /// The second variant.
        second: String,
    },
    /// Declare a variant.
    Add {
        #[command(flatten)]
        place: Where,
        /// Its name.
        name: String,
        /// What it changes: a JSON list of {"section"?, "operation", "content"}, {"parameter", "value"} or {"model"}.
        #[arg(long, value_name = "FILE")]
        patch: PathBuf,
        /// Let it compete at once.
        #[arg(long)]
        live: bool,
    },
    /// Let a variant enter, apply or retire, go back to it, make it the safe default; or pause, resume or unfreeze the whole.
    Change {
        #[command(flatten)]
        place: Where,
        /// enter, apply, rollback, retire, safe_default, pause, resume or unfreeze.
        action: String,
        /// The variant.
        variant: Option<String>,
    },
    /// Replace what serves by another variant.
    Rollback {
        #[command(flatten)]
        place: Where,
        /// The variant to go back to.
        variant: String,
    },
    /// Rollbacks, newest first.
    Rollbacks,
    /// Agree with a rollback that happened by itself.
    Confirm {
        /// The rollback.
        id: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Disagree with a rollback: the variant is released again, step by step.
    Reinstate {
        /// The rollback.
        id: String,
        /// Why.
        #[arg(long)]
        reason: String,
        /// standard, 7day or 4week.
        #[arg(long, default_value = "standard")]
        profile: String,
    },
    /// What waits for a decision.
    Proposals {
        /// What was decided as well.
        #[arg(long)]
        all: bool,
        /// Print a sheet.
        #[arg(long)]
        csv: bool,
    },
    /// Propose what the numbers suggest.
    Propose,
    Evolve(Box<evolve::Evolve>),
    Lookback(lookback::Lookback),
    /// Approve a proposal, and do what it says.
    Approve {
        /// The proposal.
        id: String,
        /// The digest of what was looked at.
        #[arg(long)]
        digest: Option<String>,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Reject a proposal.
    Reject {
        /// The proposal.
        id: String,
        /// Why.
        #[arg(long)]
        reason: String,
    },
    /// Put a proposal off.
    Defer {
        /// The proposal.
        id: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Print what was learned, without any text, for `import` elsewhere.
    Export,
    /// Take what was learned elsewhere as a first belief.
    Import {
        /// What `export` printed; standard input when `-`.
        file: PathBuf,
    },
}

/// Prints a value as JSON, or as lines for people.
pub(crate) fn say<T: Serialize>(
    value: &T,
    as_json: bool,
    lines: impl FnOnce(&T) -> Vec<String>,
) -> Result<(), Exit> {
    if as_json {
        return print(&format!("{:#}", json!(value)));
    }
    lines(value).iter().try_for_each(|line| print(line))
}

/// An action that was refused.
pub(crate) fn refused(error: waltz_gateway::admin::Error) -> Exit {
    match error {
        waltz_gateway::admin::Error::Store(error) => {
            anyhow::Error::new(error).context("the store cannot answer").into()
        }
        error => Exit { code: 1, message: error.to_string() },
    }
}

impl Variants {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let action = match self.action {
            Action::Evolve(evolve) => return evolve.run(&self.who),
            Action::Lookback(lookback) => return lookback.run(&self.who),
            action => action,
        };
        runtime()?.block_on(async {
            let office = Office::open(&self.who).await?;
            if let Action::Add { place, .. } = &action {
                office.note_task_type(place);
            }
            let done = act(&office.desk(), action, self.who.json).await;
            office.close().await.context("cannot close the store")?;
            done
        })
    }
}

/// Says that everything is paused, while it is: shares are then not what requests meet.
pub(crate) async fn note_pause(desk: &Desk<'_>) -> Result<(), Exit> {
    if let Some(Pause { by, at, reason }) = desk.paused().await.map_err(refused)? {
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        note(&format!("everything is paused by {by} since {at}{why}; the safe defaults serve"));
    }
    Ok(())
}

async fn act(desk: &Desk<'_>, action: Action, json: bool) -> Result<(), Exit> {
    if matches!(action, Action::List | Action::Show { .. }) {
        note_pause(desk).await?;
    }
    match action {
        Action::List => say(&desk.boards().await.map_err(refused)?, json, |boards| {
            boards.iter().flat_map(board).collect()
        }),
        Action::Show { place } => say(&desk.explained(&place.key()).await.map_err(refused)?, json, explained),
        Action::History { agent, task_type } => {
            let events = desk.history(agent.as_deref(), task_type.as_deref()).await.map_err(refused)?;
            say(&events, json, |events| {
                let line = |event: &waltz_gateway::admin::EventView| {
                    format!("{}  {}/{}  {}", event.at, event.agent, event.task_type, event.event)
                };
                events.iter().map(line).collect()
            })
        }
        Action::Compare { place, first, second } => {
            let found = desk.compare(&place.key(), &first, &second).await.map_err(refused)?;
            say(&found, json, |found| pairs(&json!(found)))
        }
        Action::Add { place: Where { agent, task_type }, name, patch, live } => {
            let add = Add { agent, task_type, name, patch: read(&patch)?, live };
            say(&desk.add(&add).await.map_err(refused)?, json, board)
        }
        Action::Change { place, action, variant } => {
            let known = serde_json::from_value(Value::String(action));
            let action =
                known.map_err(|error| Exit { code: 2, message: format!("no such action: {error}") })?;
            let act = Act { action, variant, version: None };
            say(&desk.act(&place.key(), &act).await.map_err(refused)?, json, board)
        }
        Action::Rollback { place, variant } => {
            let action = waltz_gateway::admin::VariantAction::Rollback;
            let act = Act { action, variant: Some(variant), version: None };
            say(&desk.act(&place.key(), &act).await.map_err(refused)?, json, board)
        }
        other => decide(desk, other, json).await,
    }
}

async fn decide(desk: &Desk<'_>, action: Action, json: bool) -> Result<(), Exit> {
    let judgement = |decision, reason, profile| Judgement { decision, reason, profile };
    let (id, verdict) = match action {
        Action::Rollbacks => {
            let found = desk.rollbacks(None).await.map_err(refused)?;
            return say(&found, json, |found| found.iter().map(rollback).collect());
        }
        Action::Confirm { id, reason } => {
            let judged = desk.judge(&id, &judgement(RollbackStatus::Confirmed, reason, None)).await;
            return say(&judged.map_err(refused)?, json, |view| vec![rollback(view)]);
        }
        Action::Reinstate { id, reason, profile } => {
            let wish = judgement(RollbackStatus::Reinstated, Some(reason), Some(profile));
            return say(&desk.judge(&id, &wish).await.map_err(refused)?, json, |view| vec![rollback(view)]);
        }
        Action::Proposals { csv: true, .. } => {
            let sheet = review::csv(&desk.proposals(None).await.map_err(refused)?);
            return print(sheet.trim_end());
        }
        Action::Proposals { all, .. } => {
            return say(&desk.queue(None, all).await.map_err(refused)?, json, queue);
        }
        Action::Propose => {
            let new = desk.propose_now().await.map_err(refused)?;
            return say(&new, json, |new| new.iter().map(proposal).collect());
        }
        Action::Export => return print(&format!("{:#}", json!(desk.export().await.map_err(refused)?))),
        Action::Import { file } => {
            let imported = desk.import(&read(&file)?).await.map_err(refused)?;
            if imported.undeclared > 0 {
                let left = imported.undeclared;
                note(&format!(
                    "{left} values are of variants that are not here: `waltz variants add` them first"
                ));
            }
            return say(&json!(imported), json, pairs);
        }
        Action::Approve { id, digest, reason } => {
            (id, Decide { decision: ProposalStatus::Approved, reason, digest })
        }
        Action::Reject { id, reason } => {
            (id, Decide { decision: ProposalStatus::Rejected, reason: Some(reason), digest: None })
        }
        Action::Defer { id, reason } => {
            (id, Decide { decision: ProposalStatus::Deferred, reason, digest: None })
        }
        // They were done before.
        _ => return Ok(()),
    };
    say(&desk.decide(&id, &verdict).await.map_err(refused)?, json, |decided| vec![proposal(decided)])
}

impl Where {
    pub(crate) fn key(self) -> BoardKey {
        BoardKey { agent: self.agent, task_type: self.task_type }
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Exit> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    }
    let wrong = |error| Exit { code: 2, message: format!("`{}` cannot be read: {error}", file.display()) };
    serde_json::from_str(&text).map_err(wrong)
}

/// The fields of an object, one a line.
pub(crate) fn pairs(value: &Value) -> Vec<String> {
    value.as_object().into_iter().flatten().map(|(name, value)| format!("{name:24} {value}")).collect()
}
