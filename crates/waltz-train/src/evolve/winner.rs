//! The winner: the best of the pool, examined on tasks that nothing was chosen by, beside the agent as it is.

use jiff::Timestamp;
use serde::Serialize;
use waltz_exchange::proposal::{ProposalType, SupportingData};
use waltz_exchange::variant::Modification;
use waltz_rollout::propose::Suggestion;
use waltz_rollout::review::digest;

use super::Terms;
use super::candidate::{Candidate, mark};
use super::folder::Proposed;
use super::measure::Measured;
use crate::evaluate::statistics::binomial_cdf;
use waltz_exchange::id::sha256_hex;

/// The most confidence of a proposal for a new variant: traffic has not seen it.
const MOST_CONFIDENCE: f64 = 0.75;
/// The most where the safety benchmark was switched off.
const MOST_UNMEASURED: f64 = 0.5;

/// What the examination said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exam {
    /// Who was examined.
    pub candidate: String,
    /// Tasks of the examination.
    pub tasks: usize,
    /// Done by the agent as it is.
    pub base_done: usize,
    /// Done by the candidate.
    pub candidate_done: usize,
    /// Done by the agent alone.
    pub only_base: usize,
    /// Done by the candidate alone.
    pub only_candidate: usize,
    /// The chance of so clear a lead if the candidate were no better.
    pub p_value: f64,
}

impl Exam {
    /// Sets two measurements of the same tasks side by side.
    pub(super) fn of(candidate: &str, base: &Measured, found: &Measured) -> Self {
        let only_base = base.done.difference(&found.done).count();
        let only_candidate = found.done.difference(&base.done).count();
        Self {
            candidate: candidate.to_owned(),
            tasks: base.tasks,
            base_done: base.done.len(),
            candidate_done: found.done.len(),
            only_base,
            only_candidate,
            p_value: binomial_cdf(only_base, only_base + only_candidate, 0.5),
        }
    }

    /// Whether the candidate did more.
    pub fn is_won(&self) -> bool {
        self.only_candidate > self.only_base
    }

    fn share(&self, done: usize) -> f64 {
        done as f64 / self.tasks.max(1) as f64
    }
}

/// The proposal of a winner. The benchmark that was switched off is named in it: a person has to decide.
pub(super) fn propose(terms: &Terms<'_>, winner: &Candidate, exam: &Exam, at: Timestamp) -> Proposed {
    let measured = terms.benchmark.is_some();
    let (base, found) = (exam.share(exam.base_done), exam.share(exam.candidate_done));
    let safety = if measured {
        "The safety benchmark passed."
    } else {
        "The safety benchmark was switched off: its safety was not measured, and every promotion of it needs a person."
    };
    let reasoning = format!(
        "Evolved by {} in generation {}. On {} tasks that nothing was chosen by it did {} ({:.1} %), the agent as it is {} \
         ({:.1} %); {} were done by it alone and {} by the agent alone (p = {:.3}). {safety}",
        winner.operator.as_str(),
        winner.generation,
        exam.tasks,
        exam.candidate_done,
        found * 1e2,
        exam.base_done,
        base * 1e2,
        exam.only_candidate,
        exam.only_base,
        exam.p_value,
    );
    let prompts = winner.patch.iter().any(|change| matches!(change, Modification::Prompt(_)));
    let kind =
        if prompts { ProposalType::CreateSpecializedVariant } else { ProposalType::ModifyVariantParameters };
    let n = exam.tasks as f64;
    let suggestion = Suggestion {
        agent: terms.setup.agent.name.clone(),
        task_type: terms.task_type.to_owned(),
        kind,
        variant: format!("{}-evolved-{}", terms.task_type, &sha256_hex(mark(&winner.patch).as_bytes())[..8]),
        reasoning,
        confidence: (1.0 - exam.p_value).min(if measured { MOST_CONFIDENCE } else { MOST_UNMEASURED }),
        data: SupportingData {
            n_invocations: 2 * exam.tasks as u64,
            avg_q_default: base,
            potential_improvement: found - base,
            variance: if exam.tasks > 1 { base * (1.0 - base) * n / (n - 1.0) } else { 0.0 },
        },
        modifications: winner.patch.clone(),
    };
    let proposal = suggestion.proposal(at, terms.rollout);
    Proposed { digest: digest(&proposal), proposal }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn done(tasks: std::ops::Range<usize>) -> Measured {
        Measured {
            done: tasks.map(|task| task.to_string()).collect(),
            tasks: 20,
            harmful_drafts: BTreeSet::new(),
            harmful_answers: BTreeSet::new(),
            benchmark: None,
            unanswered: 0,
            failures: Vec::new(),
        }
    }

    #[test]
    fn tasks_are_compared_one_by_one() {
        let exam = Exam::of("g1-1", &done(0..12), &done(4..20));
        assert_eq!((exam.base_done, exam.candidate_done), (12, 16));
        assert_eq!((exam.only_base, exam.only_candidate), (4, 8));
        // P(X <= 4) of 12 fair coins.
        assert!((exam.p_value - 794.0 / 4_096.0).abs() < 1e-9 && exam.is_won(), "{exam:?}");
        assert!(!Exam::of("g1-1", &done(0..10), &done(10..20)).is_won(), "as many is no win");
        assert!(!Exam::of("g1-1", &done(0..10), &done(0..10)).is_won());
    }
}
