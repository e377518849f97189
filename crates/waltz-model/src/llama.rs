//! A Llama-family model: what it is, and one step of a batch through it.
//!
//! A step takes any mix of sequences, each with one token or many, and gives the numbers that stand for
//! each token after the last layer. Rows do not influence each other except by attention within their
//! sequence, bit for bit, so that a batch gives what its sequences would give alone.

use std::ops::Range;
use std::path::Path;

use crate::adapter::Which;
use crate::attention::{Heads, Span, attend};
use crate::cache::{Cache, CacheShape};
use crate::kernels::{Instructions, Matrix, MatrixKind, Threads, Write, rms_norm, rotate, rotations, swiglu};
use crate::packed::{self, Packed};
use crate::shape::Shape;
use crate::weights::{FromGguf, Layer, Weights};
use crate::{Adapter, Error, Gguf, PinnedFile};

/// A model that is loaded and ready to compute.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    weights: Weights,
    base: String,
}

/// What one sequence contributes to a step: its next tokens, at least one.
pub(crate) struct Turn<'a> {
    /// The tokens, each below the vocabulary's size.
    pub(crate) tokens: &'a [u32],
    /// What the sequence remembers; the tokens are added to it.
    pub(crate) cache: &'a mut Cache,
    /// What changes the model for this sequence.
    pub(crate) adapter: Option<&'a Adapter>,
}

/// Neighbouring rows of a batch that are computed with the same adapter.
struct Adapted<'a> {
    rows: Range<usize>,
    adapter: &'a Adapter,
}

/// Rows whose norm or gate is one piece of work.
const ROWS_TOGETHER: usize = 8;

impl Model {
    /// Loads the weights of a GGUF file into memory.
    pub fn from_gguf(gguf: &Gguf, kind: MatrixKind) -> Result<Self, Error> {
        let shape = Shape::from_gguf(gguf)?;
        let mut source = FromGguf::new(gguf, kind);
        let weights = Weights::gather(&shape, &mut source)?;
        source.finish()?;
        Ok(Self { shape, weights, base: gguf.sha256() })
    }

    /// Opens the form of a model that serves. It is made from the GGUF file once and kept in `folder`;
    /// after that it is mapped, so that processes share it. Other bytes than were pulled are refused.
    pub fn open(gguf: &PinnedFile, folder: &Path) -> Result<Self, Error> {
        let Packed { shape, weights, base } = packed::open(gguf, folder)?;
        Ok(Self { shape, weights, base })
    }

    /// The model's sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// SHA-256 of the GGUF file that it was made from.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The weights, for writing them to a file.
    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// What a cache for this model must hold.
    pub(crate) fn cache_shape(&self) -> CacheShape {
        let Shape { layers, kv_heads, head, .. } = self.shape;
        CacheShape { layers, kv_heads, head }
    }

    /// Takes each sequence forward by its tokens. Returns a row of `width` numbers for each token, the
    /// sequences one after the other.
    pub(crate) fn step(&self, threads: &Threads, turns: &mut [Turn<'_>]) -> Vec<f32> {
        let Shape { width, head, hidden, rope_base, .. } = self.shape;
        let rows: usize = turns.iter().map(|turn| turn.tokens.len()).sum();
        let mut state = vec![0.0; rows * width];
        let mut tables = Vec::with_capacity(rows);
        for turn in &mut *turns {
            turn.cache.reserve(turn.tokens.len());
            for (offset, token) in turn.tokens.iter().enumerate() {
                let row = tables.len();
                self.weights.embedding.read_row(*token as usize, &mut state[row * width..][..width]);
                tables.push(rotations(turn.cache.tokens() + offset, head, rope_base));
            }
        }
        let adapted = adapted(turns);
        let mut scratch = Scratch {
            normed: vec![0.0; rows * width],
            attention: vec![0.0; rows * (width + 2 * self.shape.kv_width())],
            mixed: vec![0.0; rows * width],
            both: vec![0.0; rows * 2 * hidden],
            gated: vec![0.0; rows * hidden],
            blocks: Vec::new(),
        };
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attention(threads, index, layer, (&tables, &adapted), turns, &mut state, &mut scratch);
            self.feed_forward(threads, index, layer, &adapted, &mut state, &mut scratch);
        }
        for turn in turns {
            turn.cache.advance(turn.tokens.len());
        }
        state
    }

    /// Applies the last norm to rows of `width` numbers: what embeddings are made of.
    pub(crate) fn normed(&self, threads: &Threads, state: &[f32]) -> Vec<f32> {
        let mut normed = vec![0.0; state.len()];
        self.norm(threads, state, &self.weights.norm, &mut normed);
        normed
    }

    /// The logits of each row (rows, vocabulary).
    pub(crate) fn logits(&self, threads: &Threads, state: &[f32]) -> Vec<f32> {
        let normed = self.normed(threads, state);
        let matrix: &Matrix = self.weights.output.as_ref().unwrap_or(&self.weights.embedding);
        let mut logits = vec![0.0; state.len() / self.shape.width * matrix.rows()];
        matrix.multiply(threads, &normed, &mut Vec::new(), &mut logits, Write::Replace);
        logits
    }

