//! What is asked of the model and what comes back: the forms of a request, and the text of its answer.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::sample::{Sampling, TokenChance};
use crate::{Adapter, Constraint, Decoder};

/// A request for text.
pub struct Ask {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// Texts that end the answer before them.
    pub stop: Vec<String>,
    /// What the answer must look like.
    pub constraint: Option<Box<dyn Constraint>>,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// With each token its chance and so many of the likeliest.
    pub logprobs: Option<u8>,
    /// What changes the model for this answer, from its first token to its last.
    pub adapter: Option<Arc<Adapter>>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// More of the text.
    Text {
        /// Whole characters.
        text: String,
        /// The tokens that it came with.
        tokens: Vec<u32>,
        /// Their chances, if they were asked for.
        logprobs: Vec<TokenChance>,
    },
    /// The answer is over; nothing comes after this.
    End {
        /// Why.
        reason: EndReason,
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens written, without the one that ended the answer.
        completion_tokens: usize,
    },
}

/// Why an answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The model ended it, a stop text came, or the constraint is complete.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
    /// The room was closed.
    Cancelled,
    /// Its time was up.
    Deadline,
    /// No token could be chosen: the constraint allows none, or the model computed no number.
    Failed,
}

/// How the numbers of several tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// Those of the last token.
    Last,
}

/// The text of one answer while it is written: whole characters only, and nothing of a stop text. What
/// may still become a stop text is held back.
#[derive(Debug)]
pub(crate) struct Speech {
    decoder: Decoder,
    stop: Vec<String>,
    held: String,
    /// A stop text came: nothing comes after it.
    over: bool,
}

impl Speech {
    /// Begins an answer. Empty stop texts are ignored.
    pub(crate) fn new(mut stop: Vec<String>) -> Self {
        stop.retain(|text| !text.is_empty());
        Self { decoder: Decoder::default(), stop, held: String::new(), over: false }
    }

    /// Takes a token's bytes. Returns the text that is now certain, and whether a stop text came.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> (String, bool) {
        let more = self.decoder.push(bytes);
        self.take(&more, false)
    }

    /// Ends the answer and returns what was held back.
    pub(crate) fn finish(&mut self) -> String {
        if self.over {
            return String::new();
        }
        let more = self.decoder.finish();
        self.take(&more, true).0
    }

    fn take(&mut self, more: &str, last: bool) -> (String, bool) {
        self.held.push_str(more);
        if let Some(at) = self.stop.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            self.over = true;
            return (std::mem::take(&mut self.held), true);
        }
        let certain = if last { self.held.len() } else { self.held.len() - self.possible_stop() };
        let rest = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Bytes at the end of the held text that begin a stop text.
    fn possible_stop(&self) -> usize {
        let longest = |stop: &String| {
            let most = self.held.len().min(stop.len() - 1);
            (1..=most).rev().find(|length| self.held.as_bytes().ends_with(&stop.as_bytes()[..*length]))
        };
        // A character's first byte occurs nowhere within a character, so that this cuts between characters.
        self.stop.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pushes pieces and returns what came out, and whether it was stopped.
    fn speak(stop: &[&str], pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut speech = Speech::new(stop.iter().map(|text| (*text).to_owned()).collect());
        let mut out = Vec::new();
        for piece in pieces {
            let (text, stopped) = speech.push(piece);
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        out.push(speech.finish());
        (out, false)
    }

    #[test]
    fn text_that_cannot_become_a_stop_is_given_at_once() {
        assert_eq!(speak(&["END"], &[b"hello E", b"ar"]).0, ["hello ", "Ear", ""]);
        assert_eq!(speak(&["\n\n"], &[b"a\n", b"b\n"]).0, ["a", "\nb", "\n"]);
    }

    #[test]
    fn the_earliest_stop_wins_and_is_never_seen() {
        assert_eq!(
            speak(&["abcd", "bc"], &[b"xa", b"b", b"c"]),
            (vec!["x".into(), String::new(), "a".into()], true)
        );
        assert_eq!(speak(&["stop"], &[b"a st", b"op b"]), (vec!["a ".into(), String::new()], true));
        assert_eq!(speak(&[""], &[b"abc"]), (vec!["abc".into(), String::new()], false));
    }

    #[test]
    fn characters_come_whole() {
        let snowman = "☃".as_bytes();
        assert_eq!(speak(&[], &[&snowman[..1], &snowman[1..2], &snowman[2..]]).0, ["", "", "☃", ""]);
        assert_eq!(speak(&[], &[&snowman[..2]]).0, ["", "\u{fffd}"]);
        assert_eq!(speak(&["é!"], &["n\u{e9}".as_bytes(), b"?"]).0, ["n", "é?", ""]);
    }

    proptest! {
        /// However the bytes are cut, the text is the same: everything before the first stop.
        #[test]
        fn any_cut_gives_the_text_before_the_first_stop(
            text in "[abé]{0,20}",
            stops in proptest::collection::vec("[abé]{1,3}", 0..3),
            cuts in proptest::collection::vec(1_usize..4, 20),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut pieces = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                pieces.push(now);
                rest = later;
            }
            let (out, stopped) = speak(&stops, &pieces);
            let joined: String = out.concat();
            // The first stop to be complete ends the text, at its beginning or at that of a longer one
            // that is complete with the same bytes.
            let first = stops.iter().filter_map(|stop| text.find(stop)).min();
            prop_assert_eq!(stopped, first.is_some());
            prop_assert!(text.starts_with(&joined));
            prop_assert!(stops.iter().all(|stop| !joined.contains(stop)));
            if first.is_none() {
                prop_assert_eq!(joined, text);
            }
        }
    }
}
