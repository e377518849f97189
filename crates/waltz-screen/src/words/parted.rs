//! Words with a sign inside that does not belong there: `ma-ke`, `explo.sive`. Most words with a hyphen are two
//! ("well-known"), so that only those are put together which make a word of a built-in family, and a longer one than
//! their first part. Asked for every text; hardly any has one.

use std::ops::Range;
use std::sync::LazyLock;

use super::Words;
use crate::normalise::Normalised;
use crate::patterns;

/// Parts that are put together, at most.
const MOST_PARTS: usize = 4;
/// The longest word that is made of parts.
const LONGEST: usize = 24;

/// The single words that families look for, with the blank behind them, and the beginnings of words. Sorted, and none
/// begins with another one, so that the one that a word begins with is the last that is not behind it.
static SOUGHT: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    // A file that cannot be read is told where the screen is built.
    let families = patterns::finding_families().unwrap_or_default();
    let terms = families.into_iter().flat_map(|family| family.all).flatten();
    let mut words: Vec<Vec<u8>> = terms
        .filter_map(|term| term.0.strip_prefix(b" ").map(<[u8]>::to_vec))
        .filter(|term| !term.trim_ascii_end().contains(&b' '))
        .collect();
    words.sort();
    words.dedup_by(|word, shorter| word.starts_with(shorter));
    words
});

/// The first letters that sought words have: most words that are put together begin otherwise.
static BEGINNINGS: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let mut begins = vec![false; 1 << 15];
    for word in SOUGHT.iter() {
        match beginning(word) {
            Some(letters) => begins[letters] = true,
            None => begins.fill(true),
        }
    }
    begins
});

/// A number for the first three bytes of a word.
fn beginning(word: &[u8]) -> Option<usize> {
    let letters = word.first_chunk::<3>()?;
    Some(letters.iter().fold(0, |number, letter| number << 5 | usize::from(letter & 31)))
}

/// Whether any word of a view is parted.
pub(super) fn stand_in(text: &Normalised<'_>, view: &Words) -> bool {
    (1..view.words.len())
        .any(|index| is_parted(text, view, index) && word_at(text, view, index - 1).is_some())
}

/// The parts of the word that begins at a place, if it is parted.
pub(super) fn word_at(text: &Normalised<'_>, view: &Words, first: usize) -> Option<Range<usize>> {
    let mut word = [b' '; LONGEST + 1];
    let mut length = 0;
    let mut longest = None;
    let part_length = view.letters(first).len();
    for index in first..view.words.len().min(first + MOST_PARTS) {
        let part = view.letters(index);
        if index > first && !is_parted(text, view, index) || length + part.len() > LONGEST {
            break;
        }
        word[length..length + part.len()].copy_from_slice(part);
        length += part.len();
        if index > first && is_sought(&word[..=length], part_length) {
            longest = Some(first..index + 1);
        }
    }
    longest
}

/// Whether one sign, a few times, and no blank, stands between a word and the one before it.
fn is_parted(text: &Normalised<'_>, view: &Words, index: usize) -> bool {
    let gap = view.words[index - 1].end as usize..view.words[index].start as usize;
    // Nearly all gaps are blanks.
    if gap.is_empty() || text.text.as_bytes()[gap.start] == b' ' {
        return false;
    }
    let mut signs = text.text[gap].chars();
    signs
        .next()
        .is_some_and(|first| !first.is_whitespace() && signs.by_ref().take(2).all(|sign| sign == first))
        && signs.next().is_none()
}

/// Whether a word with a blank behind it is sought by more than its first bytes.
fn is_sought(word: &[u8], more_than: usize) -> bool {
    if !beginning(word).is_some_and(|letters| BEGINNINGS[letters]) {
        return false;
    }
    let behind = SOUGHT.partition_point(|sought| sought.as_slice() <= word);
    let sought = behind.checked_sub(1).and_then(|place| SOUGHT.get(place));
    sought.is_some_and(|sought| sought.len() > more_than && word.starts_with(sought))
}
