//! Letters that are rotated by thirteen, read from right to left, or turned upside down.

use std::sync::LazyLock;

use waltz_exchange::Span;

use super::{Budget, Hidden, MOST_DECODED};
use crate::normalise::boundary_before;
use crate::search::Search;

/// What a text says of itself where its letters are changed, and the commonest words as they are then written.
struct Signs {
    search: Option<Search>,
    /// So many of its words are what a text says of itself.
    told: usize,
}

impl Signs {
    fn new(told: &[&str], written: &[&str]) -> Self {
        Self { search: Search::new(&[told, written].concat()), told: told.len() }
    }

    /// Where the first sign stands, and whether there are so many words that no accident wrote them.
    fn find(&self, text: &str) -> Option<(usize, bool)> {
        let search = self.search.as_ref()?;
        let (mut number, first) = search.find(text, 0)?;
        let (mut written, mut place) = (0, first);
        loop {
            written += usize::from(number >= self.told);
            if written == ENOUGH_WRITTEN {
                return Some((first.start, true));
            }
            let Some(next) = search.find(text, place.end) else { return Some((first.start, false)) };
            (number, place) = next;
        }
    }
}

const TOLD_ROTATED: &[&str] = &["rot13", "rot-13", "rot 13", "caesar", "cipher"];
const WRITTEN_ROTATED: &[&str] =
    &["gur ", " naq ", "lbh ", "lbhe ", "jvgu ", "guvf ", "gung ", " sbe ", "ubj "];
const TOLD_REVERSED: &[&str] = &["reverse", "backward", "right to left"];
const WRITTEN_REVERSED: &[&str] = &[
    " eht", " uoy", " ruoy", " htiw", " siht", " taht", " woh", " morf", " dluow", " lliw", " evah", " ekam",
];

static ROTATED: LazyLock<Signs> = LazyLock::new(|| Signs::new(TOLD_ROTATED, WRITTEN_ROTATED));
static REVERSED: LazyLock<Signs> = LazyLock::new(|| Signs::new(TOLD_REVERSED, WRITTEN_REVERSED));
/// All of them: hardly any text has one, so that most are looked at once.
static ANY: LazyLock<Option<Search>> =
    LazyLock::new(|| Search::new(&[TOLD_ROTATED, WRITTEN_ROTATED, TOLD_REVERSED, WRITTEN_REVERSED].concat()));

/// Bytes before the first sign that are read along.
const BEFORE: usize = 2 << 10;
/// Words of which a text has fewer by accident.
const ENOUGH_WRITTEN: usize = 2;

/// Adds what a text says when it is rotated or reversed, where it looks so or says so.
pub(super) fn find(normalised: &str, source: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    if ANY.as_ref().is_none_or(|any| any.find(normalised, 0).is_none()) {
        return;
    }
    let span = Span { start: 0, end: source.len() };
    let part = |signs: &Signs| {
        let (place, is_prose) = signs.find(normalised)?;
        let start = boundary_before(normalised, place.saturating_sub(BEFORE));
        let end = boundary_before(normalised, start + MOST_DECODED);
        Some((&normalised[start..end], is_prose))
    };
    let mut says = |text: String, is_prose: bool| {
        if budget.take(&text) {
            found.push(Hidden { text, span, is_prose });
        }
    };
    if let Some((part, is_prose)) = part(&ROTATED) {
        says(part.chars().map(rotated).collect(), is_prose);
    }
    if let Some((part, is_prose)) = part(&REVERSED) {
        says(part.chars().rev().collect(), is_prose);
        says(part.split_inclusive(' ').flat_map(reversed_word).collect(), is_prose);
    }
}

/// A word from right to left, with the signs around it where they stood.
fn reversed_word(word: &str) -> impl Iterator<Item = char> {
    let inner = word.trim_matches(|sign: char| !sign.is_alphanumeric());
    let start = inner.as_ptr() as usize - word.as_ptr() as usize;
    let (before, behind) = (&word[..start], &word[start + inner.len()..]);
    before.chars().chain(inner.chars().rev()).chain(behind.chars())
}

fn rotated(letter: char) -> char {
    match letter {
        'a'..='m' => char::from(letter as u8 + 13),
        'n'..='z' => char::from(letter as u8 - 13),
        other => other,
    }
}

/// Letters that are written upside down, and what they are.
const TURNED: &str = "ɐaɔcǝeɟfƃgɓgɥhᴉiıiɾjʞkɯmɹrʇtʌvʍwʎyᗺb";
/// Turned letters of a text that is meant to be turned.
const LEAST_TURNED: usize = 8;

/// Adds what a text says that stands upside down, and is then read from right to left.
pub(super) fn turned(source: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let part = budget.part(source);
    let upright =
        |letter: char| pairs(TURNED).find(|(turned, _)| *turned == letter).map(|(_, upright)| upright);
    let count = part.chars().filter(|letter| upright(*letter).is_some()).count();
    if count < LEAST_TURNED {
        return;
    }
    let swapped = |letter: char| match letter {
        'n' => 'u',
        'u' => 'n',
        'b' => 'q',
        'q' => 'b',
        'd' => 'p',
        'p' => 'd',
        other => upright(other).unwrap_or(other),
    };
    let text: String = part.chars().rev().flat_map(char::to_lowercase).map(swapped).collect();
    if budget.take(&text) {
        found.push(Hidden { text, span: Span { start: 0, end: source.len() }, is_prose: true });
    }
}

fn pairs(letters: &str) -> impl Iterator<Item = (char, char)> {
    let turned = letters.chars().step_by(2);
    turned.zip(letters.chars().skip(1).step_by(2))
}
