//! What people change on a board. Every change names the version that it was made for.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::proposal::{Proposal, ProposalStatus, ProposalType};
use waltz_exchange::release::ReleaseKind;
use waltz_exchange::rollback::DegradationMetrics;
use waltz_exchange::variant::{Modification, Variant, VariantStatus};

use super::{Board, BoardEvent, Entry, set_status};
use crate::release::{Candidate, Command, PROFILES, ReleaseRun};
use crate::settings::Settings;
use crate::{Error, Prior, review};

/// A change that a person asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A new variant.
    Add {
        /// Its name.
        name: String,
        /// What it changes in the agent.
        patch: Vec<Modification>,
        /// Whether it competes at once.
        live: bool,
        /// What similar agents suggest.
        prior: Option<Prior>,
    },
    /// A variant competes from now on; what was held against it is forgotten.
    Enter(String),
    /// A variant serves alone from now on.
    Apply(String),
    /// What serves is replaced by the variant.
    RollBackTo(String),
    /// A variant is taken out for good.
    Retire(String),
    /// Another variant to fall back on.
    SafeDefault(String),
    /// A variant is released step by step.
    Release {
        /// The release's id.
        id: String,
        /// The variant.
        variant: String,
        /// The plan.
        profile: String,
        /// The digest of what a person approved, where it begins with that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// A version that was never there before is released, in place of whatever was on its way or serves beside the safe
    /// default, which may be another one than was measured before.
    Introduce {
        /// The release's id.
        id: String,
        /// The version.
        variant: String,
        /// The plan.
        profile: String,
    },
    /// The release is steered.
    Steer(Command),
    /// The kill switch: experiments and the release stand still, and what serves has all traffic.
    Pause,
    /// The end of a pause.
    Resume,
    /// A person has looked; things may change by themselves again.
    Unfreeze,
}

