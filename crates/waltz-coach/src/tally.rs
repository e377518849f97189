//! What answering one request has cost so far.

use std::time::Duration;

use waltz_exchange::openai::Answer;
use waltz_exchange::record::Attempt;

/// Calls and tokens, as far as upstreams reported them; nothing is guessed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Every call made upstream, failed ones included.
    pub attempts: Vec<Attempt>,
    /// Prompt and completion tokens of revisions and self-checks.
    pub revisions: (u64, u64),
    /// All tokens of the feedback model.
    pub feedback: u64,
    /// Time spent waiting for upstreams.
    pub waited: Duration,
}

impl Tally {
    /// Adds what a revision or self-check cost.
    pub fn add_revision(&mut self, answer: &Answer) {
        if let Some((prompt, completion)) = answer.usage() {
            self.revisions.0 += prompt;
            self.revisions.1 += completion;
        }
    }

    /// Adds what an opinion cost.
    pub fn add_feedback(&mut self, answer: &Answer) {
        self.feedback += answer.usage().map_or(0, |(prompt, completion)| prompt + completion);
    }

    /// All tokens that coaching added.
    pub fn coaching_tokens(&self) -> u64 {
        self.revisions.0 + self.revisions.1 + self.feedback
    }
}
