//! The normalised view of a text, with the way back to the original bytes.
//!
//! Called by `screen.rs` for every text and by `family.rs` for every term, so that both sides of a
//! comparison are written alike. Plain ASCII costs one pass and has no offset map. Text that is
//! hidden in characters nobody sees (tag characters, variation selectors, right-to-left overrides)
//! is taken out of its place and appended on a line of its own, so that neither the visible text nor
//! the hidden one is broken up by the other.

mod confusables;
mod escapes;

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};
use waltz_exchange::Span;

/// A text as the screen reads it: lower-case, folded to Latin letters where characters look alike,
/// without invisible characters.
#[derive(Clone, Debug)]
pub struct Normalised<'a> {
    /// The normalised text.
    pub text: String,
    /// The text hides what it says, see [`crate::Reading::disguised`].
    pub disguised: bool,
    source: &'a str,
    /// For each byte of `text` the first byte of the character it came from; `None` when every byte
    /// stands where it stood.
    origins: Option<Vec<usize>>,
}

impl<'a> Normalised<'a> {
    /// The text as it was written.
    pub(crate) fn source(&self) -> &'a str {
        self.source
    }

    /// The bytes of the original text that a range of the normalised text came from, on character
    /// boundaries. An empty or outlying range gives an empty span at the end.
    pub fn span(&self, range: Range<usize>) -> Span {
        if range.start >= range.end || range.end > self.text.len() {
            return Span { start: self.source.len(), end: self.source.len() };
        }
        let Some(origins) = &self.origins else {
            return Span { start: range.start, end: range.end };
        };
        // Hidden text was moved, so the two ends may lie in either order.
        let (first, last) = (origins[range.start], origins[range.end - 1]);
        let (low, high) = if first <= last { (first, last) } else { (last, first) };
        let character = || self.source[high..].chars().next().map_or(0, char::len_utf8);
        let width = escapes::read(&self.source.as_bytes()[high..]).map_or_else(character, |(_, width)| width);
        Span { start: low, end: high + width }
    }

    /// What the original text has where a range of the normalised text came from.
    pub(crate) fn written(&self, range: Range<usize>) -> &str {
        let Span { start, end } = self.span(range);
        &self.source[start..end]
    }
}

/// Bytes of a regional letter.
const REGIONAL_BYTES: usize = 4;

/// Brings a text into the form in which patterns are matched.
pub fn normalise(text: &str) -> Normalised<'_> {
    let escaped = escapes::stand_in(text);
    if !escaped && is_all_plain(text.as_bytes()) {
        let lowered = text.to_ascii_lowercase();
        return Normalised { text: lowered, disguised: false, source: text, origins: None };
    }
    let mut folding = Folding::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut position = 0;
    while position < bytes.len() {
        if let Some((character, width)) = escapes::read(&bytes[position..]).filter(|_| escaped) {
            folding.character(character, position);
            position += width;
            continue;
        }
        let goes_on = |(index, byte): &(usize, &u8)| {
            is_plain(**byte) && (*index == 0 || !escaped || !escapes::is_sign(**byte))
        };
        let run = bytes[position..].iter().enumerate().take_while(goes_on).count();
        if run > 0 {
            folding.plain_run(&text[position..position + run], position);
            position += run;
            continue;
        }
        let regional = text[position..].chars().take_while(|sign| confusables::is_regional(*sign)).count();
        if regional > 1 {
            let end = position + regional * REGIONAL_BYTES;
            folding.regional_run(&text[position..end], position);
            position = end;
            continue;
        }
        let Some(character) = text[position..].chars().next() else { break };
        folding.character(character, position);
        position += character.len_utf8();
    }
    folding.finish(text)
}

/// Bytes at the end of a text in which an escape may have begun that has not ended.
const OPEN_ESCAPE: usize = 16;

