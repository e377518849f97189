//! What stands between letters and is not seen where the text is shown: tags of HTML, and the signs of quoted-printable.

use waltz_exchange::Span;

use super::{Budget, Hidden};

/// Escapes that a text in quoted-printable has at least, and tags between letters that no accident put there.
const LEAST_ESCAPES: usize = 3;
/// The longest tag that is passed over.
const LONGEST_TAG: usize = 256;
/// Tags that part words where they are shown.
const PARTING: [&str; 24] = [
    "br",
    "p",
    "div",
    "td",
    "th",
    "tr",
    "li",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "table",
    "hr",
    "pre",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "section",
    "article",
    "blockquote",
];

/// Adds a text without the escapes and the soft line ends of quoted-printable.
pub(super) fn quoted_printable(text: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let bytes = budget.part(text).as_bytes();
    let mut said = Vec::with_capacity(bytes.len());
    let (mut escapes, mut at) = (0, 0);
    // `x=65,` is no escape, but `=65x` and `=65=78` are.
    let goes_on = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'=');
    while let Some(byte) = bytes.get(at) {
        let behind = bytes.get(at + 1..at + 3);
        let line_end = behind.map_or(0, |behind| match behind {
            [b'\n', _] => 1,
            b"\r\n" => 2,
            _ => 0,
        });
        if *byte != b'=' {
            said.push(*byte);
            at += 1;
        } else if line_end > 0 {
            escapes += 1;
            at += 1 + line_end;
        } else if let Some(escaped) = behind.and_then(octet) {
            said.push(escaped);
            escapes += usize::from(goes_on(at + 3));
            at += 3;
        } else {
            said.push(b'=');
            at += 1;
        }
    }
    let text_of = |bytes| String::from_utf8(bytes).ok();
    if escapes >= LEAST_ESCAPES
        && let Some(said) = text_of(said).filter(|said| budget.take(said))
    {
        let is_prose = super::is_prose(&said);
        found.push(Hidden { text: said, span: Span { start: 0, end: text.len() }, is_prose });
    }
}

fn octet(digits: &[u8]) -> Option<u8> {
    let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let [high, low] = digits[..] else { return None };
    u8::try_from(high * 16 + low).ok().filter(|byte| *byte >= b' ')
}

/// Adds a text without its tags, where any stands between two letters. Tags that begin a line or a cell part words.
pub(super) fn without_tags(text: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let part = budget.part(text);
    let mut said = String::with_capacity(part.len());
    let (mut rest, mut inside) = (part, 0);
    while let Some(open) = rest.find('<') {
        said.push_str(&rest[..open]);
        rest = &rest[open..];
        let Some((tag, behind)) = tag(rest) else {
            said.push('<');
            rest = &rest[1..];
            continue;
        };
        if is_parting(tag) {
            said.push(' ');
        } else {
            // Several tags may stand between two letters.
            let beside =
                behind.trim_start_matches('<').starts_with(char::is_alphanumeric) || behind.starts_with('<');
            inside += usize::from(beside && said.ends_with(char::is_alphanumeric));
        }
        rest = behind;
    }
    said.push_str(rest);
    if inside > 0 && budget.take(&said) {
        let is_prose = inside >= LEAST_ESCAPES;
        found.push(Hidden { text: said, span: Span { start: 0, end: text.len() }, is_prose });
    }
}

/// The tag that a text begins with, without its brackets, and what stands behind it.
fn tag(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('<')?;
    let begins = inner.starts_with(|sign: char| sign.is_ascii_alphabetic() || matches!(sign, '/' | '!'));
    let end =
        inner.bytes().take(LONGEST_TAG).position(|byte| byte == b'>' || byte == b'<').filter(|_| begins)?;
    let behind = inner.get(end..)?.strip_prefix('>')?;
    Some((&inner[..end], behind))
}

fn is_parting(tag: &str) -> bool {
    let name = tag.trim_start_matches('/');
    let name = name.split(|sign: char| !sign.is_ascii_alphanumeric()).next().unwrap_or_default();
    PARTING.iter().any(|parting| parting.eq_ignore_ascii_case(name))
}
