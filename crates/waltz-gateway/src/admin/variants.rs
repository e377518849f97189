//! Actions on variants: declare, let compete, apply, roll back, retire; look at them; carry learned values.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use waltz_exchange::id;
use waltz_exchange::release::PROGRAM;
use waltz_exchange::variant::{
    DEFAULT_VARIANT, Lesson, LessonKind, Modification, OutcomeClass, VariantOutcome,
};
use waltz_rollout::compare::{Comparison, compare};
use waltz_rollout::learned::{self, Learned};
use waltz_rollout::{Board, Change, Prior};
use waltz_store::{BoardKey, LessonStored};

use super::view::{BoardView, EventView, Explained};
use super::{Desk, Error, MOST, Step, beginning, held, open, parse};

/// The most that one variant changes in its agent.
const MOST_CHANGES: usize = 100;
const MOST_BYTES: usize = 64 * 1024;

/// A new variant, as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// The variant's name.
    pub name: String,
    /// What it changes in the agent.
    pub patch: Vec<Modification>,
    /// Whether it competes at once.
    #[serde(default)]
    pub live: bool,
}

/// What is done to a variant, or to a whole board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariantAction {
    /// It competes from now on.
    Enter,
    /// It serves alone from now on.
    Apply,
    /// It replaces what serves.
    Rollback,
    /// It is taken out for good.
    Retire,
    /// It is what is fallen back on.
    SafeDefault,
    /// Experiments and the release stand still.
    Pause,
    /// The end of a pause.
    Resume,
    /// A person has looked; things may change by themselves again.
    Unfreeze,
}

/// An action, as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// What is done.
    pub action: VariantAction,
    /// The variant; not needed for a whole board.
    #[serde(default)]
    pub variant: Option<String>,
    /// The version of the board that was looked at; none takes what is there.
    #[serde(default)]
    pub version: Option<u64>,
}

/// What came of values that were learned elsewhere.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Imported {
    /// Variants that have a first belief now.
    pub variants: usize,
    /// Values of variants that are not declared here: nothing was done with them.
    pub undeclared: usize,
}

