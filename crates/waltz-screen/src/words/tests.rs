use proptest::prelude::*;

use super::*;
use crate::normalise::normalise;

fn view(text: &str) -> String {
    String::from_utf8(split(text, false).text).unwrap()
}

#[test]
fn words_have_one_blank_around_them() {
    assert_eq!(view("how  to--go,\nthere?"), " how to go there ");
    assert_eq!(view(""), "");
    assert_eq!(view("?! ..."), "");
}

#[test]
fn apostrophes_join_and_possessives_vanish() {
    assert_eq!(view("i can't open my ex's phone"), " i cant open my ex phone ");
    assert_eq!(view("the 'quoted' word"), " the quoted word ");
}

#[test]
fn sentences_are_counted() {
    let words = split("one two. three 3.14 four! five\n\nsix", false).words;
    let sentences: Vec<u32> = words.iter().map(|word| word.sentence).collect();
    assert_eq!(sentences, [0, 0, 1, 1, 1, 1, 2, 3]);
}

#[test]
fn ideographs_are_words_of_their_own() {
    assert_eq!(view("制造炸弹 now"), " 制 造 炸 弹 now ");
}

#[test]
fn words_know_their_bytes() {
    let text = "my ex's phone";
    let words = split(text, false).words;
    assert_eq!(&text[words[1].start as usize..words[1].end as usize], "ex's");
}

#[test]
fn odd_spellings_are_read_in_further_views() {
    let views = |text: &str| {
        let normalised = normalise(text);
        let views = respelt(&normalised, &plain(&normalised)).into_iter();
        views.map(|view| String::from_utf8(view.text).unwrap()).collect::<Vec<String>>()
    };
    assert_eq!(views("h4ck it"), [" hack it "]);
    assert_eq!(views("k1ll it"), [" kill it ", " klll it "]);
    assert_eq!(views("h a c k it"), [" hack it "]);
    assert_eq!(views("a b o m b"), [" abomb ", " a bomb "]);
    assert_eq!(views("h.a.c.k it"), [" hack it "]);
    assert_eq!(views("p@$$word"), [" password "]);
    assert_eq!(views("h 4 c k it"), [" hack it "]);
    assert!(views("items 1 2 3 4 and sha256").is_empty());
    assert_eq!(views("h a c k\u{a0}t h e\u{a0}b a n k"), [" hack the bank "]);
    assert_eq!(views("h\u{2009}a\u{2009}c\u{2009}k t\u{2009}h\u{2009}e"), [" hack the "]);
    assert_eq!(views("h  a  c  k    t  h  e"), [" hack the "]);
    assert_eq!(views("h·a·c·k it"), [" hack it "]);
    assert!(views("x, y, z").is_empty());
}

#[test]
fn parted_words_of_families_are_put_together() {
    let views = |text: &str| {
        let normalised = normalise(text);
        let view = plain(&normalised);
        let views = if view.odd { respelt(&normalised, &view) } else { Vec::new() };
        views.into_iter().map(|view| String::from_utf8(view.text).unwrap()).collect::<Vec<String>>()
    };
    assert_eq!(views("ma-ke a bo-mb"), [" make a bomb "]);
    assert_eq!(views("m-ake, mak‑e; explo.sives"), [" make make explosives "]);
    assert_eq!(views("how-to-ma-k-e it"), [" how to make it "]);
    for whole in
        ["a well-known, up-to-date kill-switch", "ma - ke", "and/or", "e.g. http://my.site/page", "3-4"]
    {
        assert!(views(whole).is_empty(), "{whole}");
    }
    let text = "to ma-ke";
    let normalised = normalise(text);
    let words = respelt(&normalised, &plain(&normalised)).remove(0).words;
    assert_eq!(&text[words[1].start as usize..words[1].end as usize], "ma-ke");
}

#[test]
fn only_odd_texts_get_further_views() {
    assert!(!split("a plain text, with 3 numbers in 2024", false).odd);
    assert!(split("h4ck", false).odd);
    assert!(split("h a c k", false).odd);
}

/// The views and the words, one byte after the other.
fn read_plainly(text: &str) -> (String, Vec<(usize, usize)>) {
    let (mut view, mut words) = (String::new(), Vec::new());
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(at) {
            at += 1;
            continue;
        }
        let start = at;
        view.push(' ');
        while is_word(at) || matches!(bytes.get(at), Some(b'\'' | b'`')) && is_letter(at + 1) {
            if is_word(at) {
                view.push(char::from(bytes[at]));
            } else if bytes[at + 1] == b's' && !is_word(at + 2) {
                at += 1;
            }
            at += 1;
        }
        words.push((start, at));
    }
    if !words.is_empty() {
        view.push(' ');
    }
    (view, words)
}

proptest! {
    #[test]
    fn words_are_those_of_a_plain_reading(text in "[a-zA-Zs0-9@`{\\[/ :.'-]{0,80}|([a-z']{1,20}[ ,']){0,20}") {
        let words = split(&text, false);
        let places = words.words.iter().map(|word| (word.start as usize, word.end as usize));
        let (view, expected) = read_plainly(&text);
        prop_assert_eq!(places.collect::<Vec<_>>(), expected);
        prop_assert_eq!(&words.text, view.as_bytes());
        for word in &words.words {
            prop_assert_eq!(words.text[word.at as usize - 1], b' ');
        }
    }

    #[test]
    fn a_view_is_whole_characters(text in any::<String>(), symbols in any::<bool>()) {
        prop_assert!(String::from_utf8(split(&text, symbols).text).is_ok());
    }

    #[test]
    fn letters_are_counted_up_to_the_first_other_byte(eight in any::<[u8; 8]>(), letters in "[a-zA-Z]{0,8}") {
        let mut bytes = eight;
        bytes[..letters.len()].copy_from_slice(letters.as_bytes());
        let expected = bytes.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        prop_assert_eq!(letters_before(u64::from_le_bytes(bytes)), expected);
    }
}
