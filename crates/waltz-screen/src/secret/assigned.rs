//! Values that a name announces: passwords, and keys and tokens that are assigned or sent in a header.

use super::{finding, run};
use crate::normalise::boundary_before;
use crate::pii::{PiiFinding, PiiKind, is_stand_in};

/// Longest value.
const MAX_VALUE_BYTES: usize = 256;
/// Longest rest of a name behind the part by which it is known.
const MAX_NAME_BYTES: usize = 32;
/// Shortest key that only its name announces.
const MIN_KEY_BYTES: usize = 16;

/// Values that stand where a password would, but are none.
const NO_VALUES: [&str; 18] = [
    "null",
    "none",
    "true",
    "false",
    "string",
    "required",
    "undefined",
    "nil",
    "optional",
    "str",
    "password",
    "secret",
    "example",
    "correct",
    "incorrect",
    "wrong",
    "input",
    "hidden",
];

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The value behind a sign that assigns, with its place and what follows it.
fn value(text: &str, from: usize) -> (usize, &str, &str) {
    let bytes = text.as_bytes();
    let start = run(bytes, run(bytes, from, is_blank), is_quote);
    let ends =
        |byte: u8| byte.is_ascii_whitespace() || is_quote(byte) || matches!(byte, b',' | b';' | b')' | b'<');
    let window = &text[start..boundary_before(text, start + MAX_VALUE_BYTES)];
    let value = &window[..run(window.as_bytes(), 0, |byte| !ends(byte))];
    (start, window, value.trim_end_matches(['.', '!', '?', ':']))
}

/// `password: value`, `"password" = "value"`, `password is value`. The value is the finding.
pub(super) fn assignment(text: &str, name_end: usize) -> Option<PiiFinding> {
    let bytes = text.as_bytes();
    let at = run(bytes, run(bytes, name_end, is_quote), is_blank);
    let (value_start, score) = match bytes.get(at) {
        Some(b':' | b'=') => (at + 1, 0.8),
        Some(b'i') if bytes.get(at..at + 3) == Some(b"is ") => (at + 3, 0.55),
        _ => return None,
    };
    let (value_start, window, value) = value(text, value_start);
    let quoted = value_start > 0 && is_quote(bytes[value_start - 1]);
    if value.len() < 4 || NO_VALUES.iter().any(|none| none.eq_ignore_ascii_case(value)) {
        return None;
    }
    let plain_word = value.bytes().all(|byte| byte.is_ascii_alphabetic());
    let told = bytes.get(at) == Some(&b':') && value.bytes().all(|byte| byte.is_ascii_lowercase());
    let followed = window[value.len()..].starts_with(['<', '(']);
    // After "is" a plain word is prose ("the password is stored").
    let prose = plain_word && score < 0.6;
    // Code refers to values and types by name.
    let named = !quoted && !told && (followed || value.starts_with("__") || is_path(value));
    if prose || named || value.starts_with("os.") || value.contains(['(', '[', '{', '$', '<']) {
        return None;
    }
    finding(PiiKind::Password, value_start, value_start + value.len(), score)
}

/// Letters and what joins the names of values and types.
fn is_path(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b':' | b'&' | b'*'))
}

/// `client_secret = value`, `AccountKey=value`: what a name announces is only a key if it looks like one.
pub(super) fn named(text: &str, name_end: usize) -> Option<PiiFinding> {
    let bytes = text.as_bytes();
    let joins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let rest = run(bytes, name_end, joins);
    let at = run(bytes, run(bytes, rest, is_quote), is_blank);
    let sign = match bytes.get(at..at + 2)? {
        b"=>" | b":=" => 2,
        [b':' | b'=', _] => 1,
        _ => return None,
    };
    if rest - name_end > MAX_NAME_BYTES {
        return None;
    }
    let (start, _, value) = value(text, at + sign);
    is_key(value).then(|| finding(PiiKind::ApiKey, start, start + value.len(), 0.85))?
}

/// `Bearer value`.
pub(super) fn bearer(text: &str, word_end: usize) -> Option<PiiFinding> {
    let (start, _, value) = value(text, word_end);
    is_key(value).then(|| finding(PiiKind::ApiKey, start, start + value.len(), 0.85))?
}

/// Whether a value has the form of a key: one long run of letters and digits, and what base64 has beside them.
fn is_key(value: &str) -> bool {
    let has = |sort: fn(&u8) -> bool| value.bytes().any(|byte| sort(&byte));
    let is_run = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-.~".contains(&byte));
    value.len() >= MIN_KEY_BYTES
        && is_run
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !is_stand_in(value)
}
