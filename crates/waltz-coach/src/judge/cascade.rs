//! Levels 2a and 2b in the cascade: what reaches them, and what their word does to a verdict.
//!
//! A score is a probability and 0.5 decides. A reader of meaning outweighs level 1 and a rule that is not sure; it
//! lifts no sure rule, none of the operator's, and nothing in a text that it did not read as it is and as a whole.

use std::collections::BTreeMap;

use waltz_exchange::openai::{ChatRequest, Speaker};
use waltz_exchange::{Category, Issue, Level, Risk, Verdict, VerdictState};
use waltz_screen::linear::{HEADS, LinearJudge};

use super::linear::{likeliest, weighed};
use super::request::{RequestReading, risk};
use super::said::{Said, chance, logit};
use super::{Draft, Evidence, HARD, Judge, THRESHOLD, highest_per_category, settle};
use crate::templates;

/// A finding from here on is worth a question.
const FOUND: f32 = 0.3;
/// Between these probabilities level 2a asks level 2b, where there is one. Chosen by the validation sources, with the table sources in
/// view: wider bands win less than they cost. docs/judge.md has the shares.
const PROMPT_BAND: (f32, f32) = (0.2, 0.8);
/// The same for the harm of an answer.
const ANSWER_BAND: (f32, f32) = (0.3, 0.7);
/// The same for a refusal.
const REFUSAL_BAND: (f32, f32) = (0.2, 0.8);
/// How much level 1 counts beside a reader of meaning where it is about refusals: it knows their phrases well.
const LINEAR_REFUSAL: f32 = 0.2;
/// So many results of tools are read for instructions, the newest first.
const MOST_MATERIAL: usize = 4;
/// Shorter material holds no instruction worth a question.
const LEAST_MATERIAL: usize = 16;
/// Letters that are read of an earlier turn.
const EARLIER: usize = 400;
/// Earlier turns that are read.
const MOST_EARLIER: usize = 6;

impl Judge<'_> {
    /// Reads a request once more where levels 0 and 1 do not settle what it asks for, and its material for instructions
    /// that do not come from the user.
    pub(super) async fn reread(&self, request: &ChatRequest, reading: &mut RequestReading) {
        if is_open_request(self.screen.linear(), reading) {
            match self.ask_request(request).await {
                Some(Ok(said)) => add_to_request(reading, said),
                Some(Err(state)) => reading.state = state,
                None => {}
            }
        }
        for text in material(request) {
            // Only level 2a: a document is long, and there can be many.
            let Some(encoder) = self.encoder else { break };
            match encoder.ask(&text, None).await {
                Ok(said) => reading.manipulation = reading.manipulation.max(said.injection),
                Err(state) => reading.state = state,
            }
        }
        reading.risk = risk(reading);
    }

    /// Reads an answer where levels 0 and 1 do not settle what it does. Of a part of one, what was read in the part itself
    /// must be open: a stream has many, and its end is read as a whole.
    pub(super) async fn read_meaning(
        &self,
        draft: Draft<'_>,
        evidence: Evidence,
        verdict: Verdict,
        is_part: bool,
    ) -> Verdict {
        let linear = self.screen.linear();
        let is_open = match is_part {
            true => is_open_part(&evidence),
            false => is_open_answer(linear, &evidence, draft.reading),
        };
        if !is_open {
            return verdict;
        }
        // An answer is read below the turn that it answers: an earlier one must not convict it.
        let asked = super::request::asked(&draft.request.texts(), draft.request.turn_start());
        match self.ask(&asked, Some(draft.text)).await {
            Some(Ok(said)) => added(verdict, draft, evidence, said),
            Some(Err(state)) => Verdict { state, ..verdict },
            None => verdict,
        }
    }

    /// Asks about the current turn, and about the conversation where there is more of it. Both count alike: a harm that is
    /// asked for in pieces shows in the whole, and an earlier turn that was turned down must not condemn a harmless one.
    async fn ask_request(&self, request: &ChatRequest) -> Option<Result<Said, VerdictState>> {
        let current = super::request::asked(&request.texts(), request.turn_start());
        let alone = self.ask(&current, None).await?;
        let whole = conversation(request);
        if whole == current {
            return Some(alone);
        }
        let together = self.ask(&whole, None).await?;
        Some(alone.and_then(|alone| Ok(alone.and(together?))))
    }

    /// Asks level 2a, and level 2b where 2a is not sure; nothing where there is neither. Where 2b gives no answer, 2a
    /// decides.
    async fn ask(&self, prompt: &str, answer: Option<&str>) -> Option<Result<Said, VerdictState>> {
        let first = match self.encoder {
            Some(encoder) => Some(encoder.ask(prompt, answer).await),
            None => None,
        };
        let is_sure = |said: &Said| {
            let is_in = |band: (f32, f32), score: f32| (band.0..band.1).contains(&score);
            match answer {
                None => !is_in(PROMPT_BAND, said.prompt),
                Some(_) => !is_in(ANSWER_BAND, said.harm) && !is_in(REFUSAL_BAND, said.refusal),
            }
        };
        match (first, self.neural) {
            (Some(Ok(said)), Some(neural)) if !is_sure(&said) => {
                let second = Box::pin(neural.ask(prompt, answer)).await;
                Some(Ok(second.map_or(said, |second| said.and(second))))
            }
            (Some(Ok(said)), _) => Some(Ok(said)),
            (_, Some(neural)) => Some(Box::pin(neural.ask(prompt, answer)).await),
            (other, None) => other,
        }
    }
}

