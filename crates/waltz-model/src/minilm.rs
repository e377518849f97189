//! all-MiniLM-L6-v2: a text becomes 384 numbers, and texts that mean the same become neighbours.
//!
//! A BERT encoder of six layers, read from its safetensors file. An embedding is the mean of its tokens' last rows,
//! scaled to length 1, so that the similarity of two texts is the product of their embeddings. Longer texts are cut
//! after 256 tokens, as the model was trained.

use std::path::Path;

use crate::kernels::{
    Block, Inputs, Instructions, LANES, MOST_ROWS, Matrix, Steps, Threads, Tile, Write, add_products, gelu,
    layer_norm, softmax,
};
use crate::safetensors::{TensorFile, Tensors};
use crate::wordpiece::WordPiece;
use crate::{Error, MatrixKind};

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
/// Rows whose norm or bias is one piece of work.
const ROWS_TOGETHER: usize = 8;

/// The encoder, loaded.
#[derive(Debug)]
pub struct MiniLm {
    tokenizer: WordPiece,
    /// (vocabulary, 384).
    words: Vec<f32>,
    /// (positions, 384), the kind of the text's tokens added.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    /// Queries, keys and values (3 x 384, 384).
    attention: Linear,
    mixed: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    feed_norm: Norm,
}

#[derive(Debug)]
struct Linear {
    matrix: Matrix,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct Norm {
    gain: Vec<f32>,
    bias: Vec<f32>,
}

impl MiniLm {
    /// Loads `model.safetensors` and `vocab.txt`.
    pub fn open(weights: &Path, vocabulary: &Path, kind: MatrixKind) -> Result<Self, Error> {
        let tokenizer = WordPiece::open(vocabulary, VOCABULARY)?;
        let file = TensorFile::open(weights)?;
        let tensors = file.tensors()?;
        let words = tensors.floats("embeddings.word_embeddings.weight", &[VOCABULARY, EMBEDDING])?;
        let mut positions =
            tensors.floats("embeddings.position_embeddings.weight", &[POSITIONS, EMBEDDING])?;
        let kinds = tensors.floats("embeddings.token_type_embeddings.weight", &[2, EMBEDDING])?;
        for row in positions.chunks_exact_mut(EMBEDDING) {
            add(row, &kinds[..EMBEDDING]);
        }
        let norm = norm(&tensors, "embeddings.LayerNorm")?;
        let mut layers = Vec::with_capacity(LAYERS);
        for index in 0..LAYERS {
            layers.push(layer(&tensors, kind, &format!("encoder.layer.{index}"))?);
        }
        Ok(Self { tokenizer, words, positions, norm, layers })
    }

    /// The embedding of a text: [`EMBEDDING`] numbers of length 1.
    pub fn embed(&self, threads: &Threads, text: &str) -> Vec<f32> {
        let tokens = self.tokenizer.encode(text, MOST_TOKENS);
        let mut state = Vec::with_capacity(tokens.len() * EMBEDDING);
        for (token, position) in tokens.iter().zip(self.positions.chunks_exact(EMBEDDING)) {
            let word = &self.words[*token as usize * EMBEDDING..][..EMBEDDING];
            state.extend(word.iter().zip(position).map(|(word, position)| word + position));
        }
        self.norm.apply(threads, &mut state);
        let mut blocks = Vec::new();
        let mut attention = vec![0.0; tokens.len() * 3 * EMBEDDING];
        let mut mixed = vec![0.0; tokens.len() * EMBEDDING];
        let mut hidden = vec![0.0; tokens.len() * HIDDEN];
        for layer in &self.layers {
            layer.attention.replace(threads, &state, &mut blocks, &mut attention);
            attend(threads, &attention, &mut mixed);
            layer.mixed.add(threads, &mixed, &mut blocks, &mut state);
            layer.attention_norm.apply(threads, &mut state);
            layer.up.matrix.multiply(threads, &state, &mut blocks, &mut hidden, Write::Replace);
            for_rows(threads, &mut hidden, HIDDEN, |row| gelu(Instructions::best(), row, &layer.up.bias));
            layer.down.add(threads, &hidden, &mut blocks, &mut state);
            layer.feed_norm.apply(threads, &mut state);
        }
        pooled(&state)
    }
}

impl Linear {
    fn replace(&self, threads: &Threads, input: &[f32], blocks: &mut Vec<Block>, output: &mut [f32]) {
        self.matrix.multiply(threads, input, blocks, output, Write::Replace);
        for_rows(threads, output, self.bias.len(), |row| add(row, &self.bias));
    }

