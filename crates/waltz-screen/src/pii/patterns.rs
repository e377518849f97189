//! What a text must hold for a search to be worth its time, and what the searches share. An expression
//! proposes a place, the bytes around it and the checks of `checks.rs` decide.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::{PiiFinding, PiiKind, cards, ibans, network, numbers, phones, wallets};

static EMAIL: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?i-u)[a-z0-9][a-z0-9._%+-]{0,63}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}"));

/// The same in an address of the web, where the sign is an escape.
static ESCAPED_EMAIL: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?i-u)[a-z0-9][a-z0-9._+-]{0,63}%40(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}"));

/// The expressions are constants and covered by tests, so a failure to compile cannot reach a user.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// Adds what is found. The signs are read first: text without them is left at once.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    let signs = signs(text.as_bytes());
    if signs.at {
        find_emails(text, found);
        network::find_credentials(text, found);
    }
    if signs.percent && text.contains("%40") {
        found.extend(matches(&ESCAPED_EMAIL, text).map(|span| finding(PiiKind::Email, span, 0.95)));
    }
    if signs.iban {
        ibans::find(text, found);
    }
    if signs.long_word {
        wallets::find(text, found);
    }
    if signs.dense_digits >= 9 {
        numbers::find(text, found);
    }
    if signs.dense_digits >= 13 && signs.dots >= 2 {
        cards::find_dotted(text, found);
    }
    if signs.dense_digits >= 7 {
        phones::find(text, found);
    }
    if signs.dense_digits >= 4 && signs.dots >= 3 {
        network::find_ipv4(text, found);
    }
    if signs.parted_hex {
        network::find_parted_hex(text, found);
    }
}

#[derive(Default)]
struct Signs {
    at: bool,
    /// A percent sign, which may begin an escape.
    percent: bool,
    /// The most digits in one stretch of digits and the signs that stand between them.
    dense_digits: usize,
    /// The most dots in such a stretch.
    dots: usize,
    /// A word begins with two letters and two digits.
    iban: bool,
    /// A word of letters and digits is as long as the number of a vehicle, or longer.
    long_word: bool,
    /// Hex digits with two colons among them, or five hyphens.
    parted_hex: bool,
}

/// Bytes that are looked at together. Most blocks of a text hold no digit and no `@`, and are passed over.
const BLOCK: usize = 64;
/// Bytes on either side of a block in which a word with a digit inside the block shows what it is.
const REACH: usize = 20;

fn signs(bytes: &[u8]) -> Signs {
    let mut signs = Signs::default();
    let mut stretch = Stretch::default();
    let mut read = 0;
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        // Without an early way out, so that a block is looked at many bytes at a time.
        let telling = block.iter().fold(false, |any, byte| any | byte.is_ascii_digit() | (*byte == b'@'));
        if !telling {
            continue;
        }
        let start = index * BLOCK;
        let from = start.saturating_sub(REACH);
        if from > read {
            stretch = Stretch::default();
            read = from;
        }
        let end = bytes.len().min(start + block.len() + REACH);
        for byte in &bytes[read..end] {
            stretch.push(*byte, &mut signs);
        }
        read = end;
    }
    signs
}

/// What the bytes just read are part of.
#[derive(Default)]
struct Stretch {
    digits: usize,
    dots: usize,
    /// How much of two letters and two digits the word has shown so far; 5 when it is another word.
    shown: u8,
    word: usize,
    word_has_digit: bool,
    colons: usize,
    hyphens: usize,
}

impl Stretch {
    fn push(&mut self, byte: u8, signs: &mut Signs) {
        match byte {
            b'0'..=b'9' => {
                self.digits += 1;
                signs.dense_digits = signs.dense_digits.max(self.digits);
                signs.dots = signs.dots.max(self.dots);
                self.shown = if matches!(self.shown, 2 | 3) { self.shown + 1 } else { 5 };
                signs.iban |= self.shown == 4;
                self.word += 1;
                self.word_has_digit = true;
                signs.long_word |= self.word >= 17;
                signs.parted_hex |= self.colons >= 2 || self.hyphens >= 5;
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                (self.digits, self.dots) = (0, 0);
                self.shown = if self.shown < 2 { self.shown + 1 } else { 5 };
                self.word += 1;
                signs.long_word |= self.word >= 17 && self.word_has_digit;
                if byte.is_ascii_hexdigit() {
                    signs.parted_hex |= self.colons >= 2 || self.hyphens >= 5;
                } else {
                    (self.colons, self.hyphens) = (0, 0);
                }
            }
            _ => {
                (self.shown, self.word, self.word_has_digit) = (0, 0, false);
                match byte {
                    b'.' => self.dots += 1,
                    b'-' => self.hyphens += 1,
                    b' ' | b'(' | b')' | b'+' | b'/' => (self.colons, self.hyphens) = (0, 0),
                    b':' => {
                        self.colons += 1;
                        (self.digits, self.dots) = (0, 0);
                    }
                    _ => {
                        signs.at |= byte == b'@';
                        signs.percent |= byte == b'%';
                        *self = Self::default();
                    }
                }
            }
        }
    }
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

/// Bytes before and behind a number in which a word tells what it is.
const BEFORE: usize = 48;
const BEHIND: usize = 24;

/// Whether one of the words stands near the place, as a word of its own and in any case.
pub(super) fn is_called(text: &str, span: Span, names: &[&str]) -> bool {
    let bytes = text.as_bytes();
    let before = &bytes[span.start.saturating_sub(BEFORE)..span.start];
    let behind = &bytes[span.end..bytes.len().min(span.end + BEHIND)];
    holds_word(before, names) || holds_word(behind, names)
}

/// Whether one of the words, written in lower case, stands in the text as a word of its own.
pub(super) fn holds_word(text: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| {
        let size = name.len();
        (0..text.len().saturating_sub(size - 1)).any(|at| {
            text[at..at + size].eq_ignore_ascii_case(name.as_bytes()) && is_word(text, at, at + size)
        })
    })
}

/// Whether no letter, digit or underscore goes on before or behind the place.
pub(super) fn is_word(text: &[u8], start: usize, end: usize) -> bool {
    let joins = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !start.checked_sub(1).and_then(|before| text.get(before)).is_some_and(joins)
        && !text.get(end).is_some_and(joins)
}

/// Whether no other number stands beside the place, with blanks, line ends or a comma between them.
pub(super) fn is_apart(text: &str, span: Span) -> bool {
    is_parted_by(text, span, |byte| byte.is_ascii_whitespace() || byte == b',')
}

/// Whether no other number stands beside the place in the same line.
pub(super) fn is_apart_in_line(text: &str, span: Span) -> bool {
    is_parted_by(text, span, |byte| matches!(byte, b' ' | b'\t' | b','))
}

fn is_parted_by(text: &str, span: Span, blank: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let before = bytes[..span.start].iter().rev().take(8).find(|byte| !blank(**byte));
    let behind = bytes[span.end..].iter().take(8).find(|byte| !blank(**byte));
    !before.is_some_and(u8::is_ascii_digit) && !behind.is_some_and(u8::is_ascii_digit)
}

fn find_emails(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&EMAIL, text) {
        // The way in which Git names a repository.
        let repository = text[span.start..].starts_with("git@") && text[span.end..].starts_with([':', '/']);
        if !repository {
            found.push(finding(PiiKind::Email, span, 0.95));
        }
    }
}
