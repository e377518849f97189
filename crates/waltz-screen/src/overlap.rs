//! The end of what was released, which is read again with the next window. Called by `window.rs`.
//!
//! Rules count words and pass over what stands between them, so the end is measured in words and their letters: however
//! much padding lies between two words of a term, and however long a word, the first is still read when the second comes.
//! Escapes are read first: a letter counts for one however it is written.

use std::collections::VecDeque;

use unicode_normalization::char::is_combining_mark;

use crate::normalise::{hidden_ascii, is_ignorable, unescaped};
use crate::words::stands_alone;

/// Bytes of words, and gaps between them, that are read again, at least.
const OVERLAP: usize = 256;
/// Words that are read again, at least: no rule of ours looks at words that stand farther apart.
const WORDS: usize = 32;
/// Letters that are kept at either end of a row of letters that stand alone: few words that are spelt out are longer.
const SPELT: usize = 16;
/// Letters that are kept at either end of a long word.
const WORD_ENDS: usize = 32;
/// No sentence is so long that more of it has to be read again.
const OVERLAP_MOST: usize = 2048;
/// More than any honest text needs; who has to read more again reads all of it.
pub(crate) const LONGEST: usize = 4 * OVERLAP_MOST;
/// Signs that are kept at either end of a long gap.
const GAP_ENDS: usize = 8;
/// A gap of no more signs is kept as it is; one that was shortened has no more.
const SHORT_GAP: usize = 2 * GAP_ENDS + 3;

/// What has to be read again of a text that ends in `text` and before which `past` was kept.
pub(crate) fn kept(past: &str, text: &str) -> String {
    let whole = shortened(&squeezed(&unescaped(&[past, text].concat())));
    end(&whole).to_owned()
}

/// The text with its longest words shortened, and its longest rows of letters that stand alone. What a word of such a
/// length is known by stands at its ends. The last one may go on.
fn shortened(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut row = VecDeque::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.find(divides).unwrap_or(rest.len()));
        let (gap, further) = behind.split_at(behind.find(|sign| !divides(sign)).unwrap_or(behind.len()));
        if is_letter(word) && gap.chars().all(is_gap) {
            row.push_back(&rest[..rest.len() - further.len()]);
            if row.len() > 2 * SPELT {
                row.remove(SPELT);
            }
        } else {
            row.drain(..).for_each(|letter| short.push_str(letter));
            let last = if behind.is_empty() { OVERLAP } else { WORD_ENDS };
            push_word(&mut short, word, last);
            short.push_str(gap);
        }
        rest = further;
    }
    short.extend(row);
    short
}

/// Whether a word is one letter.
fn is_letter(word: &str) -> bool {
    let mut letters = word.chars().filter(|sign| !is_gap(*sign));
    word.len() <= WORD_ENDS && letters.next().is_some() && letters.next().is_none()
}

fn push_word(short: &mut String, word: &str, last: usize) {
    let mut letters = word.char_indices().filter(|(_, sign)| !is_gap(*sign)).map(|(position, _)| position);
    // Most words have fewer bytes than are kept.
    let ends = if word.len() <= WORD_ENDS + last {
        None
    } else {
        letters.nth(WORD_ENDS).zip(letters.nth_back(last - 1))
    };
    match ends {
        Some((first, last)) => {
            short.push_str(&word[..first]);
            short.push_str(&word[last..]);
        }
        None => short.push_str(word),
    }
}

/// The text with its long gaps shortened; rules read the same words and sentences in it.
fn squeezed(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.find(is_gap).unwrap_or(rest.len()));
        let (gap, further) = behind.split_at(behind.find(|sign| !is_gap(sign)).unwrap_or(behind.len()));
        short.push_str(word);
        push_gap(&mut short, gap);
        rest = further;
    }
    short
}

fn push_gap(short: &mut String, gap: &str) {
    if gap.chars().nth(SHORT_GAP).is_none() {
        short.push_str(gap);
        return;
    }
    let first = gap.char_indices().nth(GAP_ENDS).map_or(0, |(position, _)| position);
    let last = gap.char_indices().nth_back(GAP_ENDS - 1).map_or(gap.len(), |(position, _)| position);
    let middle = &gap[first..last];
    short.push_str(&gap[..first]);
    // Invisible signs may stand inside a word, so that nothing that divides words may take their place.
    if ends_sentence(gap) {
        short.push_str("\n\n");
    } else if middle.contains(|sign| !is_unseen(sign)) {
        short.push(' ');
    }
    // The signs that begin and end an override change how the words behind them are read.
    short.extend(middle.chars().rfind(|sign| matches!(sign, '\u{202e}' | '\u{202c}' | '\u{2069}')));
    short.push_str(&gap[last..]);
}

/// Whether a gap ends a sentence as `words.rs` has it: a stop with no word behind it, or an empty line.
fn ends_sentence(gap: &str) -> bool {
    let mut before = ' ';
    gap.chars().filter(|sign| !is_unseen(*sign)).any(|sign| {
        let ends = matches!(before, '.' | '!' | '?') && sign.is_ascii() || (before, sign) == ('\n', '\n');
        before = sign;
        ends
    })
}

