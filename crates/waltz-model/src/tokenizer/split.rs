//! Cuts a text into the words that byte-pair encoding works on, as SmolLM2 was trained: each digit alone, then
//! GPT-2's pattern on what lies between.

use std::sync::LazyLock;

use regex::Regex;

/// GPT-2's pattern without its look-ahead, which [`for_each_between_digits`] does by hand.
#[expect(clippy::expect_used, reason = "a constant pattern, compiled by every test")]
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+")
        .expect("the pattern is sound")
});

/// Calls `found` with each word, in order; together they are the text.
pub(super) fn for_each_word<'a>(text: &'a str, mut found: impl FnMut(&'a str)) {
    let mut start = 0;
    for (at, character) in text.char_indices().filter(|(_, character)| character.is_numeric()) {
        for_each_between_digits(&text[start..at], &mut found);
        start = at + character.len_utf8();
        found(&text[at..start]);
    }
    for_each_between_digits(&text[start..], &mut found);
}

fn for_each_between_digits<'a>(text: &'a str, found: &mut impl FnMut(&'a str)) {
    let mut at = 0;
    while let Some(word) = WORD.find_at(text, at) {
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
