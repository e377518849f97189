//! What people say of rollbacks that happened by themselves.

use serde::{Deserialize, Serialize};
use waltz_exchange::id::sha256_hex;
use waltz_exchange::json::canonical;
use waltz_exchange::proposal::Review;
use waltz_exchange::release::PROGRAM;
use waltz_exchange::rollback::{RollbackEvent, RollbackStatus};
use waltz_rollout::Board;
use waltz_store::{BoardKey, RollbackReview, RollbackStored, RolloutChange};

use super::{Desk, Error, MOST, Step};

/// A decision, as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// `confirmed`, or `reinstated`: the variant is released again.
    pub decision: RollbackStatus,
    /// Why; needed to reinstate.
    #[serde(default)]
    pub reason: Option<String>,
    /// The plan of the new release.
    #[serde(default)]
    pub profile: Option<String>,
}

/// A rollback with what people said of it.
#[derive(Clone, Debug, Serialize)]
pub struct RollbackView {
    /// What happened.
    #[serde(flatten)]
    pub event: RollbackEvent,
    /// Where it stands.
    pub status: RollbackStatus,
    /// What a person said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
}

impl From<RollbackStored> for RollbackView {
    fn from(RollbackStored { event, status, review, .. }: RollbackStored) -> Self {
        Self { event, status, review }
    }
}

impl Desk<'_> {
    /// Rollbacks, newest first, of one status or of all.
    pub async fn rollbacks(&self, status: Option<RollbackStatus>) -> Result<Vec<RollbackView>, Error> {
        Ok(self.store.rollbacks(status, MOST).await?.into_iter().map(RollbackView::from).collect())
    }

    /// Decides on a rollback that waits.
    pub async fn judge(&self, id: &str, judgement: &Judgement) -> Result<RollbackView, Error> {
        let Judgement { decision, reason, profile } = judgement;
        let found = self.store.rollback(id).await?;
        let Some(RollbackStored { event, status, .. }) = found else {
            return Err(Error::Unknown { what: "rollback", name: id.to_owned() });
        };
        if status != RollbackStatus::Waiting {
            return Err(Error::Invalid(format!("rollback `{id}` is {} already", status.as_str())));
        }
        let content = serde_json::to_value(&event).map_err(|error| Error::Invalid(error.to_string()))?;
        let digest = sha256_hex(canonical(&content).as_bytes());
        let review = Review { by: self.by.to_owned(), at: self.at, reason: reason.clone(), digest };
        let reviewed = RollbackReview { id: id.to_owned(), status: *decision, review: review.clone() };
        let change = RolloutChange { review: Some(reviewed), ..RolloutChange::default() };
        match decision {
            RollbackStatus::Waiting => {
                return Err(Error::Invalid("the decision must be `confirmed` or `reinstated`".to_owned()));
            }
            RollbackStatus::Confirmed => {
                if !self.store.change_rollout(&change).await? {
                    return Err(Error::Busy);
                }
            }
            RollbackStatus::Reinstated => {
                if reason.as_ref().is_none_or(|reason| reason.trim().is_empty()) {
                    return Err(Error::Invalid("a variant can only be reinstated with a reason".to_owned()));
                }
                let release =
                    Self::new_release(&event.from_variant, profile.as_deref().unwrap_or("standard"));
                let key = BoardKey { agent: event.agent_name.clone(), task_type: event.task_type.clone() };
                if key.agent == PROGRAM {
                    self.check_configured(&release)?;
                }
                let work = |board: &mut Board| {
                    self.check_applicable(board, &release)?;
                    let rollout = &self.settings.rollout;
                    let events = board.change(release.clone(), self.by, board.version, self.at, rollout)?;
                    Ok(Step { events, change: change.clone() })
                };
                self.update(&key, work).await?;
            }
        }
        Ok(RollbackView { event, status: *decision, review: Some(review) })
    }
}
