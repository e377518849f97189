//! Words come out of their encodings, and ordinary text has none.

use proptest::prelude::*;

use super::runs::{LEAST_RUN, runs};
use super::*;
use crate::normalise::normalise;

fn texts(text: &str) -> Vec<String> {
    decoded(&normalise(text), &mut Budget::default()).into_iter().map(|hidden| hidden.text).collect()
}

#[test]
fn words_come_out_of_their_encodings() {
    let base64 = "RXhwbGFpbiBob3cgdG8gZ3JvdyB0b21hdG9lcw==";
    assert_eq!(texts(&format!("Please read `{base64}` and answer.")), ["Explain how to grow tomatoes"]);
    let hex = "4578706c61696e20686f7720746f2067726f7720746f6d61746f6573";
    assert_eq!(texts(hex), ["Explain how to grow tomatoes"]);
    assert_eq!(texts("rot13: tebj gbzngbrf").len(), 1);
    assert!(texts("rot13: tebj gbzngbrf")[0].contains("grow tomatoes"));
    assert!(texts("Read it backwards: seotamot worg")[0].contains("grow tomatoes"));
    let octets = |format: fn(u8) -> String| {
        "Explain how to grow tomatoes".bytes().map(format).collect::<Vec<String>>().join(" ")
    };
    for spelt in [
        octets(|byte| format!("{byte:02x}")),
        octets(|byte| format!("0x{byte:02x},")),
        octets(|byte| format!("{byte:08b}")),
        octets(|byte| byte.to_string()),
        octets(|byte| format!("{byte:08b}")).replace(' ', ""),
    ] {
        assert_eq!(texts(&spelt), ["Explain how to grow tomatoes"], "{spelt}");
    }
    assert_eq!(texts("Ex<b></b>pla<i>in</i> it<br>now"), ["Explain it now"]);
    assert_eq!(texts("=45=78=70lain h=6Fw to gr=\now"), ["Explain how to grow"]);
    assert_eq!(texts("--. .-. --- .-- / - --- -- .- - --- . ..."), ["grow tomatoes"]);
    assert_eq!(texts("sǝoʇɐɯoʇ ʍoɹƃ oʇ ʍoɥ uıɐʃdxǝ")[0], "expʃain how to grow tomatoes");
}

#[test]
fn what_hides_no_words_gives_none() {
    for plain in [
        "",
        "How do I grow tomatoes?",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "key Zk93hQw0Lr7TtVb2Xc8Nn4Mm6Pp1Ss5Dd0Gg",
        "aVeryLongIdentifierThatNobodyEncodedAtAll_andAnotherOne",
        "----------------------------------------",
        "| a | b |\n|---|---|\n| 12 | 13 |\n",
        "let a = vec![1, 2, 3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];",
        "if a == b && c <= d { <p>one</p> }",
    ] {
        assert_eq!(texts(plain), Vec::<String>::new(), "{plain}");
    }
}

#[test]
fn runs_that_go_over_lines_are_put_together() {
    let base64 = "RXhwbGFpbiBob3cgdG8gZ3JvdyB0b21hdG9lcw==";
    let wrapped = |width: usize, line_end: &str| {
        let lines: Vec<&str> =
            base64.as_bytes().chunks(width).filter_map(|line| str::from_utf8(line).ok()).collect();
        lines.join(line_end)
    };
    for text in [
        wrapped(12, "\n"),
        wrapped(30, "\r\n"),
        wrapped(5, "\n    "),
        format!("Please read `{}` and answer.", wrapped(16, "\n")),
        format!("Please read\n{}\nand answer.", wrapped(16, "\n")),
        format!("Read\n{}\nThanks\n", wrapped(16, "\n").trim_end_matches('=')),
    ] {
        assert!(texts(&text).contains(&"Explain how to grow tomatoes".to_owned()), "{text}");
    }
    assert!(texts("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n").is_empty());
}

#[test]
fn a_hostile_megabyte_is_decoded_in_part() {
    let run = "QUJDIGRlZiBnaGkgamtsIG1ubyBwcXIg".repeat(1 << 15);
    let found = texts(&run);
    assert!(found.iter().map(String::len).sum::<usize>() <= 2 * MOST_DECODED);
}

proptest! {
    #[test]
    fn runs_are_what_stands_between_other_letters(
        pieces in prop::collection::vec(("[A-Za-z0-9+/_=-]{0,60}", "[ .é(]|"), 0..12),
    ) {
        let text: String = pieces.into_iter().map(|(run, other)| run + &other).collect();
        let is_code = |letter: char| letter.is_ascii_alphanumeric() || "+/-_=".contains(letter);
        let expected = text.split(|letter: char| !is_code(letter)).filter(|run| run.len() >= LEAST_RUN);
        prop_assert_eq!(runs(&text).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn what_a_text_says_of_itself_is_found_in_any_case_and_at_any_place(
        before in "[a-zA-Z .]{0,90}", behind in "[a-zA-Z .]{0,90}",
        said in prop::sample::select(vec!["Rot13", "ROT-13", "rot 13", "Caesar", "CIPHER", "Reverse", "backward", "right to LEFT"]),
    ) {
        let text = format!("{before}{said}{behind}");
        prop_assert!(!texts(&text).is_empty());
    }
}

/// The two words share a letter.
#[test]
fn rotated_and_reversed_are_found_apart() {
    assert_eq!(texts("ciphereverse").len(), 3);
}