impl Desk<'_> {
    /// All boards that can be read; whoever reads them for service says of the others.
    pub async fn boards(&self) -> Result<Vec<BoardView>, Error> {
        let paused = held(self.store).await?;
        let stored = self.store.boards().await?;
        let read = stored.iter().filter_map(|stored| parse(&stored.key, &stored.state).ok());
        Ok(read
            .map(|mut board| {
                board.stand(paused, self.at);
                BoardView::of(&board, self.at, self.settings)
            })
            .collect())
    }

    /// A board with an explanation of every value.
    pub async fn explained(&self, key: &BoardKey) -> Result<Explained, Error> {
        let (version, mut board) = open(self.store, key).await?;
        if version == 0 {
            return Err(unknown(key));
        }
        board.stand(held(self.store).await?, self.at);
        let mut explained = Explained::of(&board, self.at, self.settings);
        for (name, entry) in &board.entries {
            // What was forgotten, because the variant entered anew, is no part of the value.
            let counted = entry.value.visits + entry.value.infrastructure;
            if counted > 0 {
                let outcomes = one_each(self.store.lessons_of(key, name, MOST).await?);
                let newest = usize::try_from(counted).unwrap_or(usize::MAX).min(outcomes.len());
                explained.explain(name, &outcomes[outcomes.len() - newest..], counted);
            }
        }
        Ok(explained)
    }

    /// What happened, newest first.
    pub async fn history(
        &self,
        agent: Option<&str>,
        task_type: Option<&str>,
    ) -> Result<Vec<EventView>, Error> {
        let events = self.store.rollout_events(agent, task_type, MOST).await?;
        Ok(events.into_iter().map(EventView::from).collect())
    }

    /// Declares a variant.
    pub async fn add(&self, add: &Add) -> Result<BoardView, Error> {
        let Add { agent, task_type, name, patch, live } = add;
        for (what, word) in [("task type", task_type), ("name", name)] {
            if !id::is_name(word) {
                let allowed = "1 to 128 letters, digits or any of . _ : -";
                return Err(Error::Invalid(format!(
                    "the {what} must be {allowed}, not `{}`",
                    beginning(word)
                )));
            }
        }
        // Every request carries its board's patches along.
        let bytes: usize = patch.iter().map(|change| json!(change).to_string().len()).sum();
        if patch.len() > MOST_CHANGES || bytes > MOST_BYTES {
            return Err(Error::Invalid(format!(
                "a variant changes at most {MOST_CHANGES} things with {MOST_BYTES} bytes in all, not {} with {bytes}",
                patch.len()
            )));
        }
        let Some(known) = self.agent(agent) else {
            return Err(Error::Unknown { what: "agent", name: agent.clone() });
        };
        known.check(patch)?;
        let key = BoardKey { agent: agent.clone(), task_type: task_type.clone() };
        let prior = self.prior(&key, name, patch).await?;
        let change = Change::Add { name: name.clone(), patch: patch.clone(), live: *live, prior };
        self.change(&key, &change, None).await
    }

    /// What similar agents learned of a variant of the same name or the same changes, for the same kind of task.
    pub(super) async fn prior(
        &self,
        key: &BoardKey,
        name: &str,
        patch: &[Modification],
    ) -> Result<Option<Prior>, Error> {
        let Some(own) = self.agent(&key.agent) else { return Ok(None) };
        let mut similar = Vec::new();
        for stored in self.store.boards().await? {
            let other = self.agent(&stored.key.agent);
            let Some(other) =
                other.filter(|other| other.name != own.name && stored.key.task_type == key.task_type)
            else {
                continue;
            };
            let likeness = learned::similarity(&own.abilities, &other.abilities);
            for entry in parse(&stored.key, &stored.state)?.entries.into_values() {
                let same = !patch.is_empty() && entry.variant.patch == patch;
                if same || entry.variant.name == name {
                    similar.push((entry.value, likeness));
                }
            }
        }
        Ok(learned::prior(similar.iter().map(|(value, likeness)| (value, *likeness))))
    }

    /// Does something to a variant, or to a board.
    pub async fn act(&self, key: &BoardKey, act: &Act) -> Result<BoardView, Error> {
        use VariantAction::{Apply, Enter, Pause, Resume, Retire, Rollback, SafeDefault, Unfreeze};
        if self.store.board(key).await?.is_none() {
            return Err(unknown(key));
        }
        let name = || act.variant.clone().ok_or_else(|| Error::Invalid("`variant` must be given".to_owned()));
        let change = match act.action {
            Enter => Change::Enter(name()?),
            Apply => Change::Apply(name()?),
            Rollback => Change::RollBackTo(name()?),
            Retire => Change::Retire(name()?),
            SafeDefault => Change::SafeDefault(name()?),
            Pause => Change::Pause,
            Resume => Change::Resume,
            Unfreeze => Change::Unfreeze,
        };
        self.change(key, &change, act.version).await
    }

    pub(super) async fn change(
        &self,
        key: &BoardKey,
        change: &Change,
        expected: Option<u64>,
    ) -> Result<BoardView, Error> {
        if key.agent == PROGRAM {
            self.check_configured(change)?;
        }
        let rollout = &self.settings.rollout;
        let work = |board: &mut Board| {
            self.check_applicable(board, change)?;
            let expected = expected.unwrap_or(board.version);
            Ok(Step::from(board.change(change.clone(), self.by, expected, self.at, rollout)?))
        };
        let (board, _) = self.update(key, work).await?;
        Ok(BoardView::of(&board, self.at, self.settings))
    }

    /// Of the program itself only the version that the configuration names can be given traffic: no other is in memory.
    pub(super) fn check_configured(&self, change: &Change) -> Result<(), Error> {
        let Some(variant) = gaining(change) else { return Ok(()) };
        if self.candidate == Some(variant) || variant == DEFAULT_VARIANT {
            return Ok(());
        }
        Err(Error::Invalid(format!("`{variant}` is not the candidate that the configuration names")))
    }

    /// What is given traffic must be something that its agent can answer with: the configuration may have changed since
    /// it was declared.
    pub(super) fn check_applicable(&self, board: &Board, change: &Change) -> Result<(), Error> {
        let entry = gaining(change).and_then(|variant| board.entries.get(variant));
        match (self.agent(&board.agent), entry) {
            (Some(agent), Some(entry)) => agent.check(&entry.variant.patch),
            _ => Ok(()),
        }
    }

    /// Two variants head to head.
    pub async fn compare(&self, key: &BoardKey, first: &str, second: &str) -> Result<Comparison, Error> {
        let (_, board) = open(self.store, key).await?;
        Ok(compare(&board.entry(first)?.value, &board.entry(second)?.value)?)
    }

    /// What was learned, without any text.
    pub async fn export(&self) -> Result<Learned, Error> {
        let stored = self.store.boards().await?;
        let boards: Result<Vec<_>, Error> =
            stored.iter().map(|stored| parse(&stored.key, &stored.state)).collect();
        Ok(learned::export(&boards?))
    }

    /// Takes what was learned elsewhere as a first belief. Variants must be declared here first.
    pub async fn import(&self, learned: &Learned) -> Result<Imported, Error> {
        let mut taken = 0;
        for stored in self.store.boards().await? {
            let here = learned::import(&mut parse(&stored.key, &stored.state)?, learned)?;
            if here > 0 {
                let work = |board: &mut Board| {
                    learned::import(board, learned)?;
                    Ok(Step::from(Vec::new()))
                };
                self.update(&stored.key, work).await?;
            }
            taken += here;
        }
        Ok(Imported { variants: taken, undeclared: learned.values.len().saturating_sub(taken) })
    }
}

/// The variant that a change gives traffic, now or when another falls.
fn gaining(change: &Change) -> Option<&str> {
    match change {
        Change::Release { variant, .. }
        | Change::Introduce { variant, .. }
        | Change::Enter(variant)
        | Change::Apply(variant)
        | Change::RollBackTo(variant)
        | Change::SafeDefault(variant) => Some(variant),
        _ => None,
    }
}

/// One outcome for each answer, oldest first: a report stands in the place of what the judge had said.
fn one_each(lessons: Vec<LessonStored>) -> Vec<VariantOutcome> {
    let mut places = HashMap::new();
    let mut outcomes = Vec::new();
    for LessonStored { lesson: Lesson { exchange_id, kind, outcome, .. }, .. } in lessons {
        let judged = |place: &usize| {
            let earlier: &VariantOutcome = &outcomes[*place];
            kind == LessonKind::Reported
                && earlier.class != OutcomeClass::Infrastructure
                && outcome.class != OutcomeClass::Infrastructure
        };
        if let Some(place) = places.get(&exchange_id).copied().filter(judged) {
            outcomes[place] = outcome;
        } else {
            places.insert(exchange_id, outcomes.len());
            outcomes.push(outcome);
        }
    }
    outcomes
}

fn unknown(key: &BoardKey) -> Error {
    Error::Unknown { what: "board", name: format!("{}/{}", key.agent, key.task_type) }
}
