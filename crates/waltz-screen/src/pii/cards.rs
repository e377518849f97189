//! Card numbers. People write other numbers right beside them, such as a list's number, the month and year of
//! expiry or the check number, so that a run of digits is taken apart at its blanks and hyphens, and cards are
//! looked for among its groups.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::checks::Issuer;
use super::numbers::Spoken;
use super::patterns::{compile, finding, is_apart, matches, stands_free};
use super::{PiiFinding, PiiKind, checks, numbers};

/// Digits of the groups that card numbers are printed in, the longest first.
const SHAPES: [&[usize]; 5] = [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 3, 3, 3]];
/// Digits that tell one double from any other; none is printed with more.
const DOUBLE_DIGITS: usize = 17;
/// What a text calls cards.
pub(super) const NAMES: [&str; 12] = [
    "card",
    "cards",
    "credit",
    "debit",
    "visa",
    "mastercard",
    "maestro",
    "amex",
    "discover",
    "pan",
    "ccn",
    "cvv",
];
/// A number with so many digits that it is no neighbour of a card, such as its expiry or its place in a list.
const LONG: usize = 6;
const LONG_FRACTION: usize = 9;

/// Adds the card numbers of a run of digits, taken apart into groups.
pub(super) fn find(spoken: &Spoken<'_>, run: Span, groups: &[Span], found: &mut Vec<PiiFinding>) {
    if run.end - run.start < 12 {
        return;
    }
    let mut at = 0;
    // Columns of four digits are a table, in which four neighbours soon pass for a card by chance. A card
    // begins where such columns begin.
    let mut in_table = false;
    while at < groups.len() {
        let count = card_at(spoken, &groups[at..], at == 0, in_table);
        if let Some(count) = count {
            let span = Span { start: groups[at].start, end: groups[at + count - 1].end };
            found.push(finding(PiiKind::Card, span, 0.95));
        }
        in_table = count.is_none() && digits(&groups[at]) == 4;
        at += count.unwrap_or(1);
    }
}

static DOTTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?-u)[0-9]{4}\.(?:[0-9]{4}\.[0-9]{4}\.[0-9]{1,7}|[0-9]{6}\.[0-9]{4,5})"));

/// Adds the card numbers whose groups are parted by dots.
pub(super) fn find_dotted(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&DOTTED, text) {
        if stands_free(text, span) && checks::card_issuer(&numbers::digits(text, span)).is_some() {
            found.push(finding(PiiKind::Card, span, 0.95));
        }
    }
}

/// Whether groups pass for a card and are one: among other numbers, many pass by chance.
fn is_card(spoken: &Spoken<'_>, groups: &[Span]) -> bool {
    let text = spoken.text;
    let [first, ..] = groups else { return false };
    let span = Span { start: first.start, end: groups[groups.len() - 1].end };
    let Some(issuer) = checks::card_issuer(&numbers::digits(text, span)) else { return false };
    let printed = is_printed(groups);
    let apart = is_apart(text, span);
    let likely = match issuer {
        Issuer::Usual => printed || apart || groups.len() == 1 && !is_among_numbers(text, span),
        Issuer::Rare => printed && apart,
    };
    likely || spoken.of(PiiKind::Card)
}

/// Whether a long number that is no card stands on either side.
fn is_among_numbers(text: &str, span: Span) -> bool {
    let (before, behind) = (&text.as_bytes()[..span.start], &text.as_bytes()[span.end..]);
    is_long_number(before.iter().rev(), true) || is_long_number(behind.iter(), false)
}

fn is_long_number<'a>(bytes: impl Iterator<Item = &'a u8>, reversed: bool) -> bool {
    let mut bytes = bytes.take(48).peekable();
    let parts = |byte: &&u8| byte.is_ascii_whitespace() || **byte == b',';
    let mut parted = false;
    while bytes.next_if(parts).is_some() {
        parted = true;
    }
    let makes = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'e');
    let mut number: Vec<u8> = bytes.take_while(makes).copied().collect();
    if reversed {
        number.reverse();
    }
    let long = if number.contains(&b'.') { LONG_FRACTION } else { LONG };
    let values: Vec<u8> =
        number.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0').collect();
    parted && values.len() >= long && checks::card_issuer(&values).is_none()
}

