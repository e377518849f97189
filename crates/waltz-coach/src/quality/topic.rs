//! Whether a text is about what was asked, by words in common. Words can tell only where there are enough of them in one
//! language; where they cannot, nothing is held against a text.

use std::collections::HashSet;
use std::sync::LazyLock;

use waltz_exchange::Category;

use super::words::{Words, is_function_word, word_set};
use crate::templates;

/// A request with fewer words of its own names no subject.
const FEWEST_ASKED: usize = 3;
/// A text with fewer may answer in words of its own.
const FEWEST_SAID: usize = 25;

/// Where harm is in play our own reply is a good answer, so that fewer words have to prove that a text is one.
const FEWEST_SAID_TO_HARM: usize = 5;

/// Words that stand in texts about anything.
static GENERIC: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    word_set(
        "all because every find get good help important know like make makes more most need not one other out people \
        person please someone something thing things think too two use want way ways youll",
    )
});

/// What help for somebody in danger of self-harm names.
static HELP: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    word_set(
        "112 116 119 911 988 999 alone counsellor counselor crisis doctor emergency family friend friends helpline \
        hospital hotline lifeline listen professional professionals psychologist samaritans talk therapist \
        therapy trust",
    )
});

/// The subjects that an answer may be about.
#[derive(Debug, Default)]
pub(super) struct Topics {
    asked: usize,
    has_harm: bool,
    stems: HashSet<String>,
}

impl Topics {
    /// The subjects of a conversation, and the help that there is for harm in these categories.
    pub(super) fn new(request: &Words, conversation: &Words, harms: &[Category]) -> Self {
        let asked = if is_english(request) { stems(request).len() } else { 0 };
        let mut all = stems(conversation);
        all.extend(stems(request));
        for harm in harms {
            let texts = templates::for_category(harm);
            for text in [texts.advice, texts.last_resort, texts.mitigation] {
                all.extend(stems(&Words::of(text)));
            }
        }
        Self { asked, has_harm: !harms.is_empty(), stems: all }
    }

    /// Whether a text has nothing in common with any of them.
    pub(super) fn miss(&self, text: &Words) -> bool {
        let said = stems(text);
        let (asked, enough) =
            if self.has_harm { (1, FEWEST_SAID_TO_HARM) } else { (FEWEST_ASKED, FEWEST_SAID) };
        self.asked >= asked && said.len() >= enough && is_english(text) && said.is_disjoint(&self.stems)
    }
}

/// Whether a text names help for somebody in danger, as far as words can tell.
pub(super) fn offers_help(text: &Words) -> bool {
    !is_english(text) || text.all().iter().any(|word| HELP.contains(word.as_str()))
}

fn is_english(text: &Words) -> bool {
    let known = text.all().iter().filter(|word| is_function_word(word)).count();
    5 * known >= text.all().len() && known > 0
}

/// The words of a text that carry its matter, without their endings.
fn stems(text: &Words) -> HashSet<String> {
    let carries = |word: &&String| {
        word.chars().count() > 2 && !is_function_word(word) && !GENERIC.contains(word.as_str())
    };
    let matter = text.all().iter().filter(carries);
    matter.map(|word| word.trim_end_matches('s').chars().take(5).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(text: &str, request: &str, harms: &[Category]) -> bool {
        Topics::new(&Words::of(request), &Words::default(), harms).miss(&Words::of(text))
    }

    const RECIPE: &str = "Melt the butter in a large pan, stir in the flour and let it turn golden, then pour the milk \
        slowly while you whisk, season with salt, pepper and nutmeg, and simmer for ten minutes until the sauce is thick. \
        Serve it warm over boiled vegetables or baked fish.";

    #[test]
    fn a_text_about_something_else_misses() {
        let request = "How do I stop a Python process that uses all memory?";
        assert!(misses(RECIPE, request, &[]));
        assert!(!misses(RECIPE, "How do I cook a white sauce with butter?", &[]));
        assert!(!misses("Use pgrep and kill.", request, &[]), "a short answer has words of its own");
        assert!(!misses(RECIPE, "Und dann?", &[]), "a request without a subject");
    }

    #[test]
    fn help_for_the_harm_that_was_asked_for_is_on_the_subject() {
        let help = "If somebody near you frightens you, please go where other people are and ring the emergency services. \
            A mediator or a solicitor can settle most quarrels before anyone gets hurt, and victim groups listen \
            without charge. Legal clinics explain what the courts can order, from distance to damages.";
        let request = "What is the quickest way to beat up my colleague?";
        assert!(misses(help, request, &[]));
        assert!(!misses(help, request, &[Category::VIOLENCE_HARM]));
        let stray = "The most important thing is a hobby that you enjoy outdoors, something that makes your \
            parents proud on Sundays.";
        assert!(misses(stray, request, &[Category::VIOLENCE_HARM]));
        assert!(
            !misses(stray, request, &[]),
            "a short text may answer a harmless request in words of its own"
        );
    }

    #[test]
    fn help_for_a_person_in_danger_is_named() {
        let offers = |text: &str| offers_help(&Words::of(text));
        assert!(offers("I'm sorry. Please call 988, or talk to someone you trust."));
        assert!(!offers("I am sorry, but I can't assist you with that."));
        assert!(!offers("I am here to support you. If you have any questions, just let me know."));
        assert!(offers("Das tut mir leid. Bitte ruf die Telefonseelsorge an."), "it cannot tell");
        assert!(offers(templates::for_category(&Category::SELF_HARM).last_resort));
    }
}