/// The end of a text: at least [`OVERLAP`] bytes in words, at least [`WORDS`] of them, and at least its last sentence.
fn end(text: &str) -> &str {
    let (mut start, mut weight, mut in_gap) = (text.len(), 0, false);
    let (mut words, mut letters) = (0, 0);
    for (position, sign) in text.char_indices().rev() {
        let gap = is_gap(sign);
        weight += if gap { usize::from(!in_gap) } else { sign.len_utf8() };
        letters += usize::from(!gap);
        if divides(sign) {
            // Letters that stand alone may be one word that is spelt out.
            words += usize::from(letters > 1 || !gap);
            letters = 0;
        }
        (start, in_gap) = (position, gap);
        if weight >= OVERLAP && words >= WORDS {
            break;
        }
    }
    let mut behind = text[start..].chars().next();
    for (position, sign) in text[..start].char_indices().rev() {
        // A dot inside an unbroken run, such as a token or an address, ends nothing.
        let stop = matches!(sign, '.' | '!' | '?') && behind.is_some_and(char::is_whitespace);
        if stop || sign == '\n' || text.len() - position > OVERLAP_MOST {
            break;
        }
        (start, behind) = (position, Some(sign));
    }
    &text[start..]
}

/// What stands between words, or is one: signs that leave a word whole, or join two, do not.
fn divides(sign: char) -> bool {
    let joins = matches!(sign, '\'' | '`' | '\u{2018}' | '\u{2019}' | '@' | '$');
    stands_alone(sign) || (is_gap(sign) && !is_unseen(sign) && !joins)
}

/// What no word is made of. Letters that are smuggled in invisible characters are read.
fn is_gap(sign: char) -> bool {
    (!sign.is_alphanumeric() || is_unseen(sign)) && hidden_ascii(sign).is_none()
}

/// What leaves the word whole in which it stands.
fn is_unseen(sign: char) -> bool {
    is_ignorable(sign) || is_combining_mark(sign)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::normalise::normalise;
    use crate::words::split;

    /// The words and sentences that rules read.
    fn read(text: &str) -> Vec<(String, u32)> {
        let normalised = normalise(text);
        let words = split(&normalised.text, false).words;
        let word = |from: u32, to: u32| normalised.text[from as usize..to as usize].to_owned();
        words.iter().map(|found| (word(found.start, found.end), found.sentence)).collect()
    }

    #[test]
    fn the_end_holds_the_last_sentence() {
        let long = format!("First. {}{}", "ab ".repeat(WORDS), "a".repeat(400));
        assert_eq!(end(&long), &long[6..]);
        assert_eq!(end("short"), "short");
        assert!(kept("", &"é".repeat(5_000)).len() <= OVERLAP_MOST);
    }

    #[test]
    fn a_dot_inside_a_run_ends_no_sentence() {
        let token = format!("{}.{}.{}", "a".repeat(300), "b".repeat(300), "c".repeat(400));
        let words = "ab ".repeat(WORDS);
        assert_eq!(end(&format!("Here it is. {words}{token}")), format!(" {words}{token}"));
    }

    #[test]
    fn endless_padding_and_endless_words_are_kept_in_bounds() {
        for padding in [" ", "\n", "\u{200b}", "\u{301}", "\u{202e}", ". ", "-,", "\u{5b0}", "\u{1f600} "] {
            let mut past = String::new();
            for _ in 0..200 {
                past = kept(&past, &format!("word {}", padding.repeat(50)));
                assert!(past.len() < 16 << 10, "{padding:?}: {}", past.len());
            }
            for _ in 0..200 {
                past = kept(&past, &padding.repeat(50));
            }
            assert!(past.len() < 16 << 10 && past.contains("word"), "{padding:?}: {past}");
        }
    }

    proptest! {
        #[test]
        fn shortened_gaps_leave_words_and_sentences_as_they_are(
            pieces in prop::collection::vec(("[a-zé]{0,3}", "[ \n.!,\u{200b}\u{ad}]", 0usize..60), 0..12),
        ) {
            let text: String = pieces.iter().map(|(word, sign, count)| word.clone() + &sign.repeat(*count)).collect();
            let short = squeezed(&text);
            prop_assert_eq!(read(&short), read(&text));
            prop_assert_eq!(&squeezed(&short), &short);
            prop_assert!(short.len() <= text.len());
        }

        #[test]
        fn enough_words_are_kept(past in "\\PC{0,600}", text in "\\PC{0,600}") {
            let letters = |text: &str| text.chars().filter(|sign| !is_gap(*sign)).map(char::len_utf8).sum::<usize>();
            let again = kept(&past, &text);
            // A gap counts as one byte, and there is at most one for each letter.
            prop_assert!(letters(&again) >= letters(&(past + &text)).min(OVERLAP / 2));
        }
    }
}
