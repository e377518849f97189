//! Proposes changes of a board's variants when its numbers suggest them. Nothing happens before a person approves.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use waltz_exchange::proposal::{Proposal, ProposalStatus, ProposalType, SupportingData};
use waltz_exchange::variant::{Modification, Operation, ParameterChange, PromptChange, VariantStatus};

use crate::board::{Board, Entry, dated_id};
use crate::decide::Action;
use crate::settings::Settings;

/// Who proposes.
pub const PROPOSER: &str = "waltz";

/// What the numbers of a board suggest, without what is known already: what waits for a decision, what was rejected a
/// short while ago, and what is there.
pub fn propose(board: &Board, known: &[Proposal], at: Timestamp, settings: &Settings) -> Vec<Proposal> {
    let Ok(serving) = board.entry(&board.serving) else { return Vec::new() };
    let total = invocations(board);
    let mut ideas = Vec::new();
    if total >= settings.propose.min_invocations {
        ideas.extend(create(board, serving, total, settings));
        ideas.extend(modify(board, serving, total, settings));
        ideas.extend(promote(board, serving, total, settings));
        ideas.extend(retire(board, serving, total, settings));
    }
    let promoted = ideas.iter().find(|idea| idea.kind == ProposalType::PromoteVariantToDefault);
    let promoted = promoted.map(|idea| idea.variant.clone());
    ideas.extend(
        deserving(board, serving, total, at, settings)
            .into_iter()
            .filter(|idea| Some(&idea.variant) != promoted.as_ref()),
    );
    news(ideas, board, serving, known, at, settings)
}

/// Asks people about each variant that only they may apply; without what is known already, as in [`propose`].
pub fn ask(board: &Board, known: &[Proposal], at: Timestamp, settings: &Settings) -> Vec<Proposal> {
    let Ok(serving) = board.entry(&board.serving) else { return Vec::new() };
    let ideas = deserving(board, serving, invocations(board), at, settings);
    news(ideas, board, serving, known, at, settings)
}

/// Outcomes of all variants.
fn invocations(board: &Board) -> u64 {
    board.entries.values().map(|entry| entry.value.visits).sum()
}

fn news(
    ideas: Vec<Idea>,
    board: &Board,
    serving: &Entry,
    known: &[Proposal],
    at: Timestamp,
    settings: &Settings,
) -> Vec<Proposal> {
    let total = invocations(board);
    let exists = |patch: &[Modification]| {
        let same =
            |entry: &Entry| entry.variant.patch == patch && entry.variant.status != VariantStatus::Retired;
        !patch.is_empty() && board.entries.values().any(same)
    };
    ideas
        .into_iter()
        .filter(|idea| !exists(&idea.modifications))
        .map(|idea| idea.proposal(board, serving, total, at, settings))
        .filter(|new| !known.iter().any(|old| is_known(old, new, at, settings)))
        .collect()
}

/// Whether a proposal waits that says the same, or one was rejected that would not have expired yet.
fn is_known(old: &Proposal, new: &Proposal, at: Timestamp, settings: &Settings) -> bool {
    let lasts = SignedDuration::from_hours(24 * settings.propose.expire_days);
    let rejected = old.status == ProposalStatus::Rejected
        && old.decision.as_ref().is_some_and(|review| at.duration_since(review.at) < lasts);
    let changes = &new.recommended_modifications;
    (rejected || crate::review::is_open(old))
        && (&old.agent_name, &old.task_type) == (&new.agent_name, &new.task_type)
        && old.proposal_type == new.proposal_type
        && (old.variant == new.variant || !changes.is_empty() && old.recommended_modifications == *changes)
}

struct Idea {
    kind: ProposalType,
    variant: String,
    reasoning: String,
    confidence: f64,
    improvement: f64,
    modifications: Vec<Modification>,
}

impl Idea {
    fn proposal(
        self,
        board: &Board,
        serving: &Entry,
        total: u64,
        at: Timestamp,
        settings: &Settings,
    ) -> Proposal {
        let Self { kind, variant, reasoning, confidence, improvement, modifications } = self;
        let suggestion = Suggestion {
            agent: board.agent.clone(),
            task_type: board.task_type.clone(),
            kind,
            variant,
            reasoning,
            confidence,
            data: SupportingData {
                n_invocations: total,
                avg_q_default: serving.value.q(),
                potential_improvement: improvement,
                variance: serving.value.variance(),
            },
            modifications,
        };
        suggestion.proposal(at, settings)
    }
}

/// What somebody other than a board's numbers suggests, such as an evolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// What is to be done.
    pub kind: ProposalType,
    /// The variant it speaks of.
    pub variant: String,
    /// Why, with the numbers.
    pub reasoning: String,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// The numbers behind it.
    pub data: SupportingData,
    /// What to change.
    pub modifications: Vec<Modification>,
}

impl Suggestion {
    /// The suggestion as a proposal that waits for a decision.
    pub fn proposal(self, at: Timestamp, settings: &Settings) -> Proposal {
        let Self { agent, task_type, kind, variant, reasoning, confidence, data, modifications } = self;
        let key = format!("{agent}\u{1f}{task_type}\u{1f}{}\u{1f}{variant}\u{1f}{at}", kind.as_str());
        let lasts = SignedDuration::from_hours(24 * settings.propose.expire_days);
        Proposal {
            proposal_id: dated_id("prop", &key, at),
            timestamp: at,
            agent_name: agent,
            task_type,
            proposal_type: kind,
            variant,
            reasoning,
            confidence,
            supporting_data: data,
            recommended_modifications: modifications,
            proposed_by: PROPOSER.to_owned(),
            expires_at: at.checked_add(lasts).unwrap_or(at),
            status: ProposalStatus::Pending,
            decision: None,
        }
    }
}

