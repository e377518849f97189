//! Names of persons and postal addresses, known by the words around them. Such findings are less sure than
//! numbers with a checksum and have kinds of their own, so that they can be treated apart.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding};
use super::{PiiFinding, PiiKind};
use crate::normalise::boundary_before;

/// One to four capitalised words, with initials and small words of names among them.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"^(?:\p{Lu}\p{Ll}+(?:[-'’]\p{Lu}\p{Ll}+)*|\p{Lu}['’]\p{Lu}\p{Ll}+)",
        r"(?: (?:(?:de|da|di|del|van|von|der|den|bin|al|el|la) ){0,2}",
        r"(?:\p{Lu}\.|\p{Lu}\p{Ll}+(?:[-'’]\p{Lu}\p{Ll}+)*|\p{Lu}['’]\p{Lu}\p{Ll}+)){0,3}",
    ))
});
/// What stands before the name of a street: a house number and the street's own words.
static HOUSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(r"[0-9]{1,5}[A-Za-z]?,? (?:[NSEW]\.? )?(?:[\p{Lu}0-9][\w'’.-]* ){0,3}[\p{Lu}0-9][\w'’.-]*$")
});
/// What may follow the word for a street: its end, a direction and a flat.
static FLAT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"^(?:nue)?",
        r"(?:\.?,? (?i:apt|apartment|suite|ste|unit|flat|#)\.? ?[0-9]{1,5}[A-Za-z]?\b)?",
    ))
});
/// A street whose number comes last.
static NUMBER_LAST: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"^(?:[\p{L}'’.-]+ ){0,4}[0-9]{1,4}[a-z]?\b"));

/// Bytes before and behind a word for a street that belong to the address.
const REACH: usize = 80;

/// Whose name is told, before the word for it.
const OWNERS: [&str; 9] = ["my", "his", "her", "full", "first", "last", "patient", "customer", "client"];

/// Whether the word before the place says that a name of somebody follows, rather than of something.
pub(crate) fn is_somebodys(text: &str, at: usize) -> bool {
    let before = text[..at].strip_suffix([' ', '_']).unwrap_or_default();
    OWNERS.iter().any(|owner| {
        let start = before.len().checked_sub(owner.len());
        start.is_some_and(|start| before.as_bytes()[start..].eq_ignore_ascii_case(owner.as_bytes()))
    })
}

/// The name that begins behind a cue such as `my name is`.
pub(crate) fn person(text: &str, cue_end: usize) -> Option<PiiFinding> {
    let skipped = text[cue_end..].bytes().take_while(|byte| matches!(byte, b' ' | b'.')).count();
    let start = cue_end + skipped;
    let window = &text[start..boundary_before(text, start + REACH)];
    let name = NAME.as_ref()?.find(window)?;
    let whole = !text[start + name.end()..].starts_with(|next: char| next.is_alphanumeric() || next == '_');
    let common = window[..name.end()].split(' ').all(|word| NO_NAMES.contains(&word));
    (whole && !common).then(|| finding(PiiKind::Person, Span { start, end: start + name.end() }, 0.5))
}

/// The address around a word for a street or a box: `12 Long Street, Apt. 3`, `Hauptstraße 5`, `PO Box 77`.
pub(crate) fn address(text: &str, cue: Span, form: Form) -> Option<PiiFinding> {
    let behind = &text[cue.end..boundary_before(text, cue.end + REACH)];
    let span = match form {
        Form::NumberFirst => {
            let mut from = cue.start.saturating_sub(REACH);
            while !text.is_char_boundary(from) {
                from += 1;
            }
            let before = &text[from..cue.start];
            if !before.bytes().any(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let house = HOUSE.as_ref()?.find(before)?;
            if before[..house.start()].ends_with(|letter: char| letter.is_alphanumeric() || letter == '.') {
                return None;
            }
            let flat = FLAT.as_ref()?.find(behind)?;
            if behind[flat.end()..].starts_with(char::is_alphanumeric) {
                return None;
            }
            Span { start: from + house.start(), end: cue.end + flat.end() }
        }
        Form::NumberLast => {
            let number = NUMBER_LAST.as_ref()?.find(behind)?;
            // The word for the street may be the end of a longer one, such as Hauptstraße.
            let word = text[..cue.start].chars().rev().take_while(|letter| letter.is_alphabetic());
            let start = cue.start - word.map(char::len_utf8).sum::<usize>();
            if !text[start..].starts_with(char::is_uppercase) {
                return None;
            }
            Span { start, end: cue.end + number.end() }
        }
    };
    Some(finding(PiiKind::Address, span, 0.5))
}

/// Where the number of a house stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Before the name of the street.
    NumberFirst,
    /// Behind it.
    NumberLast,
}

/// Capitalised words that follow a cue and name nobody.
const NO_NAMES: [&str; 22] = [
    "Mr",
    "Mrs",
    "Ms",
    "Miss",
    "Dr",
    "Prof",
    "Sir",
    "Madam",
    "Customer",
    "Team",
    "All",
    "Hiring",
    "Manager",
    "Friend",
    "Friends",
    "Colleagues",
    "The",
    "A",
    "Editor",
    "Recruiter",
    "Diary",
    "God",
];
