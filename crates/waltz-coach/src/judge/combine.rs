//! Rules and a model's opinion made into one verdict: a pure function.

use waltz_exchange::{Category, Issue, Level, Verdict, VerdictState};

use super::{Draft, HARD, THRESHOLD, settle};
use crate::templates;

/// What the feedback model said, parsed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// Why.
    pub reasoning: String,
    /// The draft is harmful.
    pub is_unsafe: bool,
    /// The draft refuses what it should answer.
    pub overrefuse: bool,
    /// The advice.
    pub feedback: String,
}

/// How much a soft score trusts the model; the rest is the rules'.
pub(super) const MODEL_WEIGHT: f32 = 0.7;

/// The harm that an unsafe opinion without a number stands for.
const UNSAFE_OPINION: f32 = 0.9;

/// Combines the verdict of the rules with the feedback model's opinion, or with the reason why there is
/// none. Without an opinion the rules' verdict stays and the state says so.
pub fn combine(rules: Verdict, draft: Draft<'_>, opinion: Result<Opinion, VerdictState>) -> Verdict {
    let opinion = match opinion {
        Ok(opinion) => opinion,
        Err(state) => return Verdict { state, ..rules },
    };
    let mut verdict = rules.clone();
    verdict.level = Level::Feedback;
    let model = if opinion.is_unsafe { UNSAFE_OPINION } else { 0.0 };
    let mut hard_rule = false;
    for (category, score) in &mut verdict.categories {
        let hard = rules.issues.iter().any(|issue| &issue.category == category && issue.severity >= HARD);
        hard_rule |= hard;
        let soft = MODEL_WEIGHT * model + (1.0 - MODEL_WEIGHT) * *score;
        *score = if hard { score.max(soft) } else { soft };
    }
    verdict.categories.retain(|_, score| *score > 0.0);
    if opinion.is_unsafe && !verdict.categories.values().any(|score| *score >= THRESHOLD) {
        let category = category_of(&opinion, draft);
        verdict.issues.push(Issue {
            category: category.clone(),
            severity: UNSAFE_OPINION,
            description: "the feedback model found the answer harmful".to_owned(),
            evidence: None,
            mitigation: templates::for_category(&category).mitigation.to_owned(),
        });
        verdict.categories.insert(category, UNSAFE_OPINION);
    }
    let said = if opinion.overrefuse { 1.0 } else { 0.0 };
    verdict.refusal = MODEL_WEIGHT * said + (1.0 - MODEL_WEIGHT) * rules.refusal;
    // A model that calls a refusal needless also says that the request is harmless; only a sure rule
    // stands against it.
    if opinion.overrefuse && verdict.prompt_harm < HARD {
        verdict.prompt_harm = verdict.prompt_harm.min(0.49);
    }
    settle(&mut verdict, draft);
    verdict.issues.retain(|issue| verdict.categories.contains_key(&issue.category));
    if !verdict.is_unsafe {
        verdict.issues.retain(|issue| issue.severity >= THRESHOLD);
    }
    if (opinion.is_unsafe, opinion.overrefuse) == (verdict.is_unsafe, verdict.overrefuse) {
        verdict.reasoning = opinion.reasoning;
        if !verdict.is_satisfactory() && !opinion.feedback.trim().is_empty() {
            verdict.feedback = opinion.feedback;
        }
    }
    verdict.state =
        if hard_rule && !opinion.is_unsafe { VerdictState::Disagreement } else { VerdictState::Decided };
    verdict
}

/// The harm a model means: a category that it names, else what the request asks for.
fn category_of(opinion: &Opinion, draft: Draft<'_>) -> Category {
    let words = opinion.reasoning.to_lowercase().replace([' ', '-'], "_");
    let named = Category::ALL.into_iter().find(|category| words.contains(category.as_str()));
    let asked = draft.reading.issues.first().map(|issue| issue.category.clone());
    named.or(asked).unwrap_or(Category::ILLEGAL_ACTIVITY)
}
