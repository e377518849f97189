//! Words behind an encoding, for `screen.rs` to read beside the text: runs of base64 and hexadecimal digits, octets and
//! Morse code one by one, quoted-printable, letters with tags between them, and letters that are rotated, reversed or
//! turned upside down.
//!
//! Each sort has a cheap sign, so that ordinary text costs one pass. What is decoded of one text is bounded.

mod letters;
mod marks;
mod octets;
mod runs;

use waltz_exchange::Span;

use crate::normalise::{Normalised, boundary_before};

/// Most bytes that are decoded of one text.
const MOST_DECODED: usize = 64 << 10;

/// A text that was hidden in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// What it says.
    pub(crate) text: String,
    /// Where it stands.
    pub(crate) span: Span,
    /// Whether it is prose that somebody encoded; of what a text only says of itself, the words alone can tell.
    pub(crate) is_prose: bool,
}

/// How much may still be decoded.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: MOST_DECODED }
    }
}

impl Budget {
    /// Takes a text out of it; says whether anything was left.
    fn take(&mut self, text: &str) -> bool {
        let any = self.left > 0;
        self.left = self.left.saturating_sub(text.len());
        any
    }

    /// As much of a text as may still be read.
    fn part<'a>(&self, text: &'a str) -> &'a str {
        &text[..boundary_before(text, self.left)]
    }
}

/// The texts that are hidden in a text, each sort in the order in which they stand.
pub(crate) fn decoded(text: &Normalised<'_>, budget: &mut Budget) -> Vec<Hidden> {
    let mut found = Vec::new();
    let source = text.source();
    runs::find(source, budget, &mut found);
    let signs = Signs::of(source.as_bytes());
    if signs.digits {
        octets::find_numbers(source, budget, &mut found);
    }
    if signs.morse {
        octets::find_morse(source, budget, &mut found);
    }
    if signs.equals {
        marks::quoted_printable(source, budget, &mut found);
    }
    if signs.tag {
        marks::without_tags(source, budget, &mut found);
    }
    if signs.turned {
        letters::turned(source, budget, &mut found);
    }
    letters::find(&text.text, source, budget, &mut found);
    found
}

/// Whether a text is prose behind an encoding, or holds some.
pub(crate) fn hides_prose(text: &Normalised<'_>) -> bool {
    decoded(text, &mut Budget::default()).iter().any(|hidden| hidden.is_prose)
}

/// What a text must hold for a search to be worth its time.
#[derive(Default)]
struct Signs {
    digits: bool,
    morse: bool,
    equals: bool,
    tag: bool,
    turned: bool,
}

/// Bytes that are looked at together.
const BLOCK: usize = 64;
/// Digits, or signs of Morse code, in a block of nothing else.
const DENSE: u8 = 16;

impl Signs {
    fn of(bytes: &[u8]) -> Self {
        let mut signs = Self::default();
        for block in bytes.chunks(BLOCK) {
            // Without an early way out of a block, so that it is looked at many bytes at a time.
            let strokes =
                block.iter().fold(0_u8, |sum, byte| sum + u8::from((*byte == b'.') | (*byte == b'-')));
            signs.morse |= strokes >= DENSE;
            let any = block.iter().fold(false, |any, byte| {
                any | byte.is_ascii_digit()
                    | (*byte == b'=')
                    | (*byte == b'<')
                    | (*byte == 0xc9)
                    | (*byte == 0xca)
            });
            if any {
                signs.look_at(block);
            }
        }
        signs
    }

    fn look_at(&mut self, block: &[u8]) {
        let digits = block.iter().filter(|byte| byte.is_ascii_digit()).count();
        self.digits |= digits >= usize::from(DENSE);
        self.equals |= block.contains(&b'=');
        self.tag |= block.contains(&b'<');
        self.turned |= block.iter().any(|byte| matches!(byte, 0xc9 | 0xca));
    }
}

/// Letters and blanks as people write them, and not what random bytes happen to spell.
fn is_prose(words: &str) -> bool {
    let letters = words.chars().filter(|letter| letter.is_alphabetic() || *letter == ' ').count();
    let strange = words.chars().any(|letter| letter.is_control() && !letter.is_whitespace());
    !strange && words.contains(' ') && letters * 10 >= words.chars().count() * 8
}

#[cfg(test)]
mod tests;
