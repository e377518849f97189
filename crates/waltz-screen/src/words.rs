//! Words: the view in which terms are matched.
//!
//! A view is ` word word word `, one blank between words and one at either end, so that a term with
//! its blanks matches whole words only. Every word knows its bytes in the normalised text and its
//! place, which counts words and leaves a gap between sentences. Further views read words that are
//! spelt out ("h a c k"), parted ("ha-ck") or spelt with digits ("h4ck"); they are made only where a text has such
//! words.

mod parted;
mod spelling;

pub(crate) use spelling::respelt;

use crate::normalise::Normalised;

/// How many words a sentence end counts for when the distance between two words is measured.
const SENTENCE_GAP: u32 = 3;

/// A view of a text as words.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The view itself: bytes of the normalised text, whole characters only, and blanks.
    pub(crate) text: Vec<u8>,
    /// The words in order.
    pub(crate) words: Vec<Word>,
    /// Whether a word is odd enough that another spelling should be tried.
    pub(crate) odd: bool,
}

/// One word of a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// First byte in the view.
    pub(crate) at: u32,
    /// Bytes in the normalised text.
    pub(crate) start: u32,
    /// One past the last byte in the normalised text.
    pub(crate) end: u32,
    /// The sentence, from 0.
    pub(crate) sentence: u32,
}

impl Word {
    /// Where the word stands when distances are measured, given its index.
    pub(crate) fn place(self, index: usize) -> u32 {
        index as u32 + self.sentence * SENTENCE_GAP
    }
}

impl Words {
    fn with_capacity(bytes: usize) -> Self {
        Self {
            text: Vec::with_capacity(bytes + 2 + EIGHT),
            words: Vec::with_capacity(bytes / 5 + 2),
            odd: false,
        }
    }

    /// The letters of a word.
    fn letters(&self, index: usize) -> &[u8] {
        let start = self.words[index].at as usize;
        let end = self.words.get(index + 1).map_or(self.text.len() - 1, |next| next.at as usize - 1);
        &self.text[start..end]
    }

    /// Adds the words of another text, as sentences behind the last.
    pub(crate) fn append(&mut self, other: Self) {
        if other.words.is_empty() || self.words.is_empty() {
            *self = if self.words.is_empty() { other } else { std::mem::take(self) };
            return;
        }
        let sentences = self.sentences();
        // Either view has a blank at both ends.
        self.text.pop();
        let moved = self.text.len() as u32;
        self.text.extend_from_slice(&other.text);
        let words = other.words.into_iter();
        self.words.extend(words.map(|word| Word {
            at: word.at + moved,
            sentence: word.sentence + sentences,
            ..word
        }));
    }

    /// The number of sentences.
    pub(crate) fn sentences(&self) -> u32 {
        self.words.last().map_or(0, |word| word.sentence + 1)
    }
}

const SEPARATOR: u8 = 0;
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const APOSTROPHE: u8 = 3;
const STOP: u8 = 4;
const NEWLINE: u8 = 5;
const SYMBOL: u8 = 6;
const WIDE: u8 = 7;

/// What each byte of normalised text is.
static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [SEPARATOR; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'\'' | b'`' => APOSTROPHE,
            b'.' | b'!' | b'?' => STOP,
            b'\n' => NEWLINE,
            b'@' | b'$' => SYMBOL,
            128..=255 => WIDE,
            _ => SEPARATOR,
        };
        byte += 1;
    }
    table
}

/// The plain view of a text.
pub(crate) fn plain(text: &Normalised<'_>) -> Words {
    let mut view = split(&text.text, false);
    view.odd = view.odd || parted::stand_in(text, &view);
    view
}

/// Letters that stand alone, at least three in a row, of a text that is spelt out.
const SPELT_OUT: usize = 12;

/// Whether a text has many letters that stand alone.
pub(crate) fn are_spelt_out(text: &Normalised<'_>) -> bool {
    let view = split(&text.text, false);
    let (mut row, mut all) = (0, 0);
    for index in 0..view.words.len() {
        row = if view.letters(index).len() == 1 { row + 1 } else { 0 };
        all += match row {
            0..3 => 0,
            3 => 3,
            _ => 1,
        };
    }
    all >= SPELT_OUT
}

