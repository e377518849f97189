//! The queue of changes that wait for a decision.

use serde::{Deserialize, Serialize};
use waltz_exchange::proposal::{Proposal, ProposalStatus};
use waltz_exchange::release::PROGRAM;
use waltz_exchange::rollback::RollbackStatus;
use waltz_rollout::propose::{ask, propose};
use waltz_rollout::review::{self, Decision, digest, expire, is_open};
use waltz_rollout::{Board, BoardEvent};
use waltz_store::{BoardKey, EventStored, ProposalStored, RolloutChange};

use super::rollbacks::RollbackView;
use super::{Desk, Error, MOST, Step, parse};

/// A decision, as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Approved, rejected or deferred.
    pub decision: ProposalStatus,
    /// Why; needed to reject.
    #[serde(default)]
    pub reason: Option<String>,
    /// The digest of the proposal that was looked at; none takes what is there.
    #[serde(default)]
    pub digest: Option<String>,
}

/// All that people have to decide on.
#[derive(Clone, Debug, Serialize)]
pub struct Queue {
    /// Proposals, the surest first.
    pub proposals: Vec<Listed>,
    /// Rollbacks that happened by themselves and wait to be looked at.
    pub rollbacks: Vec<RollbackView>,
}

/// A proposal with the digest to decide on it by.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The proposal.
    #[serde(flatten)]
    pub proposal: Proposal,
    /// The digest of what is decided on.
    pub digest: String,
}

