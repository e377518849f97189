//! A place in a schema, and how free text inside of a JSON string goes on, byte by byte.

use super::number::NumberAt;

/// A place in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Which segment.
    pub(super) segment: usize,
    pub(super) at: At,
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// After so many bytes of a fixed text.
    Fixed(usize),
    /// After so many bytes that the alternatives `first..last` share.
    Choice { first: usize, last: usize, depth: usize },
    /// In a number.
    Number(NumberAt),
    /// After so many characters of free text.
    Text { characters: usize, inside: Inside },
}

/// A place in a character of a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Between two characters.
    Nothing,
    /// After a backslash.
    Escape,
    /// In a character of several bytes: `left` are missing, and the next lies in `low..=high`.
    Character { left: u8, low: u8, high: u8 },
}

/// Where the next byte of free text leads, and whether it begins a character; none where it may not come. The quote
/// that ends the text is not part of it.
pub(super) fn text_step(inside: Inside, byte: u8) -> Option<(Inside, bool)> {
    let rest = |left, low, high| Some((Inside::Character { left, low, high }, true));
    match inside {
        Inside::Nothing => match byte {
            b'\\' => Some((Inside::Escape, true)),
            b'"' | 0..0x20 => None,
            0x20..0x80 => Some((Inside::Nothing, true)),
            // The second byte's range keeps out overlong forms, surrogates and what is beyond Unicode.
            0xc2..=0xdf => rest(1, 0x80, 0xbf),
            0xe0 => rest(2, 0xa0, 0xbf),
            0xed => rest(2, 0x80, 0x9f),
            0xe1..=0xef => rest(2, 0x80, 0xbf),
            0xf0 => rest(3, 0x90, 0xbf),
            0xf1..=0xf3 => rest(3, 0x80, 0xbf),
            0xf4 => rest(3, 0x80, 0x8f),
            0x80..0xc2 | 0xf5.. => None,
        },
        // Escapes of one letter are enough: every other character can be written as itself.
        Inside::Escape => b"\"\\/bfnrt".contains(&byte).then_some((Inside::Nothing, false)),
        Inside::Character { left, low, high } if (low..=high).contains(&byte) => Some(match left {
            1 => (Inside::Nothing, false),
            _ => (Inside::Character { left: left - 1, low: 0x80, high: 0xbf }, false),
        }),
        Inside::Character { .. } => None,
    }
}
