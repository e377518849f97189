//! Other spellings of a text: letters that were spaced or dotted out and words that were parted are joined, digits and
//! symbols inside words are read as the letters they stand for.

use std::ops::Range;

use super::{Word, Words, parted, split};
use crate::normalise::Normalised;

/// Shortest run of single letters that is read as one word.
const SHORTEST_RUN: usize = 3;
/// Signs between two letters of such a run, at most.
const WIDEST_GAP: usize = 4;

/// The further views of a text whose plain view is odd; empty when no word reads differently.
///
/// There are at most two, because two things are ambiguous: `1` stands for i or l, and an `a` or `i`
/// at the edge of a spaced-out word may be a word of its own ("a b o m b").
pub(crate) fn respelt(normalised: &Normalised<'_>, plain: &Words) -> Vec<Words> {
    let with_symbols = normalised.text.contains(['@', '$']).then(|| split(&normalised.text, true));
    let base = with_symbols.as_ref().unwrap_or(plain);
    let mut views = Vec::new();
    for choice in [Choice { one: b'i', keep_edges: true }, Choice { one: b'l', keep_edges: false }] {
        let (view, changed) = respell(normalised, base, choice);
        if !changed {
            break;
        }
        let repeated = views.last().is_some_and(|earlier: &Words| earlier.text == view.text);
        if !repeated {
            views.push(view);
        }
    }
    views
}

#[derive(Clone, Copy)]
struct Choice {
    one: u8,
    keep_edges: bool,
}

fn respell(normalised: &Normalised<'_>, base: &Words, choice: Choice) -> (Words, bool) {
    let mut view = Words::with_capacity(base.text.len());
    let mut changed = false;
    let mut passed = 0;
    let mut index = 0;
    while index < base.words.len() {
        let word = base.words[index];
        let text = base.letters(index);
        if text.len() == 1 && index >= passed {
            let run = run_of_letters(normalised, base, index);
            if run.is_word {
                push_run(&mut view, base, index..index + run.length, choice);
                changed = true;
                index += run.length;
                continue;
            }
            // The last letter may begin a run with another separator ("a b-o-m-b").
            passed = index + run.length.saturating_sub(1).max(1);
        }
        if let Some(parts) = parted::word_at(normalised, base, index) {
            index = parts.end;
            push_joined(&mut view, base, parts, choice.one);
            changed = true;
            continue;
        }
        begin(&mut view, word);
        changed |= push_letters(&mut view.text, text, choice.one);
        index += 1;
    }
    view.text.push(b' ');
    (view, changed)
}

/// A row of single letters. One that is no word is passed over whole, so that it is looked at once.
struct Run {
    length: usize,
    is_word: bool,
}

/// How many single letters stand in a row from here, all as far apart: one sign, or the same one several times, as it
/// was written. A blank of another kind may part words whose letters are apart by blanks.
fn run_of_letters(normalised: &Normalised<'_>, base: &Words, start: usize) -> Run {
    let single = |index: usize| match base.letters(index) {
        [byte] if byte.is_ascii_alphanumeric() => Some(*byte),
        _ => None,
    };
    let mut end = start;
    let mut separator = None;
    let mut digits = 0;
    while end < base.words.len() {
        let Some(byte) = single(end) else { break };
        if end > start {
            let gap = base.words[end - 1].end as usize..base.words[end].start as usize;
            let signs = normalised.text.get(gap.clone()).filter(|signs| is_one_sign(signs));
            let written = signs.map(|_| normalised.written(gap));
            if written.is_none() || separator.is_some() && separator != written {
                // A letter that stands closer to the next one belongs to that.
                let closer = written.zip(separator).is_some_and(|(gap, wider)| {
                    gap.len() < wider.len() && wider.starts_with(gap)
                        || wider.trim().is_empty() && !gap.trim().is_empty()
                });
                end -= usize::from(closer);
                break;
            }
            separator = written;
        }
        digits += usize::from(byte.is_ascii_digit());
        end += 1;
    }
    // "1 2 3" is a list of numbers, and so is most of "a 1 2 3".
    Run { length: end - start, is_word: end - start >= SHORTEST_RUN && digits * 2 <= end - start }
}

/// Whether a gap is one sign, once or a few times.
fn is_one_sign(gap: &str) -> bool {
    let first = gap.chars().next();
    gap.chars().count() <= WIDEST_GAP && gap.chars().all(|sign| Some(sign) == first)
}

fn push_run(view: &mut Words, base: &Words, run: Range<usize>, choice: Choice) {
    let (mut start, mut end) = (run.start, run.end);
    let is_edge = |index: usize| matches!(base.letters(index), b"a" | b"i");
    let mut tail = None;
    if !choice.keep_edges {
        if is_edge(start) {
            begin(view, base.words[start]);
            view.text.extend_from_slice(base.letters(start));
            start += 1;
        }
        if end > start + 1 && is_edge(end - 1) {
            end -= 1;
            tail = Some(end);
        }
    }
    push_joined(view, base, start..end, choice.one);
    if let Some(index) = tail {
        begin(view, base.words[index]);
        view.text.extend_from_slice(base.letters(index));
    }
}

/// Writes several words as one.
fn push_joined(view: &mut Words, base: &Words, parts: Range<usize>, one: u8) {
    begin(view, Word { end: base.words[parts.end - 1].end, ..base.words[parts.start] });
    // Joined first, because a digit is read as a letter only beside letters.
    let joined: Vec<u8> = parts.flat_map(|index| base.letters(index)).copied().collect();
    push_letters(&mut view.text, &joined, one);
}

fn begin(view: &mut Words, word: Word) {
    view.text.push(b' ');
    view.words.push(Word { at: view.text.len() as u32, ..word });
}

/// Writes a word with its digits read as letters; says whether that changed it.
fn push_letters(text: &mut Vec<u8>, word: &[u8], one: u8) -> bool {
    let (mut has_letter, mut has_digit, mut readable) = (false, false, word.len() >= 3);
    for byte in word.iter().copied() {
        if byte.is_ascii_alphabetic() {
            has_letter = true;
        } else {
            has_digit = true;
            readable &= letter_for(byte, one).is_some();
        }
    }
    if !has_letter || !has_digit || !readable {
        text.extend_from_slice(word);
        return false;
    }
    text.extend(word.iter().map(|byte| letter_for(*byte, one).unwrap_or(*byte)));
    true
}

fn letter_for(byte: u8, one: u8) -> Option<u8> {
    match byte {
        b'0' => Some(b'o'),
        b'1' => Some(one),
        b'3' => Some(b'e'),
        b'4' | b'@' => Some(b'a'),
        b'5' | b'$' => Some(b's'),
        b'7' => Some(b't'),
        b'8' => Some(b'b'),
        _ => None,
    }
}
