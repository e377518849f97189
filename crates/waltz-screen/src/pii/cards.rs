//! Card numbers. People write other numbers right beside them, such as a list's number, the month and year of
//! expiry or the check number, so that a run of digits is taken apart at its blanks and hyphens, and cards are
//! looked for among its groups.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding, matches, stands_free};
use super::{PiiFinding, PiiKind, checks};

static RUN: LazyLock<Option<Regex>> = LazyLock::new(|| compile(r"(?-u)[0-9](?:[ -]?[0-9])*"));

/// Digits of the groups that card numbers are printed in, the longest first.
const SHAPES: [&[usize]; 5] = [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 3, 3, 3]];
/// Digits that tell one double from any other; none is printed with more.
const DOUBLE_DIGITS: usize = 17;

/// Adds every card number.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    for run in matches(&RUN, text) {
        if run.end - run.start < 13 {
            continue;
        }
        let groups = groups(text, run);
        let mut at = 0;
        // Columns of four digits are a table, in which four neighbours soon pass for a card by chance. A card
        // begins where such columns begin.
        let mut in_table = false;
        while at < groups.len() {
            let count = card_at(text, &groups[at..], at == 0, in_table);
            if let Some(count) = count {
                let span = Span { start: groups[at].start, end: groups[at + count - 1].end };
                found.push(finding(PiiKind::Card, span, 1.0));
            }
            in_table = count.is_none() && digits(&groups[at]) == 4;
            at += count.unwrap_or(1);
        }
    }
}

fn groups(text: &str, run: Span) -> Vec<Span> {
    let mut groups = Vec::new();
    let mut start = run.start;
    for group in text[run.start..run.end].split([' ', '-']) {
        groups.push(Span { start, end: start + group.len() });
        start += group.len() + 1;
    }
    groups
}

fn digits(group: &Span) -> usize {
    group.end - group.start
}

/// How many of the groups, from the first on, are a card number.
fn card_at(text: &str, groups: &[Span], is_whole: bool, in_table: bool) -> Option<usize> {
    let is_card = |count: usize| {
        let span = Span { start: groups[0].start, end: groups[count - 1].end };
        let digits = text[span.start..span.end].bytes().filter(u8::is_ascii_digit);
        checks::is_card(&digits.map(|byte| byte - b'0').collect::<Vec<_>>())
    };
    let all = groups.len();
    let whole = Span { start: groups[0].start, end: groups[all - 1].end };
    // However it is grouped: a card that nothing stands beside.
    if is_whole && whole.end - whole.start <= 2 * 19 && stands_free(text, whole) && is_card(all) {
        return Some(all);
    }
    if digits(&groups[0]) >= 13 {
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
