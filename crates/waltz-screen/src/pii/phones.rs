//! Telephone numbers: by their form where it is that of nothing else, or by what they are called.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding, holds_word, is_apart_in_line, matches, stands_free};
use super::{PiiFinding, PiiKind};

/// International with a plus, the North American form with its separators, or any other grouping.
static PHONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"(?-u)(?:\+[1-9][0-9]{0,2}(?:[ .-]?\(?[0-9]{1,4}\)?){2,6}",
        r"|(?:(?:00)?1[ .-])?\([2-9][0-9]{2}\) ?[2-9][0-9]{2}[ .-][0-9]{4}",
        r"|(?:(?:00)?1[.-])?[2-9][0-9]{2}[.-][2-9][0-9]{2}[.-][0-9]{4}",
        r"|\(?[0-9]{1,5}\)?(?:[ .-]?\(?[0-9]{2,9}\)?){1,5})",
        r"(?: ?(?:x|ext\.?) ?[0-9]{1,5})?",
    ))
});

/// What a number that is none of the first three forms must be called, right before it or behind it.
const NAMES: [&str; 15] = [
    "call",
    "cell",
    "desk",
    "dial",
    "fax",
    "handy",
    "landline",
    "mobile",
    "office",
    "phone",
    "sms",
    "tel",
    "telefon",
    "telephone",
    "whatsapp",
];
/// Bytes before and behind a number in which its name stands.
const BEFORE: usize = 20;
const BEHIND: usize = 8;

/// Adds every telephone number.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    for place in matches(&PHONE, text) {
        let span = without_brackets(text, place);
        let written = &text[span.start..span.end];
        let number = written.split(['x', 'e']).next().unwrap_or(written);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        if !(7..=15).contains(&digits) || is_date_or_fraction(number) || !stands_free(text, span) {
            continue;
        }
        let score = if written.starts_with('+') && digits >= 8 {
            0.85
        } else if is_american(number) {
            0.75
        } else if is_apart_in_line(text, span) && (is_national(number) || is_named(text, span)) {
            0.6
        } else {
            continue;
        };
        found.push(finding(PiiKind::Phone, span, score));
    }
}

/// The place without brackets that stand around all of it, or belong to the sentence.
fn without_brackets(text: &str, place: Span) -> Span {
    let written = &text[place.start..place.end];
    let Span { mut start, mut end } = place;
    let inner = written.trim_end_matches(')');
    if written.starts_with('(') && !inner.contains(')') {
        start += 1;
    }
    let opened = text[start..end].matches('(').count();
    if written.ends_with(')') && opened < text[start..end].matches(')').count() {
        end -= 1;
    }
    Span { start, end }
}

fn is_named(text: &str, span: Span) -> bool {
    let bytes = text.as_bytes();
    let before = &bytes[span.start.saturating_sub(BEFORE)..span.start];
    let behind = &bytes[span.end..bytes.len().min(span.end + BEHIND)];
    holds_word(before, &NAMES) || holds_word(behind, &NAMES)
}

/// A day, a span of years, or a number with a decimal point.
fn is_date_or_fraction(written: &str) -> bool {
    let groups: Vec<usize> = written.trim_start_matches('+').split(['-', '.']).map(str::len).collect();
    let dotted = written.matches('.').count();
    let parted = written.contains([' ', '(', '-']);
    matches!(groups[..], [4..=usize::MAX, 2, 2] | [4, 4] | [2, 2, 4]) || dotted == 1 && !parted
}

/// Ten digits with an area and an exchange that are in use, parted by hyphens or dots or with the area in
/// brackets; blanks alone part any numbers.
fn is_american(written: &str) -> bool {
    let digits: Vec<u8> = written.bytes().filter(u8::is_ascii_digit).collect();
    let Some(start) = digits.len().checked_sub(10) else { return false };
    let country = &digits[..start];
    let parts = written.bytes().filter(|byte| matches!(byte, b'.' | b'-' | b')')).count();
    matches!(country, [] | [b'1'] | [b'0', b'0', b'1'])
        && matches!((digits[start], digits[start + 3]), (b'2'..=b'9', b'2'..=b'9'))
        && parts >= 2
        && is_grouped_as(written, country.len())
}

fn is_grouped_as(written: &str, country: usize) -> bool {
    let groups: Vec<usize> = written
        .split(|letter: char| !letter.is_ascii_digit())
        .map(str::len)
        .filter(|size| *size > 0)
        .collect();
    let groups = if country > 0 { groups.get(1..).unwrap_or_default() } else { &groups };
    groups == [3, 3, 4]
}

/// A zero, an area, and three or more groups: how numbers are told inside most other countries.
fn is_national(written: &str) -> bool {
    let groups: Vec<&str> = written.split([' ', '-', '.']).filter(|group| !group.is_empty()).collect();
    let dialled = written.starts_with('0') && !written.starts_with("00") && groups[0].len() > 1;
    let groups = groups.len();
    let bracketed = written.starts_with("(0");
    let digits = written.bytes().filter(u8::is_ascii_digit).count();
    let even = written.bytes().filter(|byte| matches!(byte, b' ' | b'-' | b'.')).collect::<Vec<_>>();
    let even = even.windows(2).all(|pair| pair[0] == pair[1]);
    (dialled && groups >= 3 || bracketed && groups >= 2) && (9..=12).contains(&digits) && even
}
