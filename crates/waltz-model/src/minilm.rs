//! all-MiniLM-L6-v2: a text becomes 384 numbers, and texts that mean the same become neighbours.
//!
//! A BERT encoder of six layers, read from its safetensors file. An embedding is the mean of its tokens' last rows,
//! scaled to length 1, so that the similarity of two texts is the product of their embeddings. Longer texts are cut
//! after 256 tokens, as the model was trained.

use crate::bert::{MINILM, Place, Serving, Source, Table, Weights, forward};
use crate::kernels::{Matrix, Threads};
use crate::safetensors::{TensorFile, Tensors};
use crate::wordpiece::WordPiece;
use crate::{Error, MatrixKind, PinnedFile};

/// Numbers of an embedding.
pub const EMBEDDING: usize = MINILM.width;

/// Tokens that are read, the two at the ends included.
const MOST_TOKENS: usize = 256;
/// The encoder, loaded.
#[derive(Debug)]
pub struct MiniLm {
    tokenizer: WordPiece,
    weights: Serving,
}

impl MiniLm {
    /// Loads `model.safetensors` and `vocab.txt`, and refuses other bytes than were pulled.
    pub fn open(weights: &PinnedFile, vocabulary: &PinnedFile, kind: MatrixKind) -> Result<Self, Error> {
        weights.check()?;
        vocabulary.check()?;
        let tokenizer = WordPiece::open(&vocabulary.path, MINILM.vocabulary)?;
        let file = TensorFile::open(&weights.path)?;
        let weights = Weights::gather(&MINILM, &mut Loaded { tensors: &file.tensors()?, kind })?;
        Ok(Self { tokenizer, weights })
    }

    /// The embedding of a text, [`EMBEDDING`] numbers of length 1, and how many of its tokens were read.
    pub fn embed(&self, threads: &Threads, text: &str) -> (Vec<f32>, usize) {
        let tokens = self.tokenizer.encode(text, MOST_TOKENS);
        let state = forward(&MINILM, &self.weights, threads, &tokens, self.tokenizer.end());
        (pooled(&state), tokens.len())
    }
}

/// Reads the weights of a safetensors file; tables and vectors stay floats.
pub(crate) struct Loaded<'a> {
    /// The file's.
    pub(crate) tensors: &'a Tensors<'a>,
    /// How matrices are kept.
    pub(crate) kind: MatrixKind,
}

impl Source for Loaded<'_> {
    type Matrix = Matrix;
    type Table = Table;
    type Vector = Vec<f32>;

    fn matrix(&mut self, place: &Place) -> Result<Matrix, Error> {
        Ok(Matrix::from_rows(self.kind, place.columns, &place.matrix(self.tensors)?))
    }

    fn table(&mut self, place: &Place) -> Result<Table, Error> {
        Ok(Table::F32(place.matrix(self.tensors)?))
    }

    fn vector(&mut self, place: &Place) -> Result<Vec<f32>, Error> {
        place.vector(self.tensors)
    }
}

/// The mean of all rows, scaled to length 1.
fn pooled(state: &[f32]) -> Vec<f32> {
    let mut mean = vec![0.0; EMBEDDING];
    for row in state.chunks_exact(EMBEDDING) {
        mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value);
    }
    let length = mean.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    mean.iter_mut().for_each(|value| *value /= length);
    mean
}

#[cfg(test)]
#[path = "minilm/tests.rs"]
mod tests;
