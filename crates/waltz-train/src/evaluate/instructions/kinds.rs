//! The kinds of instructions: how each is worded, and what follows it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Numbers or words that a kind is asked with.
pub(super) const VARIANTS: usize = 3;

/// Every kind, by the number of its variant.
pub(super) const KINDS: [fn(usize) -> Instruction; 12] = [
    |variant| Instruction::MostWords([20, 35, 50][variant]),
    |variant| Instruction::Sentences([2, 3, 4][variant]),
    |variant| Instruction::Bullets([3, 4, 5][variant]),
    |variant| Instruction::Paragraphs([2, 3, 4][variant]),
    |variant| Instruction::Include(["however", "because", "century"][variant].into()),
    |variant| Instruction::Avoid(["the", "is", "and"][variant].into()),
    |variant| Instruction::Json(["title", "summary", "fact"][variant].into()),
    |variant| Instruction::EndWith(["That is all.", "I hope this helps.", "The end."][variant].into()),
    |variant| Instruction::BeginWith(["Did you know", "In short", "Here is"][variant].into()),
    |variant| {
        Instruction::LowerCase(
            [
                "Write everything in lower case.",
                "Use no capital letters.",
                "Your whole answer must be in lower case letters.",
            ][variant]
                .into(),
        )
    },
    |variant| {
        Instruction::UpperCase(
            [
                "Write everything in capital letters.",
                "Use capital letters only.",
                "Your whole answer must be in upper case letters.",
            ][variant]
                .into(),
        )
    },
    |variant| {
        Instruction::NoCommas(
            ["Use no commas.", "Do not use a single comma.", "Your answer must not have any commas."]
                [variant]
                .into(),
        )
    },
];