/// The request as one text: the current turn alone, or a conversation with its turns marked as the training data marks
/// them.
pub(super) fn conversation(request: &ChatRequest) -> String {
    let (fields, start) = (request.texts(), request.turn_start());
    let current = super::request::asked(&fields, start);
    let mut earlier: Vec<(usize, &str, &str)> = Vec::new();
    for field in &fields {
        let Some(position) = field.message.filter(|position| *position < start) else { continue };
        let role = match field.speaker {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
            Speaker::Tool => "tool",
            Speaker::Operator => continue,
        };
        earlier.push((position, role, field.text.as_ref()));
    }
    if earlier.is_empty() {
        return current;
    }
    let mut text = String::new();
    let first = earlier.len().saturating_sub(MOST_EARLIER);
    for (position, role, said) in &earlier[first..] {
        let said: String = said.chars().take(EARLIER).collect();
        text.push_str(&format!("[{role} turn {}] {said}\n", position + 1));
    }
    text.push_str(&format!("[user turn {}] {current}", start + 1));
    text
}

/// The newest results of tools and documents of the current turn.
fn material(request: &ChatRequest) -> Vec<String> {
    let (fields, start) = (request.texts(), request.turn_start());
    let current = fields.iter().rev().filter(|field| field.speaker == Speaker::Tool && field.is_since(start));
    let long = current.filter(|field| field.text.len() >= LEAST_MATERIAL);
    long.take(MOST_MATERIAL).map(|field| field.text.to_string()).collect()
}

/// From this probability of level 1 on, a head passes a text on.
fn floors(linear: &LinearJudge) -> [f32; HEADS] {
    linear.weights().figures.floors
}

/// No sure rule has decided what a request asks for, and level 1 does not rule out that it is harm.
fn is_open_request(linear: &LinearJudge, reading: &RequestReading) -> bool {
    let [prompt, ..] = floors(linear);
    let is_sure = reading.rules >= HARD || reading.blocks;
    let is_suspicious = reading.linear.harm >= prompt
        || reading.rules >= FOUND
        || reading.disguised
        || reading.manipulation >= THRESHOLD
        || reading.history_harm >= THRESHOLD;
    !is_sure && is_suspicious
}

/// No sure rule has decided what an answer does, and it or its request is suspicious, or it may refuse. Harmful answers
/// follow suspicious requests: below such a request level 1's floor counts, elsewhere its decision.
fn is_open_answer(linear: &LinearJudge, evidence: &Evidence, reading: &RequestReading) -> bool {
    let [_, floor, _] = floors(linear);
    let is_calm = reading.harm < FOUND && reading.risk == Risk::Low;
    let is_suspicious = evidence.linear.harm >= if is_calm { THRESHOLD } else { floor }
        || evidence.rules >= FOUND
        || evidence.disguised
        || evidence.refusal >= FOUND
        || evidence.linear.refusal >= FOUND
        || reading.harm >= THRESHOLD;
    evidence.rules < HARD && is_suspicious
}

