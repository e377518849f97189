//! The shapes of personal data. An expression proposes a place, the bytes around it and the checks of
//! `checks.rs` decide.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::{PiiFinding, PiiKind, cards, checks};

static EMAIL: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?i-u)[a-z0-9][a-z0-9._%+-]{0,63}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}"));
static IBAN: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?i-u)[a-z]{2}[0-9]{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?"));
static SSN: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?-u)([0-9]{3})([- ])([0-9]{2})([- ])([0-9]{4})"));
static IPV4: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?-u)[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}"));
/// International with a plus, or the North American form with its separators.
static PHONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"(?-u)\+[1-9][0-9]{0,2}(?:[ .-]?\(?[0-9]{1,4}\)?){2,6}",
        r"|(?:1[ .-])?\([2-9][0-9]{2}\) ?[2-9][0-9]{2}[ .-][0-9]{4}",
        r"|(?:1[ .-])?[2-9][0-9]{2}[.-][2-9][0-9]{2}[.-][0-9]{4}",
    ))
});

/// The expressions are constants and covered by tests, so a failure to compile cannot reach a user.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// Adds what is found. The signs are read first: text without them is left at once.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    let signs = signs(text.as_bytes());
    if signs.at {
        for place in matches(&EMAIL, text) {
            found.push(finding(PiiKind::Email, place, 0.95));
        }
    }
    if signs.iban {
        find_ibans(text, found);
    }
    if signs.dense_digits >= 9 {
        cards::find(text, found);
        find_ssns(text, found);
    }
    if signs.dense_digits >= 8 {
        find_phones(text, found);
    }
    if signs.dense_digits >= 4 && signs.dots >= 3 {
        find_addresses(text, found);
    }
}

struct Signs {
    at: bool,
    /// The most digits in one stretch of digits and the signs that stand between them.
    dense_digits: usize,
    /// The most dots in such a stretch.
    dots: usize,
    /// A word begins with two letters and two digits.
    iban: bool,
}

fn signs(bytes: &[u8]) -> Signs {
    let mut signs = Signs { at: false, dense_digits: 0, dots: 0, iban: false };
    // Most text has neither, and a block without an early way out is looked at many bytes at a time.
    let telling =
        |block: &[u8]| block.iter().fold(false, |any, byte| any | byte.is_ascii_digit() | (*byte == b'@'));
    if !bytes.chunks(256).any(telling) {
        return signs;
    }
    let (mut digits, mut dots) = (0, 0);
    // How much of two letters and two digits the word has shown so far; 5 when it is another word.
    let mut shown = 0;
    for byte in bytes {
        shown = match (shown, byte) {
            (0 | 1, b'a'..=b'z' | b'A'..=b'Z') | (2 | 3, b'0'..=b'9') => shown + 1,
            (_, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9') => 5,
            _ => 0,
        };
        signs.iban |= shown == 4;
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                signs.dense_digits = signs.dense_digits.max(digits);
                signs.dots = signs.dots.max(dots);
            }
            b'.' => dots += 1,
            b' ' | b'-' | b'(' | b')' | b'+' => {}
            _ => {
                signs.at |= *byte == b'@';
                (digits, dots) = (0, 0);
            }
        }
    }
    signs
}

pub(super) fn matches<'a>(
    regex: &'a LazyLock<Option<Regex>>,
    text: &'a str,
) -> impl Iterator<Item = Span> + 'a {
    let regex: Option<&Regex> = regex.as_ref();
    regex
        .into_iter()
        .flat_map(move |regex| regex.find_iter(text))
        .map(|place| Span { start: place.start(), end: place.end() })
}

pub(super) fn finding(kind: PiiKind, span: Span, score: f32) -> PiiFinding {
    PiiFinding { kind, span, score }
}

/// Whether the place is not part of a longer number, word or dotted version.
pub(super) fn stands_free(text: &str, span: Span) -> bool {
    let bytes = text.as_bytes();
    let before = span.start.checked_sub(1).and_then(|index| bytes.get(index));
    let second_before = span.start.checked_sub(2).and_then(|index| bytes.get(index));
    let after = bytes.get(span.end);
    let second_after = bytes.get(span.end + 1);
    let joins = |sign: Option<&u8>, digit: Option<&u8>| {
        sign.is_some_and(|sign| matches!(sign, b'.' | b'-' | b'_' | b'/'))
            && digit.is_some_and(u8::is_ascii_digit)
    };
    !before.is_some_and(u8::is_ascii_alphanumeric)
        && !after.is_some_and(u8::is_ascii_alphanumeric)
        && !joins(before, second_before)
        && !joins(after, second_after)
}

fn find_ssns(text: &str, found: &mut Vec<PiiFinding>) {
    let Some(regex) = SSN.as_ref() else { return };
    for place in regex.captures_iter(text) {
        let Some(whole) = place.get(0) else { continue };
        let part = |index: usize| place.get(index).map_or("", |part| part.as_str());
        let number = |index: usize| part(index).parse::<u32>().unwrap_or(0);
        let span = Span { start: whole.start(), end: whole.end() };
        let alike = part(2) == part(4);
        if alike && stands_free(text, span) && checks::is_ssn(number(1), number(3), number(5)) {
            let score = if part(2) == "-" { 0.9 } else { 0.6 };
            found.push(finding(PiiKind::Ssn, span, score));
        }
    }
}

fn find_ibans(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&IBAN, text) {
        // The words after an IBAN may have been taken for its last groups: try it shorter.
        let mut end = span.end;
        while end > span.start + 14 {
            let compact: String = text[span.start..end]
                .chars()
                .filter(|letter| *letter != ' ')
                .collect::<String>()
                .to_uppercase();
            let place = Span { start: span.start, end };
            if stands_free(text, place) && checks::is_iban(&compact) {
                found.push(finding(PiiKind::Iban, place, 1.0));
                break;
            }
            end -= 1;
        }
    }
}

fn find_phones(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&PHONE, text) {
        let written = &text[span.start..span.end];
        let count = written.bytes().filter(u8::is_ascii_digit).count();
        if (8..=15).contains(&count) && stands_free(text, span) {
            found.push(finding(PiiKind::Phone, span, if written.starts_with('+') { 0.85 } else { 0.75 }));
        }
    }
}

fn find_addresses(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&IPV4, text) {
        let valid = text[span.start..span.end].split('.').all(|part| part.parse::<u8>().is_ok());
        if valid && stands_free(text, span) {
            found.push(finding(PiiKind::Ipv4, span, 0.6));
        }
    }
}
