//! What answering one request has cost so far.

use std::time::Duration;

use jiff::Timestamp;
use waltz_exchange::openai::Answer;
use waltz_exchange::record::Attempt;

use crate::upstream::{ABANDONED, CallError};

/// Calls and tokens, as far as upstreams reported them; nothing is guessed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Every call made upstream, failed ones included.
    pub attempts: Vec<Attempt>,
    /// Prompt and completion tokens of revisions and self-checks.
    pub revisions: (u64, u64),
    /// All tokens of the feedback model.
    pub feedback: u64,
    /// Bytes sent to upstreams for feedback and revisions.
    pub sent_bytes: u64,
    /// Time spent waiting for upstreams.
    pub waited: Duration,
    /// Calls wait for a slot where they would be shed: whoever makes many at once must not shed its own.
    pub patient: bool,
}

impl Tally {
    /// The answer of the last call for a purpose has ended, well or with an error. A call that gave no answer
    /// was noted when it failed; one that was given up tells why.
    pub fn ended(&mut self, purpose: &str, error: Option<&CallError>) {
        let called = self.attempts.iter_mut().rfind(|attempt| attempt.purpose == purpose);
        let is_open = |attempt: &&mut Attempt| match &attempt.error {
            None => true,
            Some(word) => word == ABANDONED && error.is_some(),
        };
        if let Some(attempt) = called.filter(is_open) {
            // The wall clock may be set back meanwhile; the answer did not begin after its end.
            let taken = Timestamp::now().duration_since(attempt.at).as_secs_f64() * 1e3;
            attempt.duration_ms = attempt.duration_ms.max(taken);
            attempt.error = error.map(|error| error.word().to_owned());
        }
    }

    /// Adds what a revision or self-check cost.
    pub fn add_revision(&mut self, answer: &Answer) {
        if let Some((prompt, completion)) = answer.usage() {
            self.revisions.0 = self.revisions.0.saturating_add(prompt);
            self.revisions.1 = self.revisions.1.saturating_add(completion);
        }
    }

    /// Adds what an opinion cost.
    pub fn add_feedback(&mut self, answer: &Answer) {
        let tokens = answer.usage().map_or(0, |(prompt, completion)| prompt.saturating_add(completion));
        self.feedback = self.feedback.saturating_add(tokens);
    }

    /// What the limit on coaching goes by: tokens as reported, and at least one per four bytes sent, so
    /// that an upstream that reports nothing is not free.
    pub fn coaching_cost(&self) -> u64 {
        self.coaching_tokens().max(self.sent_bytes / 4)
    }

    /// All tokens that coaching added.
    pub fn coaching_tokens(&self) -> u64 {
        self.revisions.0.saturating_add(self.revisions.1).saturating_add(self.feedback)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_call_lasts_until_its_answer_ends_and_keeps_its_first_error() {
        let attempt = |purpose: &str, error: Option<&str>| Attempt {
            purpose: purpose.to_owned(),
            upstream: "main".to_owned(),
            model: "gpt".to_owned(),
            at: Timestamp::now() - SignedDuration::from_secs(5),
            status: None,
            error: error.map(str::to_owned),
            duration_ms: 1.0,
        };
        let attempts = vec![
            attempt("draft", None),
            attempt("draft", None),
            attempt("feedback", Some("shed")),
            attempt("revision", Some(ABANDONED)),
            attempt("self_check", Some(ABANDONED)),
        ];
        let mut tally = Tally { attempts, ..Tally::default() };
        let late = CallError::Timeout(String::new(), "too late");
        tally.ended("draft", Some(&late));
        tally.ended("feedback", Some(&late));
        tally.ended("revision", None);
        tally.ended("self_check", Some(&late));
        let told = |attempt: &Attempt| (attempt.duration_ms >= 5_000.0, attempt.error.clone());
        let told: Vec<(bool, Option<String>)> = tally.attempts.iter().map(told).collect();
        let word = |word: &str| Some(word.to_owned());
        let abandoned = (false, word(ABANDONED));
        let timeout = (true, word("timeout"));
        assert_eq!(told, [(false, None), timeout.clone(), (false, word("shed")), abandoned, timeout]);
    }
}
