//! Words behind an encoding: base64 and hexadecimal runs wherever they stand, also wrapped over lines, and rot13 or
//! reversed letters where the text says that they are. What comes out is for the judge to read beside the text.

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
    let mut says = |run: &str| {
        let run = run.get(..run.len().min(2 * left)).unwrap_or(run);
        let Some(text) = prose_of(run) else { return false };
        left = left.saturating_sub(text.len());
        found.push(Hidden { text, is_prose: true });
        true
    };
    for run in runs(text) {
        says(run);
    }
    for lines in wrapped(text) {
        // A word alone on the line before or behind a run looks like a part of it.
        let (first, last) = (&lines[1..], &lines[..lines.len() - 1]);
        for part in [&lines, first, last, &last[1..]] {
            if says(&part.concat()) {
                break;
            }
        }
    }
    if left == 0 {
        return found;
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

/// What a run says, if that is prose.
fn prose_of(run: &str) -> Option<String> {
    let bytes = from_hex(run).or_else(|| from_base64(run))?;
    String::from_utf8(bytes).ok().filter(|text| is_prose(text))
}

/// The runs that go over several lines, line by line. The first line may begin and the last one may end with other words.
fn wrapped(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let line_end = at + text.get(at..)?.find('\n')?;
            let (lines, behind) = lines_of_code(text, line_end);
            at = behind.max(line_end + 1);
            if lines.len() > 1 && lines.iter().map(|line| line.len()).sum::<usize>() >= LEAST_RUN {
                return Some(lines);
            }
        }
    })
}

/// The lines of a run of which the first one ends at a place, with nothing but blanks between them, and where it ends.
fn lines_of_code(text: &str, line_end: usize) -> (Vec<&str>, usize) {
    let bytes = text.as_bytes();
    let is_code = |byte: &u8| CODE[usize::from(*byte)];
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let line = &bytes[..line_end];
    let mut at = line.iter().rposition(|byte| *byte == b'\n' || !is_blank(byte)).map_or(0, |last| last + 1);
    let start = line[..at].iter().rposition(|byte| !is_code(byte)).map_or(0, |other| other + 1);
    let mut lines: Vec<&str> = text.get(start..at).filter(|line| !line.is_empty()).into_iter().collect();
    while !lines.is_empty() && at - start < 2 * MOST_DECODED {
        let blanks = bytes[at..].iter().take_while(|byte| is_blank(byte)).count();
        let letters = bytes[at + blanks..].iter().take_while(|byte| is_code(byte)).count();
        if letters == 0 || !bytes[at..at + blanks].contains(&b'\n') {
            break;
        }
        at += blanks + letters;
        lines.extend(text.get(at - letters..at));
    }
    (lines, at)
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
            prop_assert!(!decoded(&text).is_empty());
        }
    }

    /// The two words share a letter.
    #[test]
    fn rotated_and_reversed_are_found_apart() {
        assert_eq!(texts("ciphereverse").len(), 2);
    }
}