/// More outcomes give more confidence.
fn confidence(total: u64) -> f64 {
    match total {
        0..50 => 0.5,
        50..100 => 0.7,
        _ => 0.85,
    }
}

/// Only the default is there, and it is weak.
fn create(board: &Board, serving: &Entry, total: u64, settings: &Settings) -> Option<Idea> {
    let (q, weak) = (serving.value.q(), settings.propose.weak_q);
    let others = board
        .entries
        .values()
        .any(|entry| entry.variant.name != board.serving && entry.variant.status != VariantStatus::Retired);
    let known = serving.value.visits >= settings.propose.min_invocations;
    (!others && known && q < weak).then(|| Idea {
        kind: ProposalType::CreateSpecializedVariant,
        variant: unused(board, &format!("{}-specialized", board.task_type)),
        reasoning: format!(
            "Tasks of the type {} have only `{}`, with a Q-value of {q:.3} < {weak} over {} outcomes.",
            board.task_type, board.serving, serving.value.visits
        ),
        confidence: confidence(total).min(0.75),
        improvement: weak - q,
        modifications: vec![focus(&board.task_type), cooler("Lower temperature for steadier results")],
    })
}

/// What serves is weak for certain.
fn modify(board: &Board, serving: &Entry, total: u64, settings: &Settings) -> Option<Idea> {
    let (q, n, weak) = (serving.value.q(), serving.value.visits, settings.propose.weak_q);
    let change = cooler("What serves is unsteady");
    // It has been tried, and did not help.
    let tried = serving.variant.patch.contains(&change);
    (q < weak && n >= settings.propose.min_invocations && !tried).then(|| Idea {
        kind: ProposalType::ModifyVariantParameters,
        variant: unused(board, &format!("{}-modified", board.serving)),
        reasoning: format!("`{}` stays at a Q-value of {q:.3} < {weak} over {n} outcomes.", board.serving),
        confidence: confidence(total),
        improvement: weak - q,
        modifications: serving.variant.patch.iter().cloned().chain([change]).collect(),
    })
}

/// Another variant is better by far.
fn promote(board: &Board, serving: &Entry, total: u64, settings: &Settings) -> Option<Idea> {
    let least = settings.decide.approval_visits;
    let name = board.best_other(&board.serving, settings)?;
    let best = board.entry(&name).ok()?;
    let gap = best.value.q() - serving.value.q();
    let known = best.value.visits >= least && serving.value.visits >= least;
    (known && gap > settings.propose.promote_gap).then(|| Idea {
        kind: ProposalType::PromoteVariantToDefault,
        reasoning: format!(
            "`{name}` has a Q-value of {:.3} over {} outcomes, {gap:.3} above {:.3} of `{}`.",
            best.value.q(),
            best.value.visits,
            serving.value.q(),
            board.serving
        ),
        variant: name,
        confidence: (confidence(total) + if gap > 0.30 { 0.15 } else { 0.0 }).min(1.0),
        improvement: gap,
        modifications: Vec::new(),
    })
}

/// Variants that are good enough to ask people about, and better than what serves.
fn deserving(board: &Board, serving: &Entry, total: u64, at: Timestamp, settings: &Settings) -> Vec<Idea> {
    if board.running_release().is_some() {
        return Vec::new();
    }
    let live = board.entries.values().filter(|entry| entry.variant.status == VariantStatus::Live);
    let idea = |entry: &Entry| {
        let decision = board.decision(&entry.variant.name, at, settings).ok()?;
        let improvement = entry.value.q() - serving.value.q();
        (decision.action == Action::HumanApproval).then(|| Idea {
            kind: ProposalType::PromoteVariantToDefault,
            variant: entry.variant.name.clone(),
            reasoning: decision.reasoning,
            confidence: confidence(total),
            improvement,
            modifications: Vec::new(),
        })
    };
    live.filter_map(idea).collect()
}

/// A variant cannot be as good as what serves.
fn retire(board: &Board, serving: &Entry, total: u64, settings: &Settings) -> Vec<Idea> {
    let q = serving.value.q();
    let hopeless = |entry: &&Entry| {
        entry.variant.name != board.serving
            && entry.variant.name != board.safe_default
            && entry.variant.status != VariantStatus::Retired
            && entry.value.visits >= settings.propose.min_invocations
            && entry.value.upper_bound() < q
    };
    let idea = |entry: &Entry| Idea {
        kind: ProposalType::RetireUnderperformingVariant,
        variant: entry.variant.name.clone(),
        reasoning: format!(
            "`{}` has a Q-value of {:.3}, at most {:.3}, over {} outcomes; `{}` has {q:.3}.",
            entry.variant.name,
            entry.value.q(),
            entry.value.upper_bound(),
            entry.value.visits,
            board.serving
        ),
        confidence: confidence(total),
        improvement: q - entry.value.q(),
        modifications: Vec::new(),
    };
    board.entries.values().filter(hopeless).map(idea).collect()
}

/// A name that no variant has.
fn unused(board: &Board, stem: &str) -> String {
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}"));
    let free = |name: &String| !board.entries.contains_key(name);
    std::iter::once(stem.to_owned()).chain(numbered).find(free).unwrap_or_default()
}

fn focus(task_type: &str) -> Modification {
    Modification::Prompt(PromptChange {
        section: Some("Core Identity".to_owned()),
        operation: Operation::Append,
        content: format!(
            "Special focus on {task_type}: name your assumptions, check each step against the request, and say \
             what you could not verify."
        ),
    })
}

fn cooler(reason: &str) -> Modification {
    Modification::Parameter(ParameterChange {
        parameter: "temperature".to_owned(),
        value: json!(0.2),
        reason: Some(reason.to_owned()),
    })
}

#[cfg(test)]
mod tests;
