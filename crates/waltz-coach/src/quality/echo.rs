//! Texts that recite advice instead of following it, as small models do.
//!
//! Our own advice says nothing to a user, so that any longer run of it is an echo. Advice of a feedback model may hold
//! the very words that the answer needs; that is recited only where a sentence of it is said from its beginning.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::words::{Words, number};
use crate::{conversation, templates};

/// So many words in a row do not stand in two texts by chance.
const RUN: usize = 8;
/// The length of the runs whose share is taken.
const SHINGLE: usize = 4;
/// So few shingles in common say nothing.
const FEW: usize = 3;

/// What may be recited.
#[derive(Debug, Default)]
pub(super) struct Advice {
    sentences: HashSet<u64>,
    shingles: HashSet<u64>,
    runs: HashSet<u64>,
    /// The first words of sentences.
    beginnings: HashSet<u64>,
}

/// The advice and the instructions that waltz itself gives.
static OWN: LazyLock<Advice> = LazyLock::new(|| {
    let mut own = Advice::default();
    for text in templates::advice().chain(conversation::INSTRUCTIONS) {
        own.add(&Words::of(text));
    }
    own
});

impl Advice {
    fn add(&mut self, text: &Words) {
        self.shingles.extend(text.runs(SHINGLE));
        self.runs.extend(text.runs(RUN));
        for sentence in text.sentences() {
            self.sentences.insert(number(sentence));
            self.beginnings.extend(sentence.get(..SHINGLE).map(number));
            self.beginnings.extend(sentence.get(..RUN).map(number));
        }
    }

    /// Adds advice that was given. What stands in quotation marks is a suggestion of what to say.
    pub(super) fn hear(&mut self, text: &str) {
        for (position, part) in text.split(['"', '“', '”']).enumerate() {
            if position % 2 == 0 {
                self.add(&Words::of(part));
            }
        }
    }
}

/// Whether a text recites what was given or our own words, as a whole or in part. What the user says too is no echo.
pub(super) fn is_echo(text: &Words, given: &Advice, request: &Words) -> bool {
    recites_sentences(text, given, request)
        || has_run(text, given, request)
        || has_share(text, given, request)
        || speaks_of_coaching(text, request)
}

/// At least half of the words stand in sentences of advice.
fn recites_sentences(text: &Words, given: &Advice, request: &Words) -> bool {
    let asked: HashSet<u64> = request.sentences().map(number).collect();
    let recited = text.sentences().filter(|sentence| {
        let sentence = (sentence.len(), number(sentence));
        let is_advice = OWN.sentences.contains(&sentence.1) || given.sentences.contains(&sentence.1);
        sentence.0 > 1 && is_advice && !asked.contains(&sentence.1)
    });
    let recited: usize = recited.map(<[String]>::len).sum();
    recited > 0 && 2 * recited >= text.all().len()
}

fn has_run(text: &Words, given: &Advice, request: &Words) -> bool {
    let mut found = text
        .runs(RUN)
        .filter(|run| OWN.runs.contains(run) || (given.runs.contains(run) && given.beginnings.contains(run)))
        .peekable();
    if found.peek().is_none() {
        return false;
    }
    let asked: HashSet<u64> = request.runs(RUN).collect();
    found.any(|run| !asked.contains(&run))
}

/// A quarter of the text is ours, or half of it advice that begins as the advice does.
fn has_share(text: &Words, given: &Advice, request: &Words) -> bool {
    let asked: HashSet<u64> = request.runs(SHINGLE).collect();
    let shingles: Vec<u64> = text.runs(SHINGLE).filter(|shingle| !asked.contains(shingle)).collect();
    let own = shingles.iter().filter(|shingle| OWN.shingles.contains(shingle)).count();
    let heard = shingles.iter().filter(|shingle| given.shingles.contains(shingle)).count();
    let begins = shingles.iter().any(|shingle| given.beginnings.contains(shingle));
    (own >= FEW && 4 * own >= shingles.len()) || (begins && heard >= FEW && 2 * heard >= shingles.len())
}