/// An instruction that a program can check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruction {
    /// At most so many words.
    MostWords(usize),
    /// Exactly so many sentences.
    Sentences(usize),
    /// Exactly so many lines that begin with a dash, and no others.
    Bullets(usize),
    /// Exactly so many paragraphs with a blank line between them.
    Paragraphs(usize),
    /// A word that must be there.
    Include(Cow<'static, str>),
    /// A word that must not be there.
    Avoid(Cow<'static, str>),
    /// A JSON object with this key.
    Json(Cow<'static, str>),
    /// The last words.
    EndWith(Cow<'static, str>),
    /// The first words.
    BeginWith(Cow<'static, str>),
    /// No capital letters; how it is asked.
    LowerCase(Cow<'static, str>),
    /// Capital letters only; how it is asked.
    UpperCase(Cow<'static, str>),
    /// No commas; how it is asked.
    NoCommas(Cow<'static, str>),
}

impl Instruction {
    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::MostWords(_) => "most_words",
            Self::Sentences(_) => "sentences",
            Self::Bullets(_) => "bullets",
            Self::Paragraphs(_) => "paragraphs",
            Self::Include(_) => "include",
            Self::Avoid(_) => "avoid",
            Self::Json(_) => "json",
            Self::EndWith(_) => "end_with",
            Self::BeginWith(_) => "begin_with",
            Self::LowerCase(_) => "lower_case",
            Self::UpperCase(_) => "upper_case",
            Self::NoCommas(_) => "no_commas",
        }
    }

    /// How it is asked.
    pub fn wording(&self) -> String {
        match self {
            Self::MostWords(most) => format!("Use at most {most} words."),
            Self::Sentences(count) => format!("Write exactly {count} sentences."),
            Self::Bullets(count) => {
                format!(
                    "Answer with exactly {count} bullet points, each on a line of its own that begins with \"- \", and nothing else."
                )
            }
            Self::Paragraphs(count) => {
                format!("Write exactly {count} paragraphs with a blank line between them.")
            }
            Self::Include(word) => format!("Use the word \"{word}\" in your answer."),
            Self::Avoid(word) => format!("Do not use the word \"{word}\" anywhere in your answer."),
            Self::Json(key) => {
                format!("Answer with one JSON object that has the key \"{key}\", and with nothing else.")
            }
            Self::EndWith(words) => format!("End your answer with exactly these words: {words}"),
            Self::BeginWith(words) => format!("Begin your answer with the words \"{words}\"."),
            Self::LowerCase(asked) | Self::UpperCase(asked) | Self::NoCommas(asked) => asked.to_string(),
        }
    }

    /// Whether a text follows it. An empty one follows nothing.
    pub fn is_followed(&self, text: &str) -> bool {
        let text = text.trim();
        if text.is_empty() {
            return false;
        }
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        match self {
            Self::MostWords(most) => text.split_whitespace().count() <= *most,
            Self::Sentences(count) => sentences(text) == *count,
            Self::Bullets(count) => lines().count() == *count && lines().all(|line| line.starts_with("- ")),
            Self::Paragraphs(count) => paragraphs(text) == *count,
            Self::Include(word) => has_word(text, word),
            Self::Avoid(word) => !has_word(text, word),
            Self::Json(key) => {
                let object = serde_json::from_str::<Value>(text).ok();
                object
                    .is_some_and(|value| value.as_object().is_some_and(|object| object.contains_key(&**key)))
            }
            Self::EndWith(words) => text.ends_with(&**words),
            Self::BeginWith(words) => text.starts_with(&**words),
            Self::LowerCase(_) => !text.chars().any(char::is_uppercase),
            Self::UpperCase(_) => !text.chars().any(char::is_lowercase),
            Self::NoCommas(_) => !text.contains(','),
        }
    }
}

/// Runs of letters between ends: a full stop, a question or an exclamation mark before a blank or the end.
fn sentences(text: &str) -> usize {
    let mut count = 0;
    let mut open = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        open |= letter.is_alphanumeric();
        let ends = matches!(letter, '.' | '!' | '?')
            && letters.peek().is_none_or(|next| next.is_whitespace() || matches!(next, '"' | '\'' | ')'));
        if ends && open {
            count += 1;
            open = false;
        }
    }
    count + usize::from(open)
}

fn paragraphs(text: &str) -> usize {
    let mut count = 0;
    let mut inside = false;
    for line in text.lines() {
        let blank = line.trim().is_empty();
        count += usize::from(!blank && !inside);
        inside = !blank;
    }
    count
}

fn has_word(text: &str, word: &str) -> bool {
    let lower = text.to_lowercase();
    lower.split(|letter: char| !letter.is_alphanumeric()).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_tells_what_follows_from_what_does_not() {
        let cases = [
            (Instruction::MostWords(3), "Bees make honey.", "Bees make a lot of honey."),
            (Instruction::Sentences(2), "Bees fly. They hum at 3.5 Hz!", "Bees fly. They hum. They rest."),
            (Instruction::Bullets(2), "- one\n\n- two\n", "Here:\n- one\n- two"),
            (Instruction::Paragraphs(2), "One.\nStill one.\n\n\nTwo.", "One.\nTwo."),
            (Instruction::Include("however".into()), "However, it rains.", "Howevermuch it rains."),
            (Instruction::Avoid("the".into()), "Bees bathe there.", "Look at the bees."),
            (
                Instruction::Json("title".into()),
                "{\"title\": \"Bees\"}",
                "```json\n{\"title\": \"Bees\"}\n```",
            ),
            (Instruction::EndWith("The end.".into()), "Bees. The end.\n", "The end. Or not."),
            (Instruction::BeginWith("In short".into()), " In short, bees.", "Well, in short, bees."),
            (Instruction::LowerCase("".into()), "bees, 3 of them.", "Bees."),
            (Instruction::UpperCase("".into()), "BEES, 3 OF THEM.", "BEEs."),
            (Instruction::NoCommas("".into()), "Bees and wasps.", "Bees, wasps."),
        ];
        assert_eq!(cases.len(), KINDS.len());
        for (instruction, good, bad) in cases {
            assert!(instruction.is_followed(good), "{instruction:?}: {good}");
            assert!(!instruction.is_followed(bad), "{instruction:?}: {bad}");
            assert!(!instruction.is_followed(" \n"), "{instruction:?} of nothing");
        }
        // What refuses instead of answering follows only by chance.
        assert!(!Instruction::Json("title".into()).is_followed("I can't help with that."));
    }
}
