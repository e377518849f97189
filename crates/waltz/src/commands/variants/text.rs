//! Boards, rollbacks and proposals as lines for people.

use waltz_exchange::proposal::Proposal;
use waltz_gateway::admin::{BoardView, Explained, Queue, RollbackView};

use crate::commands::release;

/// A board with its variants.
pub(super) fn board(view: &BoardView) -> Vec<String> {
    let mut lines = vec![format!("{}/{}  serves {}", view.agent, view.task_type, view.serving)];
    if let Some(reason) = &view.frozen {
        lines.push(format!("  frozen: {reason}"));
    }
    if view.paused {
        lines.push("  paused".to_owned());
    }
    let under_way = view.release.iter().filter(|release| release.assessment.is_some());
    lines.extend(under_way.map(|view| format!("  {}", release::line(view))));
    for variant in &view.variants {
        lines.push(format!(
            "  {:24} {:12} share {:>4.0} %  Q {:.3}  lately {:.3}  {} outcomes, {:.0} % succeeded",
            variant.name,
            variant.status.as_str(),
            100.0 * variant.share,
            variant.q_value,
            variant.ema,
            variant.visits,
            100.0 * variant.success_rate
        ));
    }
    lines
}

/// A board with the reasons of its values.
pub(super) fn explained(view: &Explained) -> Vec<String> {
    let mut lines = board(&view.board);
    for variant in &view.board.variants {
        lines.push(String::new());
        lines.push(format!("{}:", variant.name));
        lines.extend(variant.decision.iter().map(|decision| format!("  {}", decision.reasoning)));
        lines.extend(variant.prior.iter().map(|prior| {
            format!(
                "  Before the first outcome {:.3} was expected, worth {:.1} outcomes.",
                prior.mean, prior.weight
            )
        }));
        let explanation = view.explanations.get(&variant.name);
        lines.extend(explanation.into_iter().flat_map(|why| &why.sentences).map(|why| format!("  {why}")));
    }
    lines
}

/// A rollback with what people said of it.
pub(super) fn rollback(view: &RollbackView) -> String {
    let event = &view.event;
    format!(
        "{}  {}  {}/{}  {} -> {}  {}  {}",
        event.rollback_id,
        event.timestamp,
        event.agent_name,
        event.task_type,
        event.from_variant,
        event.to_variant,
        view.status.as_str(),
        event.reason
    )
}

/// A proposal with its reasons.
pub(super) fn proposal(proposal: &Proposal) -> String {
    format!(
        "{}  {}  {}/{}  {} {}  confidence {:.2}  {}",
        proposal.proposal_id,
        proposal.status.as_str(),
        proposal.agent_name,
        proposal.task_type,
        proposal.proposal_type.as_str(),
        proposal.variant,
        proposal.confidence,
        proposal.reasoning
    )
}

/// What waits for a decision.
pub(super) fn queue(queue: &Queue) -> Vec<String> {
    let proposals = queue.proposals.iter().map(|listed| proposal(&listed.proposal));
    proposals.chain(queue.rollbacks.iter().map(rollback)).collect()
}
