//! The encoder as a classifier: it reads a prompt or an exchange and answers some yes-or-no questions about it.
//!
//! The same way forward as `minilm.rs`, with other weights: bytes that are part of the program and are used where they
//! lie, so that a process that asks nothing reads next to nothing of them.

mod file;
#[cfg(test)]
mod tests;
mod tokenizer;

use crate::bert::{MINILM, Serving, forward};
use crate::kernels::Bytes;
use crate::{Error, Excerpt, Shape, Threads};

pub use file::{EncoderFile, EncoderNote};
pub use tokenizer::EncoderTokenizer;

static WORDS: &[u8] = include_bytes!("../../../models/judge/encoder.words.bin");
static LAYERS: &[u8] = include_bytes!("../../../models/judge/encoder.layers.bin");

/// A classifier that serves.
#[derive(Debug)]
pub struct Encoder {
    shape: Shape,
    note: EncoderNote,
    weights: Serving,
    /// Weights (heads, width) and biases.
    heads: (Vec<f32>, Vec<f32>),
}

impl Encoder {
    /// The classifier that is part of the program.
    pub fn embedded() -> Result<Self, Error> {
        Self::from_bytes(WORDS, LAYERS)
    }

    /// A classifier whose two files are part of the program. Its hash is not compared: that would read all of it.
    pub fn from_bytes(words: &'static [u8], layers: &'static [u8]) -> Result<Self, Error> {
        file::open(&MINILM, &Bytes::Embedded(words), &Bytes::Embedded(layers))
    }

    /// A classifier as training saved it.
    pub fn from_file(file: &EncoderFile) -> Result<Self, Error> {
        Self::of_shape(&MINILM, file)
    }

    fn of_shape(shape: &Shape, file: &EncoderFile) -> Result<Self, Error> {
        let [words, layers] = file.parts().map(|bytes| Bytes::Owned(bytes.to_vec()));
        file::open(shape, &words, &layers)
    }

    /// What its file says of itself.
    pub fn note(&self) -> &EncoderNote {
        &self.note
    }

    /// The logit of each head, in the order of [`EncoderNote::heads`]. Tokens beyond the longest text are not read.
    pub fn classify(&self, threads: &Threads, excerpt: &Excerpt) -> Vec<f32> {
        let Self { shape, note, weights, heads: (rows, bias) } = self;
        let tokens = &excerpt.tokens[..excerpt.tokens.len().min(shape.context)];
        let states = forward(shape, weights, threads, tokens, note.separator);
        let mut mean = vec![0.0; shape.width];
        for state in states.chunks_exact(shape.width) {
            mean.iter_mut().zip(state).for_each(|(mean, value)| *mean += value);
        }
        let share = 1.0 / tokens.len().max(1) as f32;
        let dot =
            |row: &[f32]| row.iter().zip(&mean).map(|(weight, value)| weight * value * share).sum::<f32>();
        rows.chunks_exact(shape.width).zip(bias).map(|(row, bias)| bias + dot(row)).collect()
    }
}