/// No sure rule has decided what a part of an answer does, and something in it is suspicious.
fn is_open_part(evidence: &Evidence) -> bool {
    evidence.rules < HARD && (evidence.linear.harm >= THRESHOLD || evidence.rules >= FOUND)
}

/// What rules found is weighed where `may_lift`, and only ever raises the score where it is lower: rules that found
/// little or nothing have no opinion. No model is as sure as a sure rule.
fn harm(neural: f32, rules: f32, may_lift: bool) -> f32 {
    let score = weighed(neural, rules).max(neural).min(HARD - 0.01);
    if may_lift { score } else { score.max(rules) }
}

pub(super) fn add_to_request(reading: &mut RequestReading, said: Said) {
    let score = harm(said.prompt, reading.rules, said.is_whole && !reading.disguised);
    let firm = std::mem::take(&mut reading.firm);
    reading.issues.retain(|issue| score >= THRESHOLD && !firm.contains(issue));
    reading.categories = place(score, &reading.linear.categories, "request", &mut reading.issues);
    keep(&firm, &mut reading.categories, &mut reading.issues);
    reading.firm = firm;
    reading.harm = reading.categories.values().copied().fold(score, f32::max);
    reading.level = Level::Neural;
    reading.risk = risk(reading);
}

/// Adds what no reader of the text can lift.
fn keep(firm: &[Issue], categories: &mut BTreeMap<Category, f32>, issues: &mut Vec<Issue>) {
    for (category, score) in highest_per_category(firm) {
        let entry = categories.entry(category).or_default();
        *entry = entry.max(score);
    }
    issues.extend(firm.iter().cloned());
    issues.sort_by(|left, right| right.severity.total_cmp(&left.severity));
}

/// The verdict with what the neural judge said in the place of level 1's sum.
pub(super) fn added(mut verdict: Verdict, draft: Draft<'_>, evidence: Evidence, said: Said) -> Verdict {
    let agree = evidence.rules >= THRESHOLD && evidence.linear.harm >= THRESHOLD;
    let score = harm(said.harm, evidence.rules, said.is_whole && !evidence.disguised && !agree);
    verdict.level = Level::Neural;
    verdict.refusal = mixed_refusal(said.refusal, &evidence);
    verdict.issues.retain(|issue| score >= THRESHOLD && !evidence.firm.contains(issue));
    verdict.categories = place(score, &evidence.linear.categories, "answer", &mut verdict.issues);
    keep(&evidence.firm, &mut verdict.categories, &mut verdict.issues);
    settle(&mut verdict, draft);
    verdict.response_harm = verdict.response_harm.max(score);
    verdict
}

/// A reader of meaning and level 1 together. A phrase of refusal that neither believes is none.
fn mixed_refusal(said: f32, evidence: &Evidence) -> f32 {
    let linear = evidence.linear.refusal;
    chance((1.0 - LINEAR_REFUSAL) * logit(said) + LINEAR_REFUSAL * logit(linear))
}

/// The categories of a score: those of the issues, none above it, the worst at it. A harm that nothing names goes to
/// the likeliest category.
fn place(score: f32, likely: &[f32; 8], what: &str, issues: &mut Vec<Issue>) -> BTreeMap<Category, f32> {
    if score < THRESHOLD {
        return highest_per_category(issues);
    }
    if !issues.iter().any(|issue| issue.severity >= THRESHOLD) {
        let category = issues.first().map_or_else(|| likeliest(likely), |issue| issue.category.clone());
        issues.insert(
            0,
            Issue {
                category: category.clone(),
                severity: score,
                description: format!("the neural judge reads the {what} as harmful"),
                evidence: None,
                mitigation: templates::for_category(&category).mitigation.to_owned(),
            },
        );
    }
    let mut categories = highest_per_category(issues);
    let worst =
        categories.iter().max_by(|left, right| left.1.total_cmp(right.1)).map(|(name, _)| name.clone());
    categories.values_mut().for_each(|harm| *harm = harm.min(score));
    if let Some(worst) = worst {
        categories.insert(worst, score);
    }
    categories
}

#[cfg(test)]
#[path = "cascade/tests.rs"]
mod tests;