/// A text with its escapes read, but for those near its end, which may go on.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    if !escapes::stand_in(text) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while rest.len() > OPEN_ESCAPE {
        let run =
            rest.find(|sign: char| u8::try_from(sign).is_ok_and(escapes::is_sign)).unwrap_or(rest.len());
        plain.push_str(&rest[..run]);
        rest = &rest[run..];
        if rest.len() <= OPEN_ESCAPE {
            break;
        }
        let (character, width) = escapes::read(rest.as_bytes())
            .unwrap_or_else(|| rest.chars().next().map_or((' ', rest.len()), |sign| (sign, sign.len_utf8())));
        plain.push(character);
        rest = &rest[width..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// The last character boundary at or before `index`.
pub(crate) fn boundary_before(text: &str, index: usize) -> usize {
    let mut boundary = index.min(text.len());
    while !text.is_char_boundary(boundary) {
        boundary -= 1;
    }
    boundary
}

fn is_all_plain(bytes: &[u8]) -> bool {
    // Without an early way out of a block, so that it is looked at many bytes at a time.
    bytes.chunks(64).all(|block| block.iter().fold(true, |all, byte| all & is_plain(*byte)))
}

/// ASCII that reads as itself. Other control characters are invisible and can split words.
fn is_plain(byte: u8) -> bool {
    byte < 0x7f && (byte >= 0x20 || matches!(byte, b'\n' | b'\t' | b'\r'))
}

/// The state of one pass over a text that is not plain.
struct Folding {
    text: String,
    origins: Vec<usize>,
    hidden: String,
    hidden_origins: Vec<usize>,
    /// Characters under a right-to-left override, in the order in which they are stored.
    overridden: Option<Vec<(char, usize)>>,
    /// Whether the last character that was kept is a Latin letter, which marks may only decorate.
    after_latin: bool,
    after_plain: bool,
    characters: usize,
    changed: usize,
    /// Look-alike letters that were folded, and letters of the same scripts that have no Latin double.
    folded: usize,
    unfoldable: usize,
    smuggles: bool,
}

impl Folding {
    fn with_capacity(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes + 16),
            origins: Vec::with_capacity(bytes + 16),
            hidden: String::new(),
            hidden_origins: Vec::new(),
            overridden: None,
            after_latin: false,
            after_plain: false,
            characters: 0,
            changed: 0,
            folded: 0,
            unfoldable: 0,
            smuggles: false,
        }
    }

    fn plain_run(&mut self, run: &str, position: usize) {
        let before = self.text.len();
        self.text.push_str(run);
        self.text[before..].make_ascii_lowercase();
        self.origins.extend(position..position + run.len());
        if let Some(overridden) = &mut self.overridden {
            overridden.extend(run.char_indices().map(|(offset, letter)| (letter, position + offset)));
            if run.contains('\n') {
                self.close_override();
            }
        }
        self.characters += run.len();
        self.after_latin = run.ends_with(|letter: char| letter.is_ascii_alphabetic());
        self.after_plain = true;
    }

    fn character(&mut self, character: char, position: usize) {
        self.characters += 1;
        if let Some(hidden) = hidden_ascii(character) {
            self.smuggles = true;
            self.hidden.push(hidden.to_ascii_lowercase());
            self.hidden_origins.push(position);
            return;
        }
        match character {
            '\u{202e}' => self.overridden = Some(Vec::new()),
            '\u{202c}' | '\u{2069}' => self.close_override(),
            _ => {}
        }
        if is_ignorable(character) {
            self.smuggles |= matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            // Joiners and selectors are ordinary inside emoji and in scripts that need them.
            self.changed += usize::from(self.after_plain);
            return;
        }
        if is_combining_mark(character) {
            if self.after_latin {
                self.changed += 1;
                return;
            }
            self.push(character, position);
            return;
        }
        self.after_latin = false;
        let mut pieces = [None; 4];
        let mut count = 0;
        let mut overflow = false;
        decompose_compatible(character, |piece| {
            match pieces.get_mut(count) {
                Some(slot) => *slot = Some(piece),
                None => overflow = true,
            }
            count += 1;
        });
        if overflow {
            // Only long ligatures of other scripts are this long; they hold no Latin word.
            decompose_compatible(character, |piece| self.piece(character, piece, position));
            return;
        }
        for piece in pieces.into_iter().flatten() {
            self.piece(character, piece, position);
        }
    }

    /// Regional letters in a row. Two are a flag and part words; more are a word of their own, so that no row of flags
    /// can make another word longer.
    fn regional_run(&mut self, run: &str, position: usize) {
        let is_flag = run.len() == 2 * REGIONAL_BYTES;
        self.push(' ', position);
        for (offset, letter) in run.char_indices() {
            self.characters += 1;
            let read = if is_flag { None } else { confusables::fold(letter) };
            self.push(read.unwrap_or(letter), position + offset);
        }
        self.push(' ', position + run.len() - REGIONAL_BYTES);
    }

    fn piece(&mut self, original: char, piece: char, position: usize) {
        if is_combining_mark(piece) && self.after_latin {
            return;
        }
        for lowered in piece.to_lowercase() {
            if is_combining_mark(lowered) && self.after_latin {
                continue;
            }
            let latin = confusables::fold(lowered);
            match latin {
                Some(letter) => {
                    self.folded += usize::from(letter.is_ascii_alphanumeric());
                    self.push(letter, position);
                }
                None => {
                    let styled = lowered.is_ascii_alphanumeric() && !is_accented_latin(original);
                    self.changed += usize::from(styled);
                    self.unfoldable += usize::from(confusables::has_doubles(lowered));
                    self.push(lowered, position);
                }
            }
        }
    }

    fn push(&mut self, letter: char, position: usize) {
        self.text.push(letter);
        self.origins.resize(self.text.len(), position);
        if let Some(overridden) = &mut self.overridden {
            overridden.push((letter, position));
        }
        self.after_latin = letter.is_ascii_alphabetic();
        self.after_plain = letter.is_ascii();
    }

    /// What stands under an override is shown backwards, so it is also read backwards.
    fn close_override(&mut self) {
        let Some(overridden) = self.overridden.take() else { return };
        self.hidden.push('\n');
        self.hidden_origins.push(overridden.first().map_or(0, |(_, position)| *position));
        for (letter, position) in overridden.into_iter().rev() {
            for lowered in letter.to_lowercase() {
                self.hidden.push(lowered);
                self.hidden_origins.resize(self.hidden.len(), position);
            }
        }
    }

    fn finish(mut self, source: &str) -> Normalised<'_> {
        self.close_override();
        if !self.hidden.is_empty() {
            self.text.push_str("\n\n");
            let border = self.hidden_origins.first().copied().unwrap_or(0);
            self.origins.resize(self.text.len(), border);
            self.text.push_str(&self.hidden);
            self.origins.append(&mut self.hidden_origins);
        }
        // Russian or Greek prose has many letters without a Latin double; a disguise has none.
        let foreign = self.unfoldable * 10 > self.folded;
        let changed = self.changed + if foreign { 0 } else { self.folded };
        let disguised = self.smuggles || (changed >= 2 && changed * 10 > self.characters);
        Normalised { text: self.text, disguised, source, origins: Some(self.origins) }
    }
}

/// The printable ASCII character that a tag character or a variation selector stands for when text is
/// smuggled. Selectors in real use stand for values below the printable range.
pub(crate) fn hidden_ascii(character: char) -> Option<char> {
    let code = u32::from(character);
    let value = match code {
        0xe0000..=0xe007f => code - 0xe0000,
        0xe0100..=0xe01ef => code - 0xe0100 + 16,
        _ => return None,
    };
    u8::try_from(value).ok().map(char::from).filter(|letter| matches!(letter, ' '..='~'))
}

/// Characters without a shape of their own: default-ignorable ones and control characters.
pub(crate) fn is_ignorable(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Letters with accents belong to ordinary spelling and are no disguise.
fn is_accented_latin(character: char) -> bool {
    matches!(character, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

#[cfg(test)]
mod tests;