    fn add(&self, threads: &Threads, input: &[f32], blocks: &mut Vec<Block>, output: &mut [f32]) {
        self.matrix.multiply(threads, input, blocks, output, Write::Add);
        for_rows(threads, output, self.bias.len(), |row| add(row, &self.bias));
    }
}

impl Norm {
    fn apply(&self, threads: &Threads, state: &mut [f32]) {
        for_rows(threads, state, EMBEDDING, |row| {
            layer_norm(Instructions::best(), row, &self.gain, &self.bias, EPSILON);
        });
    }
}

fn for_rows(threads: &Threads, matrix: &mut [f32], width: usize, work: impl Fn(&mut [f32]) + Sync) {
    threads.tiles(matrix, width, ROWS_TOGETHER, width, |mut tile| {
        for row in tile.rows() {
            work(tile.row(row));
        }
    });
}

fn add(row: &mut [f32], other: &[f32]) {
    for (value, other) in row.iter_mut().zip(other) {
        *value += other;
    }
}

fn layer(tensors: &Tensors<'_>, kind: MatrixKind, name: &str) -> Result<Layer, Error> {
    let read = |part: &str, rows: usize, columns: usize| -> Result<(Vec<f32>, Vec<f32>), Error> {
        let weight = tensors.floats(&format!("{name}.{part}.weight"), &[rows, columns])?;
        Ok((weight, tensors.floats(&format!("{name}.{part}.bias"), &[rows])?))
    };
    let linear = |part: &str, rows: usize, columns: usize| -> Result<Linear, Error> {
        let (weight, bias) = read(part, rows, columns)?;
        Ok(Linear { matrix: Matrix::from_rows(kind, columns, &weight), bias })
    };
    let (mut weight, mut bias) = (Vec::new(), Vec::new());
    for part in ["query", "key", "value"] {
        let (more, further) = read(&format!("attention.self.{part}"), EMBEDDING, EMBEDDING)?;
        weight.extend(more);
        bias.extend(further);
    }
    Ok(Layer {
        attention: Linear { matrix: Matrix::from_rows(kind, EMBEDDING, &weight), bias },
        mixed: linear("attention.output.dense", EMBEDDING, EMBEDDING)?,
        attention_norm: norm(tensors, &format!("{name}.attention.output.LayerNorm"))?,
        up: linear("intermediate.dense", HIDDEN, EMBEDDING)?,
        down: linear("output.dense", EMBEDDING, HIDDEN)?,
        feed_norm: norm(tensors, &format!("{name}.output.LayerNorm"))?,
    })
}

fn norm(tensors: &Tensors<'_>, name: &str) -> Result<Norm, Error> {
    let gain = tensors.floats(&format!("{name}.weight"), &[EMBEDDING])?;
    Ok(Norm { gain, bias: tensors.floats(&format!("{name}.bias"), &[EMBEDDING])? })
}

/// Writes to `output` (tokens, 384) what each token finds in all tokens. `attention` (tokens, 3 x 384) holds queries,
/// keys and values.
fn attend(threads: &Threads, attention: &[f32], output: &mut [f32]) {
    let tokens = output.len() / EMBEDDING;
    threads.tiles(output, EMBEDDING, tokens, HEAD, |mut tile| attend_head(attention, tokens, &mut tile));
}

/// One head: keys lie in panels of 16 tokens, and so do the scores.
fn attend_head(attention: &[f32], tokens: usize, tile: &mut Tile<'_, f32>) {
    let instructions = Instructions::best();
    let first = tile.columns().start;
    let part = |token: usize, which: usize| &attention[(token * 3 + which) * EMBEDDING + first..][..HEAD];
    let width = tokens.next_multiple_of(LANES);
    let mut keys = vec![0.0; width * HEAD];
    let mut values = vec![0.0; width * HEAD];
    let mut queries = Vec::with_capacity(tokens * HEAD);
    let scale = 1.0 / (HEAD as f32).sqrt();
    for token in 0..tokens {
        queries.extend(part(token, 0).iter().map(|value| value * scale));
        let panel = &mut keys[token / LANES * LANES * HEAD..];
        for (at, key) in part(token, 1).iter().enumerate() {
            panel[at * LANES + token % LANES] = *key;
        }
        values[token * HEAD..][..HEAD].copy_from_slice(part(token, 2));
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
        add(&mut mean, row);
    }
    let length = mean.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    mean.iter_mut().for_each(|value| *value /= length);
    mean
}

#[cfg(test)]
#[path = "minilm/tests.rs"]
mod tests;
