//! Whether a text answers at all. A harmless text can still be none: small models recite the advice that they get, say
//! the same over and over, announce an answer that does not come, or speak of something else. Such a revision is never
//! better than what there was, whatever its scores.
//!
//! Pure functions of words; no model is asked.

mod echo;
mod empty;
mod repetition;
mod topic;
mod words;

use std::collections::BTreeMap;

use waltz_exchange::openai::{ChatRequest, Speaker};
use waltz_exchange::record::RevisionFault;
use waltz_exchange::{Category, Verdict};

use crate::judge::{RequestReading, THRESHOLD};
use crate::reward;
use echo::Advice;
use topic::Topics;

pub(crate) use empty::only_leads_in;
pub(crate) use words::Words;

/// What texts for one request are held against.
#[derive(Debug)]
pub struct Standard {
    /// What the user says, in all turns.
    user: Words,
    topics: Topics,
    advice: Advice,
    /// Texts that were turned down.
    rejected: Vec<Words>,
    /// The answer is prose: it has no form of its own.
    is_prose: bool,
    /// Somebody may be in danger of self-harm.
    cares: bool,
}

impl Standard {
    /// What texts for a request are held against; `draft` is the verdict on the first one.
    pub fn new(request: &ChatRequest, reading: &RequestReading, draft: &Verdict) -> Self {
        let turn_start = request.turn_start();
        let (mut user, mut current, mut others) = (String::new(), String::new(), String::new());
        for field in request.texts() {
            let text = match field.speaker {
                Speaker::User => &mut user,
                Speaker::Operator | Speaker::Assistant | Speaker::Tool => &mut others,
            };
            text.push_str(&field.text);
            text.push('\n');
            if field.speaker == Speaker::User && field.is_since(turn_start) {
                current.push_str(&field.text);
                current.push('\n');
            }
        }
        let user = Words::of(&user);
        let found = reading.categories.iter().chain(&draft.categories);
        let harms: Vec<Category> =
            found.filter(|(_, score)| **score >= THRESHOLD).map(|(category, _)| category.clone()).collect();
        let conversation = Words::of(&format!("{others}\n{}", user.all().join(" ")));
        Self {
            topics: Topics::new(&Words::of(&current), &conversation, &harms),
            user,
            advice: Advice::default(),
            rejected: Vec::new(),
            is_prose: !request.is_structured(),
            cares: concerns_self_harm(reading, draft),
        }
    }

    /// Takes note of advice that the agent is shown.
    pub fn hear(&mut self, advice: &str) {
        self.advice.hear(advice);
    }

    /// Takes note of a text that was turned down.
    pub fn reject(&mut self, text: &str) {
        self.rejected.push(Words::of(text));
    }

    /// Somebody may be in danger of self-harm, so that a bad answer is worse than our own help.
    pub fn cares(&self) -> bool {
        self.cares
    }

    /// Why a text is no answer, if it is none. `acts` are its tool calls, which answer by themselves.
    pub fn fault(&self, text: &str, acts: &str) -> Option<RevisionFault> {
        let words = Words::of(text);
        if echo::is_echo(&words, &self.advice, &self.user) {
            return Some(RevisionFault::Echo);
        }
        if !self.is_prose || !acts.is_empty() {
            return text.trim().is_empty().then_some(RevisionFault::Empty);
        }
        if empty::says_nothing(&words, &self.user) {
            return Some(RevisionFault::Empty);
        }
        if self.rejected.iter().any(|earlier| earlier.all() == words.all())
            || repetition::repeats_itself(&words)
        {
            return Some(RevisionFault::Repetition);
        }
        if self.cares && reward::evades(text, words.all().len()) {
            return Some(RevisionFault::Empty);
        }
        let misses = self.topics.miss(&words) || (self.cares && !topic::offers_help(&words));
        misses.then_some(RevisionFault::OffTopic)
    }
}

/// Whether self-harm is the gravest that was found in a request or in the first answer to it.
pub fn concerns_self_harm(reading: &RequestReading, draft: &Verdict) -> bool {
    let gravest = |categories: &BTreeMap<Category, f32>| {
        let own = categories.get(&Category::SELF_HARM).copied().unwrap_or(0.0);
        own >= THRESHOLD && categories.values().all(|score| *score <= own)
    };
    gravest(&reading.categories) || gravest(&draft.categories)
}

#[cfg(test)]
#[path = "quality/tests.rs"]
mod tests;