impl Board {
    /// Makes a change if `expected` is still the board's version, and says what followed.
    pub fn change(
        &mut self,
        change: Change,
        by: &str,
        expected: u64,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<Vec<BoardEvent>, Error> {
        if expected != self.version {
            return Err(Error::Stale { expected, found: self.version });
        }
        let mut events = vec![BoardEvent::Changed { change: change.clone(), by: by.to_owned() }];
        match change {
            Change::Add { name, patch, live, prior } => self.add(&name, patch, live, prior)?,
            Change::Introduce { id, variant, profile } => {
                self.add(&variant, Vec::new(), false, None)?;
                events.extend(self.abandon_release("another version takes its place", at));
                let safe_default = self.safe_default.clone();
                if self.serving != safe_default {
                    self.serve(&safe_default);
                }
                if let Some(entry) = self.entries.get_mut(&safe_default) {
                    entry.forget();
                }
                self.start_release(id, variant, &profile, None, at, settings)?;
            }
            Change::Enter(name) => self.enter(&name)?,
            Change::Apply(name) => {
                self.check_can_serve(&name)?;
                events.extend(self.abandon_release("another variant was applied", at));
                self.serve(&name);
            }
            Change::RollBackTo(name) => {
                self.check_can_serve(&name)?;
                let from = self.serving.clone();
                events.extend(self.abandon_release("the control was rolled back", at));
                self.step_back(&from, &name);
                self.rollbacks.push(at);
                let reason = format!("Asked for by {by}");
                events.push(self.rollback_event(&from, &name, reason, DegradationMetrics::default(), at));
            }
            Change::Retire(name) => self.retire(&name)?,
            Change::SafeDefault(name) => {
                self.check_not_retired(&name)?;
                let variant = &self.entry(&name)?.variant;
                if variant.status == VariantStatus::RolledBack {
                    return Err(wrong(
                        variant,
                        "nothing falls back on what made things worse; enter it first",
                    ));
                }
                self.safe_default = name;
            }
            Change::Release { id, variant, profile, digest } => {
                if let Some(reason) = &self.frozen {
                    let why = format!("cannot start: the board is frozen ({reason}); unfreeze it first");
                    return Err(Error::Release { release: id, why });
                }
                self.start_release(id, variant, &profile, digest, at, settings)?;
            }
            Change::Steer(command) => {
                let Some(run) = self.release.as_mut() else {
                    return Err(Error::Release { release: String::new(), why: "does not exist".to_owned() });
                };
                let version = run.release.version;
                let event = run.command(command, by, version, at, &settings.release)?;
                events.extend(self.follow(Some(event)));
            }
            Change::Pause => self.paused = true,
            Change::Resume => self.paused = false,
            Change::Unfreeze => {
                self.frozen = None;
                self.rollbacks.clear();
                if let Some(entry) = self.entries.get_mut(&self.serving) {
                    // The baseline that was missed is not defended again; what it does now makes the next one.
                    entry.forget();
                }
            }
        }
        self.settle(at);
        self.version += 1;
        Ok(events)
    }

    /// Carries out a proposal that was approved: what is to serve is released step by step, under the digest of what
    /// was approved. `prior` is what similar agents suggest for a new variant.
    pub fn enact(
        &mut self,
        proposal: &Proposal,
        prior: Option<Prior>,
        expected: u64,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<Vec<BoardEvent>, Error> {
        let refuse =
            |why: &str| Error::Proposal { proposal: proposal.proposal_id.clone(), why: why.to_owned() };
        let approval = match (&proposal.decision, proposal.status) {
            (Some(approval), ProposalStatus::Approved) => approval,
            _ => return Err(refuse("is not approved")),
        };
        if approval.digest != review::digest(proposal) {
            return Err(refuse("was changed after it was approved"));
        }
        if (&proposal.agent_name, &proposal.task_type) != (&self.agent, &self.task_type) {
            return Err(refuse("speaks of another agent or task type"));
        }
        let variant = proposal.variant.clone();
        let mut changes = Vec::new();
        match proposal.proposal_type {
            ProposalType::RetireUnderperformingVariant => changes.push(Change::Retire(variant)),
            kind => {
                if self.running_release().is_some() {
                    return Err(refuse("must wait: another release is under way"));
                }
                if kind != ProposalType::PromoteVariantToDefault {
                    let (name, patch) = (variant.clone(), proposal.recommended_modifications.clone());
                    changes.push(Change::Add { name, patch, live: false, prior });
                }
                let id = proposal.proposal_id.replacen("prop", "rel", 1);
                let (profile, digest) = (PROFILES[0].to_owned(), Some(approval.digest.clone()));
                changes.push(Change::Release { id, variant, profile, digest });
            }
        }
        if expected != self.version {
            return Err(Error::Stale { expected, found: self.version });
        }
        // All of it, or nothing.
        let mut changed = self.clone();
        let mut events = Vec::new();
        for change in changes {
            events.extend(changed.change(change, &approval.by, changed.version, at, settings)?);
        }
        *self = changed;
        Ok(events)
    }

    fn add(
        &mut self,
        name: &str,
        patch: Vec<Modification>,
        live: bool,
        prior: Option<Prior>,
    ) -> Result<(), Error> {
        if let Some(entry) = self.entries.get(name) {
            return Err(wrong(&entry.variant, "the name is taken"));
        }
        let status = if live { VariantStatus::Live } else { VariantStatus::Draft };
        let (agent, task_type) = (self.agent.clone(), self.task_type.clone());
        let mut entry =
            Entry::new(Variant { agent, task_type, name: name.to_owned(), patch, status, version: 0 });
        entry.value.prior = prior;
        self.entries.insert(name.to_owned(), entry);
        Ok(())
    }

    fn enter(&mut self, name: &str) -> Result<(), Error> {
        self.check_not_retired(name)?;
        if let Some(entry) = self.entries.get_mut(name) {
            if entry.variant.status == VariantStatus::RolledBack {
                // What it earned before it fell says little of what it earns now.
                entry.forget();
            }
            set_status(entry, VariantStatus::Live);
            entry.guard.reset();
            entry.rival = None;
        }
        Ok(())
    }

    fn retire(&mut self, name: &str) -> Result<(), Error> {
        let entry = self.entry(name)?;
        if name == self.serving || name == self.safe_default {
            return Err(wrong(&entry.variant, "what serves or is fallen back on cannot be retired"));
        }
        if self.running_release().is_some_and(|run| run.release.candidate == name) {
            return Err(wrong(&entry.variant, "its release is under way; abort that first"));
        }
        if let Some(entry) = self.entries.get_mut(name) {
            set_status(entry, VariantStatus::Retired);
        }
        Ok(())
    }

    fn start_release(
        &mut self,
        id: String,
        variant: String,
        profile: &str,
        digest: Option<String>,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<(), Error> {
        self.check_can_serve(&variant)?;
        if self.running_release().is_some() {
            return Err(Error::Release {
                release: id,
                why: "cannot start while another is under way".to_owned(),
            });
        }
        let candidate = Candidate {
            id,
            kind: ReleaseKind::of(&self.agent, &self.task_type),
            scope: format!("{}/{}", self.agent, self.task_type),
            candidate: variant.clone(),
            control: self.serving.clone(),
            seed: format!("{}/{}", self.seed, variant),
            digest,
        };
        self.release = Some(ReleaseRun::start(candidate, profile, at, &settings.release)?);
        self.enter(&variant)
    }

    fn check_not_retired(&self, name: &str) -> Result<(), Error> {
        let variant = &self.entry(name)?.variant;
        if variant.status == VariantStatus::Retired {
            Err(wrong(variant, "it was retired for good"))
        } else {
            Ok(())
        }
    }

    fn check_can_serve(&self, name: &str) -> Result<(), Error> {
        self.check_not_retired(name)?;
        if name == self.serving {
            return Err(wrong(&self.entry(name)?.variant, "it serves already"));
        }
        Ok(())
    }
}

fn wrong(variant: &Variant, why: &'static str) -> Error {
    Error::WrongVariant { variant: variant.name.clone(), status: variant.status.as_str(), why }
}