    /// Adds to each row of `state` what attention finds for it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one step, each borrowed from its owner")]
    fn attention(
        &self,
        threads: &Threads,
        index: usize,
        layer: &Layer,
        (tables, adapted): (&[Vec<f32>], &[Adapted<'_>]),
        turns: &mut [Turn<'_>],
        state: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Shape { width, heads, kv_heads, head, .. } = self.shape;
        let Scratch { normed, attention, mixed, blocks, .. } = scratch;
        self.norm(threads, state, &layer.attention_norm, normed);
        layer.query_key_value.multiply(threads, normed, blocks, attention, Write::Replace);
        adapt(threads, adapted, (index, Which::QueryKeyValue), (normed, width), attention);
        let (keys, stride) = (width + self.shape.kv_width(), width + 2 * self.shape.kv_width());
        threads.tiles(attention, stride, ROWS_TOGETHER, stride, |mut tile| {
            for row in tile.rows() {
                rotate(Instructions::best(), &mut tile.row(row)[..keys], &tables[row]);
            }
        });
        let mut first = 0;
        let mut spans = Vec::with_capacity(turns.len());
        for turn in turns.iter_mut() {
            let rows = first..first + turn.tokens.len();
            let position = turn.cache.tokens();
            for (offset, row) in rows.clone().enumerate() {
                let row = &attention[row * stride..][..stride];
                turn.cache.write(index, position + offset, &row[width..keys], &row[keys..]);
            }
            first = rows.end;
            spans.push(Span { rows, first: position, cache: &*turn.cache });
        }
        attend(threads, Heads { heads, kv_heads, head }, index, (attention, stride), &spans, mixed);
        layer.attention_output.multiply(threads, mixed, blocks, state, Write::Add);
        adapt(threads, adapted, (index, Which::AttentionOutput), (mixed, width), state);
    }

    /// Adds to each row of `state` what the feed-forward part makes of it.
    fn feed_forward(
        &self,
        threads: &Threads,
        index: usize,
        layer: &Layer,
        adapted: &[Adapted<'_>],
        state: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Scratch { normed, both, gated, blocks, .. } = scratch;
        let Shape { width, hidden, .. } = self.shape;
        self.norm(threads, state, &layer.feed_norm, normed);
        layer.gate_up.multiply(threads, normed, blocks, both, Write::Replace);
        adapt(threads, adapted, (index, Which::GateUp), (normed, width), both);
        threads.tiles(gated, hidden, ROWS_TOGETHER, hidden, |mut tile| {
            for row in tile.rows() {
                swiglu(Instructions::best(), &both[row * 2 * hidden..][..2 * hidden], tile.row(row));
            }
        });
        layer.down.multiply(threads, gated, blocks, state, Write::Add);
        adapt(threads, adapted, (index, Which::Down), (gated, hidden), state);
    }

    fn norm(&self, threads: &Threads, state: &[f32], gain: &[f32], output: &mut [f32]) {
        let Shape { width, epsilon, .. } = self.shape;
        threads.tiles(output, width, ROWS_TOGETHER, width, |mut tile| {
            for row in tile.rows() {
                rms_norm(Instructions::best(), &state[row * width..][..width], gain, epsilon, tile.row(row));
            }
        });
    }
}

/// Which rows need which adapter. Neighbours with the same one are computed together.
fn adapted<'a>(turns: &[Turn<'a>]) -> Vec<Adapted<'a>> {
    let mut found: Vec<Adapted<'_>> = Vec::new();
    let mut first = 0;
    for turn in turns {
        let rows = first..first + turn.tokens.len();
        first = rows.end;
        let Some(adapter) = turn.adapter else { continue };
        match found.last_mut() {
            Some(last) if last.rows.end == rows.start && last.adapter.number() == adapter.number() => {
                last.rows.end = rows.end;
            }
            _ => found.push(Adapted { rows, adapter }),
        }
    }
    found
}

/// Adds to rows of `output` what their adapters make of the same rows of `input`, which are `width` long.
fn adapt(
    threads: &Threads,
    adapted: &[Adapted<'_>],
    place: (usize, Which),
    (input, width): (&[f32], usize),
    output: &mut [f32],
) {
    let stride = output.len() / (input.len() / width).max(1);
    for Adapted { rows, adapter } in adapted {
        let from = &input[rows.start * width..rows.end * width];
        adapter.apply(threads, place, from, &mut output[rows.start * stride..rows.end * stride]);
    }
}

/// Room for the numbers between products, used again in every layer.
struct Scratch {
    /// (rows, width).
    normed: Vec<f32>,
    /// Queries, keys and values (rows, (heads + 2 x kv_heads) x head).
    attention: Vec<f32>,
    /// (rows, width).
    mixed: Vec<f32>,
    /// Gate and up (rows, 2 x hidden).
    both: Vec<f32>,
    /// (rows, hidden).
    gated: Vec<f32>,
    /// An input of a product as bytes.
    blocks: Vec<crate::kernels::Block>,
}

#[cfg(test)]
#[path = "llama/tests.rs"]
mod tests;
