//! What the encoder reads of an exchange, as tokens. The trainer and the judge both call [`EncoderTokenizer`]; there is
//! no second reading.
//!
//! A longer text is read at its two ends, as [`crate::Turns`] reads it.

use std::path::Path;

use crate::bert::MINILM;
use crate::wordpiece::WordPiece;
use crate::{Error, Excerpt};

static VOCABULARY: &str = include_str!("../../../../models/judge/vocab.txt");

/// Most tokens of a prompt alone, with what is around it.
const ALONE: usize = 256;
/// Most tokens of a prompt beside its answer, with what is around it.
const ASKED: usize = 96;
/// Most tokens of an answer, with what follows it.
const ANSWERED: usize = 160;
/// Bytes that are made into tokens for each one that is read: hardly any token has more.
const BYTES: usize = 16;

/// Texts to tokens.
#[derive(Debug)]
pub struct EncoderTokenizer {
    pieces: WordPiece,
    /// What begins a prompt that stands alone, so that it is not taken for the first half of an exchange.
    alone: Vec<u32>,
}

impl EncoderTokenizer {
    /// Reads the `vocab.txt` of all-MiniLM-L6-v2.
    pub fn open(vocabulary: &Path) -> Result<Self, Error> {
        Ok(Self::new(WordPiece::open(vocabulary, MINILM.vocabulary)?))
    }

    /// The vocabulary that is part of the program.
    pub fn embedded() -> Result<Self, Error> {
        Ok(Self::new(WordPiece::embedded("the embedded vocabulary", VOCABULARY, MINILM.vocabulary)?))
    }

    fn new(pieces: WordPiece) -> Self {
        let alone = pieces.pieces("user:", ALONE);
        Self { pieces, alone }
    }

    /// A prompt alone: `[CLS] user : prompt [SEP]`.
    pub fn prompt(&self, prompt: &str) -> Excerpt {
        let mut tokens = vec![self.pieces.begin()];
        tokens.extend(&self.alone);
        let Excerpt { tokens: content, is_whole } = self.ends(prompt, ALONE - tokens.len() - 1);
        tokens.extend(content);
        tokens.push(self.pieces.end());
        Excerpt { tokens, is_whole }
    }

    /// A prompt and its answer: `[CLS] prompt [SEP] answer [SEP]`. It is whole if nothing of the answer was left out.
    pub fn answer(&self, prompt: &str, answer: &str) -> Excerpt {
        let mut tokens = vec![self.pieces.begin()];
        tokens.extend(self.ends(prompt, ASKED - 2).tokens);
        tokens.push(self.pieces.end());
        let Excerpt { tokens: content, is_whole } = self.ends(answer, ANSWERED - 1);
        tokens.extend(content);
        tokens.push(self.pieces.end());
        Excerpt { tokens, is_whole }
    }

    /// The tokens of a text, of a long one those of both ends.
    fn ends(&self, text: &str, most: usize) -> Excerpt {
        let all = |text: &str| self.pieces.pieces(text, usize::MAX);
        let (head, tail) = (most / 2, most - most / 2);
        let fits = text.len() <= most * BYTES;
        let mut tokens = if fits {
            all(text)
        } else {
            // A hostile megabyte takes no longer than its ends.
            let cut = |at: usize| boundary(text, at);
            [all(&text[..cut(head * BYTES)]), all(&text[cut(text.len() - tail * BYTES)..])].concat()
        };
        let is_whole = fits && tokens.len() <= most;
        if tokens.len() > most {
            tokens.drain(head..tokens.len() - tail);
        }
        Excerpt { tokens, is_whole }
    }
}

/// The last boundary between letters up to a place, which is inside of the text.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_told_from_an_exchange_and_no_text_speaks_in_control_tokens() {
        let tokenizer = EncoderTokenizer::embedded().unwrap();
        let (begin, end) = (tokenizer.pieces.begin(), tokenizer.pieces.end());
        assert_eq!((begin, end), (101, 102));
        let prompt = tokenizer.prompt("Hello world");
        // "user", ":", "hello", "world".
        assert_eq!(prompt, Excerpt { tokens: vec![101, 5310, 1024, 7592, 2088, 102], is_whole: true });
        let both = tokenizer.answer("Hello", "world");
        assert_eq!(both, Excerpt { tokens: vec![101, 7592, 102, 2088, 102], is_whole: true });
        let hostile = tokenizer.answer("[SEP] [CLS]", "[SEP]").tokens;
        assert_eq!(hostile.iter().filter(|token| **token == end).count(), 2, "{hostile:?}");
        assert_eq!(tokenizer.answer("", "").tokens, [101, 102, 102]);
    }

    #[test]
    fn a_long_text_is_read_at_both_ends() {
        let tokenizer = EncoderTokenizer::embedded().unwrap();
        let (first, last) = (tokenizer.pieces.pieces("first", 1), tokenizer.pieces.pieces("last", 1));
        for middle in [40, 2_000, 1 << 20] {
            let text = format!("first {} last", "\u{e9} x".repeat(middle));
            let Excerpt { tokens, is_whole } = tokenizer.prompt(&text);
            assert_eq!(is_whole, middle == 40, "{middle}");
            assert!(tokens.len() <= ALONE && (is_whole || tokens.len() > ALONE - 2), "{}", tokens.len());
            assert_eq!((tokens[3], tokens[tokens.len() - 2]), (first[0], last[0]));
            let Excerpt { tokens, is_whole } = tokenizer.answer(&text, &text);
            assert_eq!(is_whole, middle == 40, "{middle}");
            assert!(tokens.len() <= ASKED + ANSWERED);
            assert_eq!(tokens.iter().filter(|token| **token == last[0]).count(), 2);
            assert_eq!((tokens[1], tokens[tokens.len() - 2]), (first[0], last[0]));
        }
        // A cut prompt leaves nothing out of what the answer does.
        assert!(tokenizer.answer(&"word ".repeat(500), "no").is_whole);
    }
}
