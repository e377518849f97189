//! A text without the characters that hide personal data: invisible ones inside a number, digits of
//! other scripts, wide forms, blanks and hyphens that are none in ASCII. Most texts have none of them and
//! are read as they are. The view of `normalise.rs` cannot serve here: it folds case, which keys rely on.

use waltz_exchange::Span;

/// A text as it reads, with the way back.
pub(super) struct View<'a> {
    /// The text as it reads.
    pub(super) text: String,
    source: &'a str,
    /// For each byte of `text` the first byte of the character it came from.
    origins: Vec<usize>,
}

impl View<'_> {
    /// The bytes of the original text that a span of the view came from, on character boundaries.
    pub(super) fn original(&self, span: Span) -> Span {
        let first = self.origins.get(span.start).copied();
        let last = span.end.checked_sub(1).and_then(|index| self.origins.get(index)).copied();
        let (Some(start), Some(last)) = (first, last) else {
            return Span { start: self.source.len(), end: self.source.len() };
        };
        let width = self.source[last..].chars().next().map_or(0, char::len_utf8);
        Span { start, end: last + width }
    }
}

/// The text as it reads, where that differs from how it is written.
pub(super) fn unfolded(text: &str) -> Option<View<'_>> {
    if text.is_ascii() || !hides_anything(text) {
        return None;
    }
    let mut view = View {
        text: String::with_capacity(text.len()),
        source: text,
        origins: Vec::with_capacity(text.len()),
    };
    for (position, letter) in text.char_indices() {
        match reads_as(letter) {
            Reads::Itself => view.text.push(letter),
            Reads::Nothing => {}
            Reads::Ascii(plain) => view.text.push(plain),
        }
        view.origins.resize(view.text.len(), position);
    }
    Some(view)
}

/// Whether a character reads otherwise than it is written. Only the few first bytes that such characters
/// have are looked at closer, so that most scripts cost one pass.
fn hides_anything(text: &str) -> bool {
    let may_begin =
        |byte: u8| matches!(byte, 0xc2 | 0xcd | 0xd8 | 0xd9 | 0xdb | 0xe0..=0xe3 | 0xef | 0xf0 | 0xf3);
    let mut places = text.bytes().enumerate().filter(|(_, byte)| may_begin(*byte));
    places.any(|(at, _)| text[at..].chars().next().is_some_and(|letter| reads_as(letter) != Reads::Itself))
}

/// How a character reads where personal data is sought.
#[derive(PartialEq, Eq)]
pub(crate) enum Reads {
    /// As it is written.
    Itself,
    /// As nothing.
    Nothing,
    /// As a character of ASCII.
    Ascii(char),
}

/// How a character reads. Letters of words are left alone: only what numbers and addresses are made of.
pub(crate) fn reads_as(letter: char) -> Reads {
    let code = u32::from(letter);
    let digit = |zero: u32| char::from_digit(code - zero, 10).map_or(Reads::Itself, Reads::Ascii);
    match code {
        0..=0x9f => Reads::Itself,
        0xa0 | 0x1680 | 0x2000..=0x200a | 0x202f | 0x205f | 0x3000 => Reads::Ascii(' '),
        0xad | 0x34f | 0x61c | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f => Reads::Nothing,
        0xfe00..=0xfe0f | 0xfeff | 0xe0000..=0xe01ef => Reads::Nothing,
        0x2010..=0x2013 | 0x2212 | 0xfe58 | 0xfe63 => Reads::Ascii('-'),
        0x660..=0x669 => digit(0x660),
        0x6f0..=0x6f9 => digit(0x6f0),
        0x966..=0x96f => digit(0x966),
        0x9e6..=0x9ef => digit(0x9e6),
        0x1d7ce..=0x1d7ff => char::from_digit((code - 0x1d7ce) % 10, 10).map_or(Reads::Itself, Reads::Ascii),
        0xff01..=0xff5e => char::from_u32(code - 0xff01 + 0x21).map_or(Reads::Itself, Reads::Ascii),
        _ => Reads::Itself,
    }
}
