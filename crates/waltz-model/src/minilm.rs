//! all-MiniLM-L6-v2: a text becomes 384 numbers, and texts that mean the same become neighbours.
//!
//! A BERT encoder of six layers, read from its safetensors file. An embedding is the mean of its tokens' last rows,
//! scaled to length 1, so that the similarity of two texts is the product of their embeddings. Longer texts are cut
//! after 256 tokens, as the model was trained.

use crate::kernels::{
    Inputs, Instructions, LANES, MOST_ROWS, Matrix, Norm, Steps, Threads, Tile, Write, add_products, gelu,
    layer_norm, softmax,
};
use crate::safetensors::{TensorFile, Tensors};
use crate::wordpiece::WordPiece;
use crate::{Error, MatrixKind, PinnedFile};

/// Numbers of an embedding.
pub const EMBEDDING: usize = 384;

const LAYERS: usize = 6;
const HEADS: usize = 12;
const HEAD: usize = EMBEDDING / HEADS;
const HIDDEN: usize = 1536;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const EPSILON: f32 = 1e-12;
/// Tokens that are read, the two at the ends included.
const MOST_TOKENS: usize = 256;
/// Rows whose norm or GELU is one piece of work.
const ROWS_TOGETHER: usize = 8;

/// The encoder, loaded.
#[derive(Debug)]
pub struct MiniLm {
    tokenizer: WordPiece,
    /// (vocabulary, 384).
    words: Vec<f32>,
    /// (positions, 384).
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    /// Queries, keys and values (3 x 384, 384).
    attention: Matrix,
    attention_bias: Vec<f32>,
    mixed: Matrix,
    attention_norm: Norm,
    up: Matrix,
    up_bias: Vec<f32>,
    down: Matrix,
    feed_norm: Norm,
}

impl MiniLm {
    /// Loads `model.safetensors` and `vocab.txt`, and refuses other bytes than were pulled.
    pub fn open(weights: &PinnedFile, vocabulary: &PinnedFile, kind: MatrixKind) -> Result<Self, Error> {
        weights.check()?;
        vocabulary.check()?;
        let tokenizer = WordPiece::open(&vocabulary.path, VOCABULARY)?;
        let file = TensorFile::open(&weights.path)?;
        let tensors = file.tensors()?;
        let words = tensors.floats("embeddings.word_embeddings.weight", &[VOCABULARY, EMBEDDING])?;
        let positions = tensors.floats("embeddings.position_embeddings.weight", &[POSITIONS, EMBEDDING])?;
        // Every token is of the first of two kinds: that of a text without a second one.
        let mut kinds = tensors.floats("embeddings.token_type_embeddings.weight", &[2, EMBEDDING])?;
        kinds.truncate(EMBEDDING);
        let norm = norm(&tensors, "embeddings.LayerNorm", kinds)?;
        let mut layers = Vec::with_capacity(LAYERS);
        for index in 0..LAYERS {
            layers.push(layer(&tensors, kind, &format!("encoder.layer.{index}"))?);
        }
        Ok(Self { tokenizer, words, positions, norm, layers })
    }

    /// The embedding of a text, [`EMBEDDING`] numbers of length 1, and how many of its tokens were read.
    pub fn embed(&self, threads: &Threads, text: &str) -> (Vec<f32>, usize) {
        let tokens = self.tokenizer.encode(text, MOST_TOKENS);
        let mut state = Vec::with_capacity(tokens.len() * EMBEDDING);
        for (token, position) in tokens.iter().zip(self.positions.chunks_exact(EMBEDDING)) {
            let word = &self.words[*token as usize * EMBEDDING..][..EMBEDDING];
            state.extend(word.iter().zip(position).map(|(word, position)| word + position));
        }
        let instructions = Instructions::best();
        let normalise = |state: &mut [f32], norm: &Norm| {
            for_rows(threads, state, EMBEDDING, |row| layer_norm(instructions, row, norm, EPSILON));
        };
        normalise(&mut state, &self.norm);
        let mut blocks = Vec::new();
        let mut attention = vec![0.0; tokens.len() * 3 * EMBEDDING];
        let mut mixed = vec![0.0; tokens.len() * EMBEDDING];
        let mut hidden = vec![0.0; tokens.len() * HIDDEN];
        for layer in &self.layers {
            layer.attention.multiply(threads, &state, &mut blocks, &mut attention, Write::Replace);
            attend(threads, &attention, &layer.attention_bias, &mut mixed);
            layer.mixed.multiply(threads, &mixed, &mut blocks, &mut state, Write::Add);
            normalise(&mut state, &layer.attention_norm);
            layer.up.multiply(threads, &state, &mut blocks, &mut hidden, Write::Replace);
            for_rows(threads, &mut hidden, HIDDEN, |row| gelu(instructions, row, &layer.up_bias));
            layer.down.multiply(threads, &hidden, &mut blocks, &mut state, Write::Add);
            normalise(&mut state, &layer.feed_norm);
        }
        (pooled(&state), tokens.len())
    }
}

fn for_rows(threads: &Threads, matrix: &mut [f32], width: usize, work: impl Fn(&mut [f32]) + Sync) {
    threads.tiles(matrix, width, ROWS_TOGETHER, width, |mut tile| {
        for row in tile.rows() {
            work(tile.row(row));
        }
    });
}