impl Desk<'_> {
    /// What waits for a decision, or proposals of one status, or of all.
    pub async fn queue(&self, status: Option<ProposalStatus>, all: bool) -> Result<Queue, Error> {
        let mut proposals = self.proposals(status).await?;
        if status.is_none() && !all {
            proposals.retain(is_open);
        }
        review::sort(&mut proposals);
        let listed = |proposal: Proposal| Listed { digest: digest(&proposal), proposal };
        Ok(Queue {
            proposals: proposals.into_iter().map(listed).collect(),
            rollbacks: self.rollbacks(Some(RollbackStatus::Waiting)).await?,
        })
    }

    /// Proposals, newest first, of one status or of all.
    pub async fn proposals(&self, status: Option<ProposalStatus>) -> Result<Vec<Proposal>, Error> {
        let stored = self.store.proposals(status, MOST).await?;
        Ok(stored.into_iter().map(|stored| stored.proposal).collect())
    }

    /// Proposes what the numbers suggest, and returns what is new. `since` is when that was done last.
    pub async fn propose(&self, since: jiff::Timestamp) -> Result<Vec<Proposal>, Error> {
        let known = self.proposals(None).await?;
        let mut new = Vec::new();
        // A version of the program is proposed by whoever configures it.
        let boards = self.store.boards().await?.into_iter().filter(|stored| stored.key.agent != PROGRAM);
        for stored in boards {
            // Whoever reads the boards says of one that cannot be read.
            let Ok(board) = parse(&stored.key, &stored.state) else { continue };
            new.extend(propose(&board, &known, self.at, &self.settings.rollout));
        }
        let proposals =
            new.iter().map(|proposal| ProposalStored { version: 0, proposal: proposal.clone() }).collect();
        let change =
            RolloutChange { proposals, proposed_at: Some((since, self.at)), ..RolloutChange::default() };
        // Where another gateway was faster, what it proposed is there.
        Ok(if self.store.change_rollout(&change).await? { new } else { Vec::new() })
    }

    /// Asks people about variants of a board that only they may apply.
    pub(crate) async fn ask(&self, board: &Board) -> Result<(), Error> {
        let new = ask(board, &self.proposals(None).await?, self.at, &self.settings.rollout);
        let proposals: Vec<_> =
            new.into_iter().map(|proposal| ProposalStored { version: 0, proposal }).collect();
        if !proposals.is_empty() {
            self.store.change_rollout(&RolloutChange { proposals, ..RolloutChange::default() }).await?;
        }
        Ok(())
    }

    /// Proposes whatever the numbers suggest now.
    pub async fn propose_now(&self) -> Result<Vec<Proposal>, Error> {
        let since = self.store.rollout_state().await?.proposed_at;
        self.propose(since).await
    }

    /// Puts what somebody suggests into the queue; not where the same change waits already, or was decided on.
    pub async fn suggest(&self, proposal: &Proposal) -> Result<bool, Error> {
        let same = |known: &Proposal| {
            (&known.agent_name, &known.task_type) == (&proposal.agent_name, &proposal.task_type)
                && (known.proposal_type, &known.variant) == (proposal.proposal_type, &proposal.variant)
        };
        let is_known =
            |known: &Proposal| known.proposal_id == proposal.proposal_id || (is_open(known) && same(known));
        if self.proposals(None).await?.iter().any(is_known) {
            return Ok(false);
        }
        let proposals = vec![ProposalStored { version: 0, proposal: proposal.clone() }];
        Ok(self.store.change_rollout(&RolloutChange { proposals, ..RolloutChange::default() }).await?)
    }

    /// Closes what waited for too long.
    pub async fn expire(&self) -> Result<usize, Error> {
        let mut expired = 0;
        for status in [ProposalStatus::Pending, ProposalStatus::Deferred] {
            for ProposalStored { version, proposal } in self.store.proposals(Some(status), MOST).await? {
                let Some(proposal) = expire(&proposal, self.at) else { continue };
                let proposals = vec![ProposalStored { version, proposal }];
                let change = RolloutChange { proposals, ..RolloutChange::default() };
                expired += usize::from(self.store.change_rollout(&change).await?);
            }
        }
        Ok(expired)
    }

    /// Decides on a proposal. What is approved is done in the same step.
    pub async fn decide(&self, id: &str, decide: &Decide) -> Result<Proposal, Error> {
        let Some(ProposalStored { version, proposal }) = self.store.proposal(id).await? else {
            return Err(Error::Unknown { what: "proposal", name: id.to_owned() });
        };
        let seen = decide.digest.clone().unwrap_or_else(|| digest(&proposal));
        let decision = Decision {
            status: decide.decision,
            by: self.by,
            reason: decide.reason.as_deref(),
            digest: &seen,
            allow_self_approval: self.settings.allow_self_approval,
        };
        let decided = review::review(&proposal, decision, self.at)?;
        let key = BoardKey { agent: decided.agent_name.clone(), task_type: decided.task_type.clone() };
        let told = serde_json::json!({
            "event": "proposal", "proposal_id": decided.proposal_id, "status": decided.status, "digest": seen,
            "by": self.by, "reason": decide.reason,
        });
        let change = RolloutChange {
            proposals: vec![ProposalStored { version, proposal: decided.clone() }],
            events: vec![EventStored {
                number: 0,
                at: self.at,
                key: key.clone(),
                event: told.to_string(),
                told: true,
            }],
            ..RolloutChange::default()
        };
        if decided.status == ProposalStatus::Approved {
            if let Some(agent) = self.agent(&key.agent) {
                agent.check(&decided.recommended_modifications)?;
            }
            let prior = self.prior(&key, &decided.variant, &decided.recommended_modifications).await?;
            let work = |board: &mut Board| {
                let events: Vec<BoardEvent> =
                    board.enact(&decided, prior, board.version, self.at, &self.settings.rollout)?;
                Ok(Step { events, change: change.clone() })
            };
            if let Err(error) = self.update(&key, work).await {
                return Err(self.late(id, version).await?.unwrap_or(error));
            }
        } else if !self.store.change_rollout(&change).await? {
            return Err(self.late(id, version).await?.unwrap_or(Error::Busy));
        }
        Ok(decided)
    }

    /// Of two decisions one is written. What the other is told, if it is this one.
    async fn late(&self, id: &str, version: i64) -> Result<Option<Error>, Error> {
        let found = self.store.proposal(id).await?.filter(|stored| stored.version != version);
        Ok(found.map(|stored| {
            let why = format!("is {} already", stored.proposal.status.as_str());
            waltz_rollout::Error::Proposal { proposal: id.to_owned(), why }.into()
        }))
    }
}