/// Whether the groups are those that cards are printed in, or all alike but the last.
fn is_printed(groups: &[Span]) -> bool {
    let sizes: Vec<usize> = groups.iter().map(digits).collect();
    let [first, .., last] = sizes[..] else { return false };
    let alike = first >= 3 && last <= first && sizes[..sizes.len() - 1].iter().all(|size| *size == first);
    alike || SHAPES.contains(&&sizes[..])
}

fn digits(group: &Span) -> usize {
    group.end - group.start
}

/// How many of the groups, from the first on, are a card number. Where more of them pass by chance, fewer may
/// still be one.
fn card_at(spoken: &Spoken<'_>, groups: &[Span], is_whole: bool, in_table: bool) -> Option<usize> {
    let text = spoken.text;
    let is_card = |count: usize| is_card(spoken, &groups[..count]);
    let all = groups.len();
    let whole = Span { start: groups[0].start, end: groups[all - 1].end };
    // However it is grouped: a card that nothing stands beside.
    if is_whole && whole.end - whole.start <= 2 * 19 && stands_free(text, whole) && is_card(all) {
        return Some(all);
    }
    if digits(&groups[0]) >= 12 {
        return (stands_alone(text, groups[0]) && is_card(1)).then_some(1);
    }
    let mut shapes = SHAPES.iter().filter(|shape| {
        shape.len() <= all && shape.iter().zip(groups).all(|(size, group)| *size == digits(group))
    });
    let found = shapes.find(|shape| {
        let count = shape.len();
        is_evenly_parted(text, &groups[..count]) && is_card(count)
    });
    found.map(|shape| shape.len()).filter(|_| !in_table)
}

/// Whether groups have the same sign between them and are not the middle of something longer. A grouped number
/// is no fraction and no part of a path, so that dots and slashes around it do not matter.
fn is_evenly_parted(text: &str, groups: &[Span]) -> bool {
    let bytes = text.as_bytes();
    let sign = bytes[groups[0].end];
    let even = groups[..groups.len() - 1].iter().all(|group| bytes[group.end] == sign);
    let before = groups[0].start.checked_sub(1).map(|index| bytes[index]);
    let after = groups.last().and_then(|last| bytes.get(last.end).copied());
    let longer = |neighbour: Option<u8>| {
        neighbour.is_some_and(|byte| byte.is_ascii_alphanumeric() || (byte == b'-' && sign == b'-'))
    };
    even && !longer(before) && !longer(after)
}

/// Whether digits without signs between them are not a part of a word, a path, a version or a number with a
/// fraction. A dot beside them makes such a number only if both sides together have no more digits than a
/// double is printed with.
fn stands_alone(text: &str, group: Span) -> bool {
    if stands_free(text, group) {
        return true;
    }
    let bytes = text.as_bytes();
    let left = text[..group.start].strip_suffix('.').map(|left| {
        let count = left.bytes().rev().take_while(u8::is_ascii_digit).count();
        &left[left.len() - count..]
    });
    let right = text[group.end..].strip_prefix('.').map(|right| {
        let count = right.bytes().take_while(u8::is_ascii_digit).count();
        &right[..count]
    });
    let (left, right) = (left.filter(|left| !left.is_empty()), right.filter(|right| !right.is_empty()));
    match (left, right) {
        (Some(whole), None) => {
            let ends = bytes.get(group.end).is_none_or(|byte| !joins_words(*byte));
            let padded = whole.len() > 1 && whole.starts_with('0');
            let significant = whole.trim_start_matches('0').len() + digits(&group);
            ends && (padded || significant > DOUBLE_DIGITS)
        }
        (None, Some(fraction)) => {
            let before = group.start.checked_sub(1).map(|index| bytes[index]);
            let begins = before.is_none_or(|byte| !joins_words(byte));
            begins && digits(&group) + fraction.len() > DOUBLE_DIGITS
        }
        _ => false,
    }
}

fn joins_words(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/')
}