/// Splits normalised text into words. With `symbols`, `@` and `$` count as letters.
pub(crate) fn split(normalised: &str, symbols: bool) -> Words {
    let bytes = normalised.as_bytes();
    let class = |index: usize| bytes.get(index).map_or(SEPARATOR, |byte| CLASS[usize::from(*byte)]);
    let mut view = Words::with_capacity(bytes.len());
    let mut sentence = 0;
    let mut singles = 0;
    let mut at = 0;
    while at < bytes.len() {
        if let Some(letters) = short_word(&mut view, bytes, at, sentence) {
            singles = if letters == 1 { singles + 1 } else { 0 };
            view.odd |= singles >= 3;
            at += letters;
            // Hardly any word has no blank behind it.
            at += usize::from(bytes[at] == b' ');
            continue;
        }
        match class(at) {
            LETTER | DIGIT => {}
            SYMBOL => {
                let beside_letter = class(at + 1) == LETTER || (at > 0 && class(at - 1) == LETTER);
                view.odd |= beside_letter;
                if !symbols || !beside_letter {
                    at += 1;
                    continue;
                }
            }
            WIDE => {
                let Some(character) = normalised[at..].chars().next() else { break };
                let width = character.len_utf8();
                if stands_alone(character) {
                    push_word(&mut view, normalised, at, at + width, sentence);
                }
                if stands_alone(character) || !character.is_alphanumeric() {
                    at += width;
                    continue;
                }
            }
            STOP => {
                // A dot inside a number, an address or spelt-out letters ends nothing.
                let ends = !matches!(class(at + 1), LETTER | DIGIT | WIDE | SYMBOL);
                sentence +=
                    u32::from(ends && view.words.last().is_some_and(|word| word.sentence == sentence));
                at += 1;
                continue;
            }
            NEWLINE => {
                let ends = class(at + 1) == NEWLINE;
                sentence +=
                    u32::from(ends && view.words.last().is_some_and(|word| word.sentence == sentence));
                at += 1;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        }
        let word = read_word(&mut view, normalised, at, sentence, symbols);
        let spelt = word.bytes == 1 && word.letters;
        singles = if spelt { singles + 1 } else { 0 };
        view.odd |= singles >= 3 || (word.letters && word.digits && word.bytes >= 3);
        at = word.end;
    }
    if view.words.is_empty() {
        return Words::default();
    }
    view.text.push(b' ');
    view
}

/// Reads a word of fewer than eight letters, with another sign behind it that ends it, into the view: most words are
/// such words. Returns the number of its letters; `None` where anything else stands.
#[inline]
fn short_word(view: &mut Words, bytes: &[u8], at: usize, sentence: u32) -> Option<usize> {
    let eight = u64::from_le_bytes(*bytes[at..].first_chunk()?);
    let letters = letters_before(eight);
    let behind = *bytes.get(at + letters)?;
    let ends = matches!(CLASS[usize::from(behind)], SEPARATOR | STOP | NEWLINE);
    if letters == 0 || letters == EIGHT || !ends {
        return None;
    }
    // The blank and the letters are written at once, and what comes behind them is cut.
    let start = view.text.len() + 1;
    view.text.extend_from_slice(&(eight << 8 | u64::from(b' ')).to_le_bytes());
    view.text.truncate(start + letters);
    let place = at as u32;
    view.words.push(Word { at: start as u32, start: place, end: place + letters as u32, sentence });
    Some(letters)
}

/// What was read of one word.
struct Read {
    end: usize,
    bytes: usize,
    letters: bool,
    digits: bool,
}

/// Reads the word that starts at `start` into the view.
#[inline]
fn read_word(view: &mut Words, normalised: &str, start: usize, sentence: u32, symbols: bool) -> Read {
    let bytes = normalised.as_bytes();
    let class = |index: usize| bytes.get(index).map_or(SEPARATOR, |byte| CLASS[usize::from(*byte)]);
    view.text.push(b' ');
    let view_start = view.text.len();
    let mut read = Read { end: start, bytes: 0, letters: false, digits: false };
    let mut at = start;
    loop {
        let letters = push_letters(&mut view.text, &bytes[at..]);
        read.letters |= letters > 0;
        at += letters;
        match class(at) {
            DIGIT => read.digits = true,
            SYMBOL if symbols => read.digits = true,
            APOSTROPHE if class(at + 1) == LETTER => {
                // "don't" is one word; "my ex's phone" is read as "my ex phone".
                let possessive = bytes[at + 1] == b's' && !matches!(class(at + 2), LETTER | DIGIT | WIDE);
                at += if possessive { 2 } else { 1 };
                continue;
            }
            WIDE => {
                let Some(character) = normalised[at..].chars().next() else { break };
                let mark = unicode_normalization::char::is_combining_mark(character);
                if stands_alone(character) || !(character.is_alphanumeric() || mark) {
                    break;
                }
                let width = character.len_utf8();
                view.text.extend_from_slice(&bytes[at..at + width]);
                at += width;
                continue;
            }
            _ => break,
        }
        view.text.push(bytes[at]);
        at += 1;
    }
    read.end = at;
    read.bytes = view.text.len() - view_start;
    view.words.push(Word { at: view_start as u32, start: start as u32, end: at as u32, sentence });
    read
}

/// Bytes that are looked at together: most words are shorter.
const EIGHT: usize = 8;

/// Appends the letters that `bytes` begins with and says how many they are. Eight bytes are copied whatever they are
/// and cut behind the last letter: where a word ends can hardly be foretold, so that a step for each letter costs more.
#[inline]
fn push_letters(text: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(eight) = bytes[count..].first_chunk::<EIGHT>() {
        let letters = letters_before(u64::from_le_bytes(*eight));
        text.extend_from_slice(eight);
        text.truncate(text.len() - EIGHT + letters);
        count += letters;
        if letters < EIGHT {
            return count;
        }
    }
    let rest = &bytes[count..];
    let letters = rest.iter().take_while(|byte| CLASS[usize::from(**byte)] == LETTER).count();
    text.extend_from_slice(&rest[..letters]);
    count + letters
}

/// How many letters stand before the first of eight bytes that is none.
#[inline]
fn letters_before(eight: u64) -> usize {
    const EACH: u64 = u64::MAX / 0xff;
    const HIGH: u64 = 0x80 * EACH;
    // Capitals differ from small letters in this bit alone, and nothing else becomes a letter by it.
    let lower = (eight | (0x20 * EACH)) & !HIGH;
    // The highest bit of each byte: no sum reaches into the next one.
    let from_a = lower + (0x80 - b'a' as u64) * EACH;
    let behind_z = lower + (0x7f - b'z' as u64) * EACH;
    let letters = from_a & !behind_z & !eight & HIGH;
    (!letters & HIGH).trailing_zeros() as usize / EIGHT
}

fn push_word(view: &mut Words, normalised: &str, start: usize, end: usize, sentence: u32) {
    view.text.push(b' ');
    let at = view.text.len() as u32;
    view.text.extend_from_slice(&normalised.as_bytes()[start..end]);
    view.words.push(Word { at, start: start as u32, end: end as u32, sentence });
}

/// Scripts written without blanks: each character is a word, so that terms of several characters are
/// found inside running text.
pub(crate) fn stands_alone(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests;
