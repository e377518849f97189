//! Actions on releases, and the kill switch.

use serde::Deserialize;
use waltz_exchange::id;
use waltz_exchange::release::Pause;
use waltz_rollout::Change;
use waltz_rollout::release::{Command, PROFILES};
use waltz_store::{BoardKey, EventStored, RolloutChange};

use super::view::ReleaseView;
use super::{Desk, Error, Step, beginning, parse};

/// A release, as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// The variant.
    pub variant: String,
    /// The plan.
    #[serde(default = "standard")]
    pub profile: String,
}

fn standard() -> String {
    "standard".to_owned()
}

fn new_id() -> String {
    id::new_request_id().replacen("req_", "rel_", 1)
}

impl Desk<'_> {
    /// The releases of all boards: each has at most one, running or ended last.
    pub async fn releases(&self) -> Result<Vec<ReleaseView>, Error> {
        let mut releases = Vec::new();
        for board in self.boards().await? {
            releases.extend(board.release);
        }
        Ok(releases)
    }

    /// Starts a release.
    pub async fn start(&self, start: &Start) -> Result<ReleaseView, Error> {
        let Start { agent, task_type, variant, profile } = start;
        if !PROFILES.contains(&profile.as_str()) {
            let known = PROFILES.join(", ");
            return Err(Error::Invalid(format!(
                "`profile` must be one of {known}, not `{}`",
                beginning(profile)
            )));
        }
        let key = BoardKey { agent: agent.clone(), task_type: task_type.clone() };
        self.release(&key, variant, profile).await
    }

    /// Releases a version of the program that was never there before.
    pub(crate) async fn introduce(&self, key: &BoardKey, variant: &str) -> Result<(), Error> {
        let profile = self.settings.release_profile.clone();
        let change = Change::Introduce { id: new_id(), variant: variant.to_owned(), profile };
        self.change(key, &change, None).await.map(|_| ())
    }

    pub(super) fn new_release(variant: &str, profile: &str) -> Change {
        let id = new_id();
        Change::Release { id, variant: variant.to_owned(), profile: profile.to_owned(), digest: None }
    }

    async fn release(&self, key: &BoardKey, variant: &str, profile: &str) -> Result<ReleaseView, Error> {
        let board = self.change(key, &Self::new_release(variant, profile), None).await?;
        board.release.ok_or(Error::Busy)
    }

    /// Steers a release.
    pub async fn steer(&self, id: &str, command: Command) -> Result<ReleaseView, Error> {
        let key = self.board_of(id).await?;
        let board = self.change(&key, &Change::Steer(command), None).await?;
        board.release.ok_or(Error::Busy)
    }

    async fn board_of(&self, release: &str) -> Result<BoardKey, Error> {
        for stored in self.store.boards().await? {
            // Whoever reads the boards says of one that cannot be read.
            let Ok(board) = parse(&stored.key, &stored.state) else { continue };
            if board.release.is_some_and(|run| run.release.id == release) {
                return Ok(stored.key);
            }
        }
        Err(Error::Unknown { what: "release", name: release.to_owned() })
    }

    /// Who paused everything, while it is.
    pub async fn paused(&self) -> Result<Option<Pause>, Error> {
        Ok(self.store.rollout_state().await?.paused)
    }

    /// The kill switch: every agent serves its safe default, and stage 1 serves, until [`Desk::resume_all`].
    pub async fn pause_all(&self, reason: Option<&str>) -> Result<(), Error> {
        // Nothing that is said of it may keep anybody from stopping: what is too long is cut.
        let reason = reason.map(beginning);
        let pause = Pause { by: self.by.to_owned(), at: self.at, reason: reason.clone() };
        self.turn(Some(pause), "paused_all", reason.as_deref()).await
    }

    /// The end of [`Desk::pause_all`].
    pub async fn resume_all(&self, reason: Option<&str>) -> Result<(), Error> {
        // Boards are told on both sides of the change, so that no time between counts as time of a step.
        self.tell_boards().await?;
        self.turn(None, "resumed_all", reason.map(beginning).as_deref()).await?;
        self.tell_boards().await
    }

    /// Lets boards on which something is under way take note of whether everything is paused.
    async fn tell_boards(&self) -> Result<(), Error> {
        for stored in self.store.boards().await? {
            // One that cannot be read keeps nothing from going on, and whoever else writes one tells it the same.
            if !parse(&stored.key, &stored.state).is_ok_and(|board| board.is_moving()) {
                continue;
            }
            match self.update(&stored.key, |_| Ok(Step::from(Vec::new()))).await {
                Ok(_) | Err(Error::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn turn(&self, pause: Option<Pause>, event: &str, reason: Option<&str>) -> Result<(), Error> {
        let event = serde_json::json!({"event": event, "by": self.by, "reason": reason}).to_string();
        let everywhere = BoardKey { agent: String::new(), task_type: String::new() };
        let change = RolloutChange {
            pause: Some(pause),
            events: vec![EventStored { number: 0, at: self.at, key: everywhere, event, told: true }],
            ..RolloutChange::default()
        };
        // It names no version, so that nobody can be faster.
        self.store.change_rollout(&change).await?;
        Ok(())
    }
}
