//! Changes that waltz proposes and people decide on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::variant::Modification;

/// A change of an agent's variants that waits for a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// `prop-YYYYMMDD-` and eight hex digits.
    pub proposal_id: String,
    /// When it was made.
    pub timestamp: Timestamp,
    /// The agent.
    pub agent_name: String,
    /// The kind of task.
    pub task_type: String,
    /// What is proposed.
    pub proposal_type: ProposalType,
    /// The variant it speaks of: to be made, modified, promoted or retired.
    pub variant: String,
    /// Why, with the numbers.
    pub reasoning: String,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// The numbers behind it.
    pub supporting_data: SupportingData,
    /// What to change.
    #[serde(default)]
    pub recommended_modifications: Vec<Modification>,
    /// Whoever or whatever made it.
    pub proposed_by: String,
    /// When it can no longer be approved.
    pub expires_at: Timestamp,
    /// Where it stands.
    pub status: ProposalStatus,
    /// The last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Review>,
}

/// What a proposal would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProposalType {
    /// Make a variant for the task type.
    #[serde(rename = "crl_create_specialized_variant")]
    CreateSpecializedVariant,
    /// Try a variant with other parameters.
    #[serde(rename = "crl_modify_variant_parameters")]
    ModifyVariantParameters,
    /// Let a variant serve.
    #[serde(rename = "crl_promote_variant_to_default")]
    PromoteVariantToDefault,
    /// Take a variant out.
    #[serde(rename = "crl_retire_underperforming_variant")]
    RetireUnderperformingVariant,
}

impl ProposalType {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateSpecializedVariant => "crl_create_specialized_variant",
            Self::ModifyVariantParameters => "crl_modify_variant_parameters",
            Self::PromoteVariantToDefault => "crl_promote_variant_to_default",
            Self::RetireUnderperformingVariant => "crl_retire_underperforming_variant",
        }
    }
}

/// The numbers behind a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupportingData {
    /// Outcomes of all variants of the task type.
    pub n_invocations: u64,
    /// The mean reward of what serves now.
    pub avg_q_default: f64,
    /// How much better it could be.
    pub potential_improvement: f64,
    /// The variance of the rewards of what serves now.
    pub variance: f64,
}

/// Where a proposal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalStatus {
    /// It waits.
    Pending,
    /// It was accepted.
    Approved,
    /// It was refused; the reason is kept.
    Rejected,
    /// It was put off and can still be decided.
    Deferred,
    /// Its time is over.
    Expired,
}

impl ProposalStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Deferred => "deferred",
            Self::Expired => "expired",
        }
    }
}

/// A decision on a proposal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Review {
    /// Who decided.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest of what was decided on.
    pub digest: String,
}
