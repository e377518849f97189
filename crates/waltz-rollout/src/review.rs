//! Decisions of people on proposals: which are possible, what exactly was decided on, and in which order proposals
//! are shown.

use jiff::Timestamp;
use serde_json::Value;
use waltz_exchange::id::sha256_hex;
use waltz_exchange::json::canonical;
use waltz_exchange::proposal::{Proposal, ProposalStatus, Review};

use crate::Error;

/// A decision on a proposal, as it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// Approved, rejected or deferred.
    pub status: ProposalStatus,
    /// Who decides.
    pub by: &'a str,
    /// Why; needed to reject.
    pub reason: Option<&'a str>,
    /// The digest of the proposal that was looked at.
    pub digest: &'a str,
    /// Whether whoever proposed may approve.
    pub allow_self_approval: bool,
}

/// SHA-256 over the canonical JSON of all that is decided on: the proposal without its status and decision.
pub fn digest(proposal: &Proposal) -> String {
    let content = Proposal { status: ProposalStatus::Pending, decision: None, ..proposal.clone() };
    // Numbers that JSON cannot hold become null; nothing else of a proposal can fail to be written.
    let value = serde_json::to_value(content).unwrap_or(Value::Null);
    sha256_hex(canonical(&value).as_bytes())
}

/// The proposal after a decision. Refused are decisions on what is decided, expired or not what was looked at.
pub fn review(proposal: &Proposal, decision: Decision<'_>, at: Timestamp) -> Result<Proposal, Error> {
    let Decision { status, by, reason, digest: seen, allow_self_approval } = decision;
    let refuse = |why: String| Err(Error::Proposal { proposal: proposal.proposal_id.clone(), why });
    if !is_open(proposal) {
        return refuse(format!("is {} already", proposal.status.as_str()));
    }
    if at >= proposal.expires_at {
        return refuse(format!("expired at {}", proposal.expires_at));
    }
    if seen != digest(proposal) {
        return refuse("is not what was looked at; read it again".to_owned());
    }
    match status {
        ProposalStatus::Pending | ProposalStatus::Expired => {
            return refuse(format!("cannot be made {} by a person", status.as_str()));
        }
        ProposalStatus::Rejected if reason.is_none_or(|reason| reason.trim().is_empty()) => {
            return refuse("can only be rejected with a reason".to_owned());
        }
        ProposalStatus::Approved if by == proposal.proposed_by && !allow_self_approval => {
            return refuse(format!("cannot be approved by {by}, who proposed it"));
        }
        ProposalStatus::Approved | ProposalStatus::Rejected | ProposalStatus::Deferred => {}
    }
    let review = Review { by: by.to_owned(), at, reason: reason.map(str::to_owned), digest: seen.to_owned() };
    Ok(Proposal { status, decision: Some(review), ..proposal.clone() })
}

/// The proposal as expired, if its time is over and nobody decided.
pub fn expire(proposal: &Proposal, at: Timestamp) -> Option<Proposal> {
    (is_open(proposal) && at >= proposal.expires_at)
        .then(|| Proposal { status: ProposalStatus::Expired, ..proposal.clone() })
}

/// Whether a proposal still waits for a decision.
pub fn is_open(proposal: &Proposal) -> bool {
    matches!(proposal.status, ProposalStatus::Pending | ProposalStatus::Deferred)
}

/// The order for people: highest confidence first, then the older, then by id.
pub fn sort(proposals: &mut [Proposal]) {
    proposals.sort_by(|one, other| {
        let confidence = other.confidence.total_cmp(&one.confidence);
        let age = one.timestamp.cmp(&other.timestamp);
        confidence.then(age).then_with(|| one.proposal_id.cmp(&other.proposal_id))
    });
}

/// A sheet with one proposal a line, in the order of [`sort`].
pub fn csv(proposals: &[Proposal]) -> String {
    let mut sorted = proposals.to_vec();
    sort(&mut sorted);
    let mut sheet = String::from(
        "proposal_id,timestamp,agent_name,task_type,proposal_type,variant,confidence,status,n_invocations,\
         avg_q_default,potential_improvement,variance,reasoning,reason\r\n",
    );
    for proposal in &sorted {
        let data = &proposal.supporting_data;
        let cells = [
            proposal.proposal_id.clone(),
            proposal.timestamp.to_string(),
            proposal.agent_name.clone(),
            proposal.task_type.clone(),
            proposal.proposal_type.as_str().to_owned(),
            proposal.variant.clone(),
            format!("{:.2}", proposal.confidence),
            proposal.status.as_str().to_owned(),
            data.n_invocations.to_string(),
            format!("{:.4}", data.avg_q_default),
            format!("{:.4}", data.potential_improvement),
            format!("{:.4}", data.variance),
            proposal.reasoning.clone(),
            proposal.decision.as_ref().and_then(|review| review.reason.clone()).unwrap_or_default(),
        ];
        sheet.push_str(&cells.map(|cell| quoted(&cell)).join(","));
        sheet.push_str("\r\n");
    }
    sheet
}

/// A cell that no spreadsheet takes for a formula.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = format!("{}{}", if formula { "'" } else { "" }, cell.replace('"', "\"\""));
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{text}\"") } else { text }
}

#[cfg(test)]
mod tests;