fn layer(tensors: &Tensors<'_>, kind: MatrixKind, name: &str) -> Result<Layer, Error> {
    let weight = |part: &str, rows: usize, columns: usize| {
        tensors.floats(&format!("{name}.{part}.weight"), &[rows, columns])
    };
    let bias = |part: &str, rows: usize| tensors.floats(&format!("{name}.{part}.bias"), &[rows]);
    let matrix = |part: &str, rows: usize, columns: usize| -> Result<Matrix, Error> {
        Ok(Matrix::from_rows(kind, columns, &weight(part, rows, columns)?))
    };
    let (mut attention, mut attention_bias) = (Vec::new(), Vec::new());
    for part in ["attention.self.query", "attention.self.key", "attention.self.value"] {
        attention.extend(weight(part, EMBEDDING, EMBEDDING)?);
        attention_bias.extend(bias(part, EMBEDDING)?);
    }
    let mixed_bias = bias("attention.output.dense", EMBEDDING)?;
    let down_bias = bias("output.dense", EMBEDDING)?;
    Ok(Layer {
        attention: Matrix::from_rows(kind, EMBEDDING, &attention),
        attention_bias,
        mixed: matrix("attention.output.dense", EMBEDDING, EMBEDDING)?,
        attention_norm: norm(tensors, &format!("{name}.attention.output.LayerNorm"), mixed_bias)?,
        up: matrix("intermediate.dense", HIDDEN, EMBEDDING)?,
        up_bias: bias("intermediate.dense", HIDDEN)?,
        down: matrix("output.dense", EMBEDDING, HIDDEN)?,
        feed_norm: norm(tensors, &format!("{name}.output.LayerNorm"), down_bias)?,
    })
}

/// A norm, and what is added before it.
fn norm(tensors: &Tensors<'_>, name: &str, before: Vec<f32>) -> Result<Norm, Error> {
    let gain = tensors.floats(&format!("{name}.weight"), &[EMBEDDING])?;
    Ok(Norm { before, gain, bias: tensors.floats(&format!("{name}.bias"), &[EMBEDDING])? })
}

/// Writes to `output` (tokens, 384) what each token finds in all tokens. `attention` (tokens, 3 x 384) holds queries,
/// keys and values without their `bias`.
fn attend(threads: &Threads, attention: &[f32], bias: &[f32], output: &mut [f32]) {
    let tokens = output.len() / EMBEDDING;
    threads
        .tiles(output, EMBEDDING, tokens, HEAD, |mut tile| attend_head(attention, bias, tokens, &mut tile));
}

/// One head: keys lie in panels of 16 tokens, and so do the scores.
fn attend_head(attention: &[f32], bias: &[f32], tokens: usize, tile: &mut Tile<'_, f32>) {
    let instructions = Instructions::best();
    let first = tile.columns().start;
    let part = |token: usize, which: usize| {
        let values = &attention[(token * 3 + which) * EMBEDDING + first..][..HEAD];
        values.iter().zip(&bias[which * EMBEDDING + first..]).map(|(value, bias)| value + bias)
    };
    let width = tokens.next_multiple_of(LANES);
    let mut keys = vec![0.0; width * HEAD];
    let mut values = Vec::with_capacity(tokens * HEAD);
    let mut queries = Vec::with_capacity(tokens * HEAD);
    let scale = 1.0 / (HEAD as f32).sqrt();
    for token in 0..tokens {
        queries.extend(part(token, 0).map(|value| value * scale));
        let panel = &mut keys[token / LANES * LANES * HEAD..];
        for (at, key) in part(token, 1).enumerate() {
            panel[at * LANES + token % LANES] = key;
        }
        values.extend(part(token, 2));
    }
    let mut scores = vec![0.0; tokens.min(MOST_ROWS) * width];
    for start in (0..tokens).step_by(MOST_ROWS) {
        let rows = MOST_ROWS.min(tokens - start);
        for (panel, keys) in keys.chunks_exact(LANES * HEAD).enumerate() {
            let mut sums = [[0.0; LANES]; MOST_ROWS];
            let keys = Steps { weights: keys, stride: LANES, steps: HEAD };
            let asked = Inputs { values: &queries[start * HEAD..], stride: HEAD };
            add_products(instructions, keys, asked, &mut sums[..rows]);
            for (row, sums) in sums[..rows].iter().enumerate() {
                scores[row * width + panel * LANES..][..LANES].copy_from_slice(sums);
            }
        }
        for scores in scores.chunks_exact_mut(width).take(rows) {
            softmax(instructions, &mut scores[..tokens]);
        }
        for at in (0..HEAD).step_by(LANES) {
            let mut sums = [[0.0; LANES]; MOST_ROWS];
            let values = Steps { weights: &values[at..], stride: HEAD, steps: tokens };
            add_products(instructions, values, Inputs { values: &scores, stride: width }, &mut sums[..rows]);
            for (row, sums) in sums[..rows].iter().enumerate() {
                tile.row(start + row)[at..][..LANES].copy_from_slice(sums);
            }
        }
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
