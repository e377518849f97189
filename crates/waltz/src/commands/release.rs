//! `waltz release`.

use anyhow::Context;
use serde_json::json;
use waltz_gateway::admin::{Desk, ReleaseView, Start};
use waltz_rollout::release::{Assessment, Command};

use super::variants::{Office, Where, Who, note_pause, pairs, refused, say};
use super::{Exit, runtime};

/// Bring a variant to all traffic step by step, or stop everything.
///
/// Works on the database, as `waltz variants` does.
#[derive(clap::Args)]
pub(crate) struct Releases {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    who: Who,
}

#[derive(clap::Subcommand)]
enum Action {
    /// All releases, running or ended last.
    List,
    /// One release.
    Status {
        /// The release.
        id: String,
    },
    /// Start a release.
    Start {
        #[command(flatten)]
        place: Where,
        /// The variant.
        variant: String,
        /// standard, 7day or 4week.
        #[arg(long, default_value = "standard")]
        profile: String,
    },
    /// Go on to the next step now.
    Promote {
        /// The release.
        id: String,
    },
    /// Keep the share and do not go on.
    Hold {
        /// The release.
        id: String,
    },
    /// Give the candidate up.
    Abort {
        /// The release.
        id: String,
    },
    /// Take the candidate's traffic away for now; with --all, everything goes back to stage 1 and the safe defaults.
    Pause {
        #[command(flatten)]
        target: Target,
    },
    /// Go on after a hold or a pause.
    Resume {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(clap::Args)]
struct Target {
    /// The release.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,
    /// Everything: the kill switch.
    #[arg(long)]
    all: bool,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

impl Releases {
    pub(crate) fn run(self) -> Result<(), Exit> {
        runtime()?.block_on(async {
            let office = match self.action {
                Action::Pause { .. } | Action::Resume { .. } => Office::for_switch(&self.who).await?,
                _ => Office::open(&self.who).await?,
            };
            let done = act(&office.desk(), self.action, self.who.json).await;
            office.close().await.context("cannot close the store")?;
            done
        })
    }
}

async fn act(desk: &Desk<'_>, action: Action, json: bool) -> Result<(), Exit> {
    let (id, command) = match action {
        Action::List => {
            note_pause(desk).await?;
            let releases = desk.releases().await.map_err(refused)?;
            return say(&releases, json, |releases| releases.iter().map(line).collect());
        }
        Action::Status { id } => {
            let mut releases = desk.releases().await.map_err(refused)?;
            releases.retain(|view| view.release.id == id);
            let unknown = || Exit { code: 1, message: format!("there is no release `{id}`") };
            let view = releases.pop().ok_or_else(unknown)?;
            return say(&view, json, |view| pairs(&json!(view)));
        }
        Action::Start { place: Where { agent, task_type }, variant, profile } => {
            let start = Start { agent, task_type, variant, profile };
            return say(&desk.start(&start).await.map_err(refused)?, json, |view| vec![line(view)]);
        }
        Action::Pause { target: Target { id: None, reason, .. } } => {
            desk.pause_all(reason.as_deref()).await.map_err(refused)?;
            return say(&json!({"paused": true}), json, pairs);
        }
        Action::Resume { target: Target { id: None, reason, .. } } => {
            desk.resume_all(reason.as_deref()).await.map_err(refused)?;
            return say(&json!({"paused": false}), json, pairs);
        }
        Action::Pause { target: Target { id: Some(id), .. } } => (id, Command::Pause),
        Action::Resume { target: Target { id: Some(id), .. } } => (id, Command::Resume),
        Action::Promote { id } => (id, Command::Promote),
        Action::Hold { id } => (id, Command::Hold),
        Action::Abort { id } => (id, Command::Abort),
    };
    say(&desk.steer(&id, command).await.map_err(refused)?, json, |view| vec![line(view)])
}

/// A release in one line, and why its step does not go on.
pub(super) fn line(view: &ReleaseView) -> String {
    let release = &view.release;
    let why = match &view.assessment {
        Some(Assessment::Wait(missing)) => format!("; waits: {}", missing.join("; ")),
        Some(Assessment::Ready(_)) => "; may go on".to_owned(),
        None => String::new(),
    };
    format!(
        "{}  {}  {} -> {}  step {} of {}, {} %  {}{why}",
        release.id,
        release.scope,
        release.control,
        release.candidate,
        release.step + 1,
        release.steps.len(),
        view.percent,
        release.status.as_str()
    )
}
