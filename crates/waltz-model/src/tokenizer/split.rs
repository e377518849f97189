//! Cuts a text into the words that byte-pair encoding works on, as SmolLM2 was trained: each digit alone, then
//! GPT-2's pattern on what lies between.

use regex::Regex;

/// Finds the borders of words.
#[derive(Debug)]
pub(super) struct Splitter {
    word: Regex,
}

impl Splitter {
    /// Prepares GPT-2's pattern, without its look-ahead, which is done by hand.
    pub(super) fn new() -> Result<Self, regex::Error> {
        let word = Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+")?;
        Ok(Self { word })
    }

    /// Calls `found` with each word, in order; together they are the text.
    pub(super) fn for_each_word<'a>(&self, text: &'a str, mut found: impl FnMut(&'a str)) {
        let mut start = 0;
        for (at, character) in text.char_indices().filter(|(_, character)| character.is_numeric()) {
            self.for_each_between_digits(&text[start..at], &mut found);
            start = at + character.len_utf8();
            found(&text[at..start]);
        }
        self.for_each_between_digits(&text[start..], &mut found);
    }

    fn for_each_between_digits<'a>(&self, text: &'a str, found: &mut impl FnMut(&'a str)) {
        let mut at = 0;
        while let Some(word) = self.word.find_at(text, at) {
            let mut end = word.end();
            // White space before a word leaves its last character to that word: `\s+(?!\S)`.
            let last = word.as_str().chars().next_back().filter(|last| last.is_whitespace());
            if let Some(last) = last.filter(|last| end < text.len() && word.len() > last.len_utf8()) {
                end -= last.len_utf8();
            }
            found(&text[at..end]);
            at = end;
        }
    }
}