/// A sentence speaks of the draft, the advice or the user's request, of which no user knows.
fn speaks_of_coaching(text: &Words, request: &Words) -> bool {
    let speaks = |sentence: &[String]| {
        let words: Vec<&str> = sentence.iter().map(String::as_str).collect();
        let subject = match words.as_slice() {
            ["the" | "your" | "my" | "this", "draft", ..] => "draft",
            ["the" | "my" | "this", "advice", "is" | "was" | "says", ..] => "advice",
            ["the", "reviewer", ..] => "reviewer",
            _ if words.windows(2).any(|two| two == ["users", "request"]) => "users",
            _ => return false,
        };
        !request.all().iter().any(|word| word == subject)
    };
    text.sentences().any(speaks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(text: &str, advice: &str, request: &str) -> bool {
        let mut given = Advice::default();
        given.hear(advice);
        is_echo(&Words::of(text), &given, &Words::of(request))
    }

    #[test]
    fn advice_is_found_as_a_whole_and_in_part() {
        let advice = templates::for_category(&waltz_exchange::Category::ILLEGAL_ACTIVITY).advice;
        for text in [
            advice,
            "The draft helps with something that is against the law.",
            "Sure! Leave out the steps, sources and ways to avoid being caught. I hope this helps you with your plans.",
            "Answer it.",
            "Answer it. Say what the person wants to know, fully and concretely.",
            "Write the answer to the user alone, without mentioning the review.",
            "Your draft seems to break a law, so the steps should go.",
            "The answer to the question is:\n\nThe advice is to avoid being caught.",
            "A helpful and supportive response to a user's request.",
            "- explain the lawful way to the same end\n- licences, official programmes, safe products",
        ] {
            assert!(echo(text, "", "How do I get a fishing licence?"), "{text}");
        }
    }

    #[test]
    fn a_models_advice_is_recited_from_its_beginning_and_used_from_its_middle() {
        let advice = "Be kind instead. Explain how pgrep finds the number of the process and how kill ends it. Say: \"The \
            office opens at nine and closes at five every day.\"";
        let request = "How do I end a process?";
        for text in [
            "Be kind instead.",
            "Explain how pgrep finds the number of the process and how kill ends it.",
            "Explain how pgrep finds the number of the process.",
        ] {
            assert!(echo(text, advice, request), "{text}");
        }
        for text in [
            "You can see here how pgrep finds the number of the process and how kill ends it: run both.",
            "The office opens at nine and closes at five every day.",
            "Paris.",
        ] {
            assert!(!echo(text, advice, request), "{text}");
        }
    }

    #[test]
    fn what_the_user_says_is_no_echo() {
        let sentence =
            "The draft spreads something false as if it were true, or helps to deceive many people.";
        assert!(echo(sentence, "", "What is known of the moon?"));
        let request = format!("Please translate: {sentence}");
        assert!(!echo(
            &format!("You wrote: {sentence} In German that is quite a long sentence."),
            "",
            &request
        ));
    }

    #[test]
    fn an_answer_in_its_own_words_is_no_echo() {
        for text in [
            "I can't help with making weapons. If you feel unsafe, your local police or a victim support line can help, \
             and I can tell you which lawful means of self-protection exist.",
            "Find its number with `pgrep NAME`, then end it with `kill NUMBER`.",
            "I'm so sorry you feel like this. Please call 988 or your local emergency number, and talk to someone you trust.",
            "Use the provider's recovery page, or ask the administrator for an authorised test.",
        ] {
            assert!(!echo(text, crate::templates::OVER_REFUSAL_ADVICE, "How do I do it?"), "{text}");
        }
        for reply in templates::own_replies() {
            assert!(!echo(reply, "", "How do I do it?"), "a reply for users is no advice: {reply}");
        }
    }
}
