//! Words behind an encoding: base64 and hexadecimal runs wherever they stand, and rot13 or reversed letters where the
//! text says that they are. What comes out is for the judge to read beside the text.

use std::sync::LazyLock;

use crate::normalise::boundary_before;
use crate::search::Search;

/// Shorter runs are names, numbers and hashes of nothing.
const LEAST_RUN: usize = 24;
/// Most bytes that are decoded of one text.
const MOST_DECODED: usize = 64 << 10;

/// What a text says where it is rotated, and where it is reversed.
static ROTATED: LazyLock<Option<Search>> =
    LazyLock::new(|| Search::new(&["rot13", "rot-13", "rot 13", "caesar", "cipher"]));
static REVERSED: LazyLock<Option<Search>> =
    LazyLock::new(|| Search::new(&["reverse", "backward", "right to left"]));

/// A text that was hidden in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// What it says.
    pub text: String,
    /// Whether it is prose that somebody encoded; of rot13 and reversed letters only what they say can tell.
    pub is_prose: bool,
}

/// The texts that are hidden in a text, in the order in which they stand.
pub fn decoded(text: &str) -> Vec<Hidden> {
    let mut found = Vec::new();
    let mut left = MOST_DECODED;
    for run in runs(text) {
        let run = run.get(..run.len().min(2 * left)).unwrap_or(run);
        let bytes = from_hex(run).or_else(|| from_base64(run));
        if let Some(text) =
            bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| is_prose(text))
        {
            left = left.saturating_sub(text.len());
            found.push(Hidden { text, is_prose: true });
        }
        if left == 0 {
            return found;
        }
    }
    let lower = text[..boundary_before(text, MOST_DECODED)].to_ascii_lowercase();
    let says = |words: &Option<Search>| words.as_ref().is_some_and(|words| words.find(&lower, 0).is_some());
    if says(&ROTATED) {
        found.push(Hidden { text: lower.chars().map(rotated).collect(), is_prose: false });
    }
    if says(&REVERSED) {
        found.push(Hidden { text: lower.chars().rev().collect(), is_prose: false });
    }
    found
}

/// The runs of at least [`LEAST_RUN`] letters of base64, of either alphabet. Each step looks from the end of the
/// shortest run back to the first byte that breaks it, so that most bytes of a text are not looked at.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut start = 0;
    std::iter::from_fn(move || {
        while let Some(shortest) = bytes.get(start..start + LEAST_RUN) {
            if let Some(last) = shortest.iter().rposition(|byte| !CODE[usize::from(*byte)]) {
                start += last + 1;
                continue;
            }
            let more = bytes[start + LEAST_RUN..].iter().take_while(|byte| CODE[usize::from(**byte)]).count();
            let run = start..start + LEAST_RUN + more;
            start = run.end + 1;
            return text.get(run);
        }
        None
    })
}

/// Whether a byte is a letter of base64, of either alphabet.
static CODE: [bool; 256] = codes();

const fn codes() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let letter = byte as u8;
        table[byte] = letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'/' | b'-' | b'_' | b'=');
        byte += 1;
    }
    table
}

fn rotated(letter: char) -> char {
    match letter {
        'a'..='m' => char::from(letter as u8 + 13),
        'n'..='z' => char::from(letter as u8 - 13),
        other => other,
    }
}

fn from_hex(run: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = run.chars().map(|letter| letter.to_digit(16)).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).unwrap_or_default()).collect();
    rest.is_empty().then_some(bytes)
}

/// Leniently: either alphabet, with or without padding, and a run that was cut.
fn from_base64(run: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(run.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in run.bytes().take_while(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// Letters and blanks as people write them, and not what random bytes happen to spell.
fn is_prose(words: &str) -> bool {
    let letters = words.chars().filter(|letter| letter.is_alphabetic() || *letter == ' ').count();
    let strange = words.chars().any(|letter| letter.is_control() && !letter.is_whitespace());
    !strange && words.contains(' ') && letters * 10 >= words.chars().count() * 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        decoded(text).into_iter().map(|hidden| hidden.text).collect()
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
        ] {
            assert_eq!(texts(plain), Vec::<String>::new(), "{plain}");
        }
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
            prop_assert!(!decoded(&text).is_empty());
        }
    }

    /// The two words share a letter.
    #[test]
    fn rotated_and_reversed_are_found_apart() {
        assert_eq!(texts("ciphereverse").len(), 2);
    }
}
