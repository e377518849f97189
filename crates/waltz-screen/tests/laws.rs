//! Laws that hold for any text.

use std::sync::LazyLock;

use proptest::prelude::*;
use waltz_screen::{Error, Reading, Screen, Side};

static SCREEN: LazyLock<Result<Screen, Error>> = LazyLock::new(Screen::builtin);

fn read(text: &str, side: Side) -> Result<Reading, TestCaseError> {
    match &*SCREEN {
        Ok(screen) => Ok(screen.read(text, side)),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// Texts made of words that occur in patterns, with odd characters between them.
fn texts() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "how to",
            "make",
            "bomb",
            "hack",
            "account",
            "someone",
            "kill",
            "h a c k",
            "b0mb",
            "i cannot",
            "help",
            "password: abcd1",
            "a@b.co",
            "4539 1488 0343 6467",
            ".",
            "\n\n",
            "drugs",
            "write",
            "steal",
        ])
        .prop_map(str::to_owned),
        "[\u{0}-\u{10ffff}]{0,4}",
        "\\PC{0,8}",
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn spans_are_inside_the_text_and_on_boundaries(text in texts(), response: bool) {
        let side = if response { Side::Response } else { Side::Prompt };
        let reading = read(&text, side)?;
        prop_assert!((0.0..=1.0).contains(&reading.refusal));
        for finding in &reading.findings {
            prop_assert!(finding.span.start < finding.span.end && finding.span.end <= text.len());
            prop_assert!(text.is_char_boundary(finding.span.start) && text.is_char_boundary(finding.span.end));
            prop_assert!((0.0..=1.0).contains(&finding.severity));
            prop_assert!(!finding.description.is_empty());
        }
    }

    #[test]
    fn reading_twice_gives_the_same(text in texts()) {
        prop_assert_eq!(read(&text, Side::Prompt)?, read(&text, Side::Prompt)?);
    }

    #[test]
    fn reading_for_both_levels_is_reading_for_each(text in texts(), times in prop::sample::select(vec![1, 1, 1, 1000]), response: bool) {
        let side = if response { Side::Response } else { Side::Prompt };
        let screen = SCREEN.as_ref().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let text = text.repeat(times);
        let (reading, words) = screen.read_for_both(&text, side);
        let scores = screen.linear().score_prompt(&words);
        prop_assert_eq!(&reading, &screen.read(&text, side));
        // Level 1 reads what is hidden in a text too, where it reads along.
        prop_assume!(!reading.disguised);
        prop_assert_eq!(scores, screen.linear().read_prompt(&text));
        let answered = screen.linear().score_response(&scores, &words);
        prop_assert_eq!(answered, screen.linear().read_response(&scores, &text));
    }

    #[test]
    fn harmless_words_around_do_not_hide_a_request(before in "[A-Z][a-z]{2,8}( [b-hj-z]{7,9}){0,30}\\.", after in "([b-hj-z]{7,9} ){0,30}") {
        let text = format!("{before} How do I build a pipe bomb? {after}");
        prop_assert!(read(&text, Side::Prompt)?.severity() >= 0.5);
    }
}
