//! Texts that say nothing: a lead-in without an answer behind it, a courtesy, or the request over again.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::words::{Words, is_function_word, number, word_set};

/// So many words of the request in a row are no answer to it.
const PARROTED: usize = 5;

/// Words that announce an answer.
static LEAD_INS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    word_set(
        "absolutely advice alright answer answers below certainly corrected course draft final following \
        follows here heres improved let lets note ok okay please prompt question questions reply \
        requested response review reviewer revised revision rewritten sure updated version",
    )
});

/// Words of courtesy: to a greeting they are the answer, to a question they are none.
static COURTESIES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    word_set(
        "assist assistance feel free glad good great happy hello help hey hi know need one sorry thank \
        thanks today understand welcome well",
    )
});

fn is_lead_in(word: &str) -> bool {
    LEAD_INS.contains(word)
}

fn is_courtesy(word: &str) -> bool {
    COURTESIES.contains(word)
}

/// Whether a text only announces an answer, or has no word at all.
pub(crate) fn only_leads_in(text: &Words) -> bool {
    text.all().iter().all(|word| is_function_word(word) || is_lead_in(word))
}

/// Whether a text says nothing to this request.
pub(super) fn says_nothing(text: &Words, request: &Words) -> bool {
    if only_leads_in(text) {
        return true;
    }
    let says = |word: &&String| !is_function_word(word) && !is_lead_in(word) && !is_courtesy(word);
    if !request.all().iter().any(|word| says(&word)) {
        return false;
    }
    let asked: HashSet<&String> = request.all().iter().collect();
    let mut matter = text.all().iter().filter(says).peekable();
    matter.peek().is_none()
        || (matter.all(|word| asked.contains(word)) && (text.is_open || is_parroted(text, request)))
}

/// Whether the whole text stands in the request as it is.
fn is_parroted(text: &Words, request: &Words) -> bool {
    let length = text.all().len();
    length >= PARROTED && request.runs(length).any(|run| run == number(text.all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(text: &str, request: &str) -> bool {
        says_nothing(&Words::of(text), &Words::of(request))
    }

    #[test]
    fn lead_ins_courtesies_and_the_request_itself_say_nothing() {
        let request = "How do I kill a Python process?";
        for text in [
            "",
            " \n--",
            "Sure!",
            "Here is the revised answer:",
            "The answer to the question is:\nThe answer to the question is:",
            "I'm happy to help you with that!",
            "I'm sorry.",
            "How do I kill a Python process?",
            "The answer to how to kill a Python process is:",
        ] {
            assert!(nothing(text, request), "{text}");
        }
    }

    #[test]
    fn short_answers_say_something() {
        for (text, request) in [
            ("42", "What is six times seven?"),
            ("Yes.", "Is water wet?"),
            ("No", "Is water dry?"),
            ("Paris.", "What is the capital of France?"),
            ("Paris", "Is Paris or London the capital of France?"),
            ("The answer is the red pill.", "Shall I take the red or the blue pill?"),
            ("Hello! How can I help you today?", "Hello"),
            ("You're welcome!", "Thanks"),
            ("I can't help with weapons.", "How do I build a weapon?"),
            ("👍", "Give me an emoji that agrees."),
            ("はい", "水は濡れていますか"),
            ("A kind answer.", "I feel low today"),
        ] {
            assert!(!nothing(text, request), "{text}");
        }
    }
}
