//! Level 1 weighed against level 0: pure functions.
//!
//! The linear judge reads a text as a whole and the rules read places in it, so that a harmful sentence
//! among many harmless ones can be found by a rule alone. Level 1 therefore adds to what the rules found
//! and never lifts it. What it suspects, level 2 reads; alone, it decides from 0.5 on.

use std::collections::BTreeMap;

use super::combine::MODEL_WEIGHT;
use super::{HARD, THRESHOLD};
use crate::templates;
use waltz_exchange::{Category, Issue, Level};

/// A soft score of both levels.
pub(super) fn weighed(linear: f32, rules: f32) -> f32 {
    MODEL_WEIGHT * linear + (1.0 - MODEL_WEIGHT) * rules
}

/// The harm that both levels together find. A sum of words is no proof: it stays below what a rule alone can be sure of.
pub(super) fn harm(linear: f32, rules: f32) -> f32 {
    weighed(linear, rules).max(linear).min(HARD - 0.01).max(rules)
}

/// How much both levels together see a refusal. Below the decision a sum of words says nothing, so that an
/// ordinary answer without a phrase of refusal scores 0.
pub(super) fn refusal(linear: f32, rules: f32) -> f32 {
    let score = weighed(linear, rules);
    if score >= THRESHOLD { score } else { score.min(rules) }
}

/// Adds what the linear judge says to what the rules found in a text, and returns the level that decided.
/// The harm goes to the worst category of the rules, or to the likeliest one where they found none.
pub(super) fn add(
    linear: f32,
    scores: &[f32; 8],
    what: &str,
    categories: &mut BTreeMap<Category, f32>,
    issues: &mut Vec<Issue>,
) -> Level {
    let worst = categories.iter().max_by(|left, right| left.1.total_cmp(right.1));
    let (category, rules) = match worst {
        Some((category, score)) => (category.clone(), *score),
        None => (likeliest(scores), 0.0),
    };
    let score = harm(linear, rules);
    if rules >= THRESHOLD || score < THRESHOLD {
        return Level::Screen;
    }
    issues.insert(
        0,
        Issue {
            category: category.clone(),
            severity: score,
            description: format!("the words of the {what} are those of harmful ones"),
            evidence: None,
            mitigation: templates::for_category(&category).mitigation.to_owned(),
        },
    );
    categories.insert(category, score);
    Level::Linear
}

pub(super) fn likeliest(scores: &[f32; 8]) -> Category {
    let mut best = (Category::ILLEGAL_ACTIVITY, f32::MIN);
    for (category, score) in Category::ALL.into_iter().zip(scores) {
        if *score > best.1 {
            best = (category, *score);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(harm: f32, rules: &[(Category, f32)]) -> (Level, BTreeMap<Category, f32>, Vec<Issue>) {
        let mut categories: BTreeMap<Category, f32> = rules.iter().cloned().collect();
        let mut issues = Vec::new();
        let mut scores = [0.1; 8];
        scores[5] = 0.9;
        let level = add(harm, &scores, "request", &mut categories, &mut issues);
        (level, categories, issues)
    }

    #[test]
    fn alone_it_decides_from_one_half_on() {
        let (level, categories, issues) = added(0.49, &[]);
        assert!(level == Level::Screen && categories.is_empty() && issues.is_empty());
        let (level, categories, issues) = added(THRESHOLD, &[]);
        assert!(level == Level::Linear && categories[&Category::SELF_HARM] >= THRESHOLD, "{categories:?}");
        assert_eq!(issues[0].category, Category::SELF_HARM);
    }

    #[test]
    fn it_strengthens_a_weak_finding_and_never_lifts_one() {
        let weak = [(Category::HATE_SPEECH, 0.4)];
        assert_eq!(added(0.3, &weak).1[&Category::HATE_SPEECH], 0.4);
        let (level, categories, _) = added(0.6, &weak);
        assert!(level == Level::Linear && categories[&Category::HATE_SPEECH] >= THRESHOLD);
        let (level, categories, issues) = added(0.0, &[(Category::HATE_SPEECH, 0.6)]);
        assert_eq!((level, categories[&Category::HATE_SPEECH], issues.len()), (Level::Screen, 0.6, 0));
    }

    #[test]
    fn refusals_are_weighed_and_ordinary_answers_score_nothing() {
        assert_eq!(refusal(0.6, 0.0), 0.0);
        assert!(refusal(0.8, 0.0) >= THRESHOLD && refusal(0.4, 0.9) >= THRESHOLD);
        // A phrase of refusal in an answer that helps.
        assert!(refusal(0.1, 0.7) < THRESHOLD);
    }

    #[test]
    fn it_never_blocks_by_itself() {
        assert!(added(1.0, &[]).1[&Category::SELF_HARM] < HARD);
        assert!(added(1.0, &[(Category::SELF_HARM, 0.49)]).1[&Category::SELF_HARM] < HARD);
    }
}
