//! How much a text looks like a refusal.
//!
//! Phrases are families of `patterns/refusal.toml` whose severity is their weight. A refusal is said
//! early and is most of the text: a phrase counts less the later it comes, and less when the text
//! goes on to help at length. Called by `screen.rs` with the hits of the plain view.

use crate::matching::Hits;
use crate::proximity::MAX_PLACES;
use crate::screen::Compiled;
use crate::words::Words;

/// A refusal phrase.
#[derive(Debug)]
pub(crate) struct Phrase {
    pub(crate) weight: f32,
    pub(crate) family: Compiled,
}

/// Words of help after a refusal that are taken for politeness or a pointer elsewhere.
const POLITE_WORDS: f32 = 120.0;
/// Words of help after which a refusal counts half.
const HALVING_WORDS: f32 = 220.0;
/// Answers of a single word that refuse.
const BARE: [&[u8]; 7] =
    [b" no ", b" nope ", b" never ", b" no way ", b" no thanks ", b" no thank you ", b" absolutely not "];

/// The score, 0 to 1; from 0.5 on the text is a refusal.
pub(crate) fn score(phrases: &[Phrase], view: &Words, hits: &Hits) -> f32 {
    if BARE.contains(&view.text.as_slice()) {
        return 0.7;
    }
    let sentences = view.sentences();
    let mut strongest: f32 = 0.0;
    let mut others: f32 = 0.0;
    let mut last_word = 0;
    for phrase in phrases {
        let keep = |window| !phrase.family.is_excepted(window, view, view, hits);
        let windows = phrase.family.windows(view, hits, keep);
        if windows.len() == MAX_PLACES && phrase.weight >= 0.8 {
            // A text that keeps refusing goes on to nothing else.
            last_word = view.words.len() as u32;
        }
        for window in windows {
            let Some(word) = view.words.get(window.first as usize) else { continue };
            let counted = phrase.weight * weight_of_place(word.sentence, sentences);
            others += counted.min(strongest);
            strongest = strongest.max(counted);
            if counted >= 0.3 {
                last_word = last_word.max(window.last);
            }
        }
    }
    if strongest == 0.0 {
        return 0.0;
    }
    // Several weak signs together say as much as one strong one.
    let raw = (strongest + 0.25 * others).min(1.0);
    let help = (view.words.len() as f32 - 1.0 - last_word as f32 - POLITE_WORDS).max(0.0);
    raw / (1.0 + help / HALVING_WORDS)
}

fn weight_of_place(sentence: u32, sentences: u32) -> f32 {
    match sentence {
        0 | 1 => 1.0,
        2 => 0.85,
        _ if sentence + 1 == sentences => 0.6,
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests;
