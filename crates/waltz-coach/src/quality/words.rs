//! A text as words and sentences: lower case, without punctuation and apostrophes. Scripts that put no blanks between
//! words have a word per character.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// The words of a text, and where its sentences end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    list: Vec<String>,
    /// How many words stand before the end of each sentence.
    ends: Vec<usize>,
    /// The text promises more: it ends with a colon or as a question.
    pub(super) is_open: bool,
}

impl Words {
    pub(crate) fn of(text: &str) -> Self {
        let mut words = Self { is_open: text.trim_end().ends_with([':', '?', '…']), ..Self::default() };
        let mut word = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if letter.is_alphanumeric() && !stands_alone(letter) {
                word.extend(letter.to_lowercase());
                continue;
            }
            if matches!(letter, '\'' | '’') && !word.is_empty() {
                continue;
            }
            words.push(&mut word);
            if stands_alone(letter) {
                words.list.push(letter.to_string());
            }
            let before_blank = letters.peek().is_none_or(|next| next.is_whitespace());
            if matches!(letter, '\n' | '。' | '！' | '？')
                || (before_blank && matches!(letter, '.' | '!' | '?' | ':' | ';'))
            {
                words.end_sentence();
            }
        }
        words.push(&mut word);
        words.end_sentence();
        words
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.list
    }

    pub(crate) fn sentences(&self) -> impl Iterator<Item = &[String]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.list.get(start..*end))
    }

    /// A number for every run of so many words.
    pub(crate) fn runs(&self, length: usize) -> impl Iterator<Item = u64> {
        self.list.windows(length).map(number)
    }

    fn push(&mut self, word: &mut String) {
        if !word.is_empty() {
            self.list.push(std::mem::take(word));
        }
    }

    fn end_sentence(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.list.len() {
            self.ends.push(self.list.len());
        }
    }
}

/// A number for words in their order.
pub(crate) fn number(words: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

/// Characters that are words by themselves: those of scripts without blanks, and pictures.
fn stands_alone(letter: char) -> bool {
    matches!(letter,
        '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}'
        | '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{20000}'..='\u{3ffff}')
}

/// A set of words with blanks between them.
pub(super) fn word_set(words: &'static str) -> HashSet<&'static str> {
    words.split(' ').collect()
}

/// Words that carry no matter of their own. Those that can be a whole answer, such as `yes`, `no` and `both`, are none.
pub(crate) fn is_function_word(word: &str) -> bool {
    FUNCTION_WORDS.contains(word)
}

static FUNCTION_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    word_set(
        "a about also am an and any are as at be been being but by can could did do does for from had has \
        have he her him his how i if im in into is it its ive just may me might must my of on or our \
        really shall she should so some than that thats the their them then there these they this those \
        to us very was we were what when where which who will with would you your",
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_sentences_are_found_whatever_stands_between_them() {
        let words = Words::of("**Don’t** panic: call 911.\n- 3.5 km, e.g. east!");
        let sentences: Vec<String> = words.sentences().map(|sentence| sentence.join(" ")).collect();
        assert_eq!(sentences, ["dont panic", "call 911", "3 5 km e g", "east"]);
        assert_eq!(Words::of("日本。👍 ok").all(), ["日", "本", "👍", "ok"]);
        assert!(Words::of(" \n*** …").all().is_empty());
    }

    #[test]
    fn words_that_answer_are_no_function_words() {
        assert!(is_function_word("the") && !is_function_word("not") && !is_function_word("yes"));
    }
}
