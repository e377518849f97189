//! Attention of a batch: each token looks at the tokens of its own sequence, up to itself.
//!
//! Several heads ask the same keys (grouped-query attention), so that a tile of work is some tokens and
//! all heads of one group.

use std::ops::Range;

use crate::cache::{BLOCK_TOKENS, Cache};
use crate::kernels::{Inputs, Instructions, LANES, MOST_ROWS, Steps, Threads, Tile, add_products, softmax};

/// Sizes of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Heads that ask.
    pub(crate) heads: usize,
    /// Heads that have keys and values.
    pub(crate) kv_heads: usize,
    /// Numbers of a head, a multiple of 16.
    pub(crate) head: usize,
}

/// Rows of the batch that belong to one sequence.
pub(crate) struct Span<'a> {
    /// Which rows.
    pub(crate) rows: Range<usize>,
    /// Position of the first of them.
    pub(crate) first: usize,
    /// Keys and values up to the last of them.
    pub(crate) cache: &'a Cache,
}

/// Tokens whose attention is one piece of work.
const TOKENS_TOGETHER: usize = 8;

/// Writes to `output` (rows, heads x head) what each row's queries find in one layer. A row of `queries`
/// begins with its heads x head numbers and is `stride` long.
pub(crate) fn attend(
    threads: &Threads,
    heads: Heads,
    layer: usize,
    (queries, stride): (&[f32], usize),
    spans: &[Span<'_>],
    output: &mut [f32],
) {
    let group = heads.heads / heads.kv_heads * heads.head;
    threads.tiles(output, heads.heads * heads.head, TOKENS_TOGETHER, group, |mut tile| {
        for span in spans {
            let rows = span.rows.start.max(tile.rows().start)..span.rows.end.min(tile.rows().end);
            if !rows.is_empty() {
                attend_tile(heads, layer, (queries, stride), span, rows, &mut tile);
            }
        }
    });
}

fn attend_tile(
    heads: Heads,
    layer: usize,
    (queries, stride): (&[f32], usize),
    span: &Span<'_>,
    rows: Range<usize>,
    tile: &mut Tile<'_, f32>,
) {
    let instructions = Instructions::best();
    let Heads { head, .. } = heads;
    let columns = tile.columns();
    let group = columns.len() / head;
    let kv_head = columns.start / columns.len();
    let first = span.first + rows.start - span.rows.start;
    let blocks = (first + rows.len()).div_ceil(BLOCK_TOKENS);
    let width = blocks * BLOCK_TOKENS;
    // One row of scores per token and head of the group.
    let count = rows.len() * group;
    let scale = 1.0 / (head as f32).sqrt();
    let mut asked = Vec::with_capacity(count * head);
    for row in rows.clone() {
        asked.extend(queries[row * stride..][columns.clone()].iter().map(|value| value * scale));
    }
    let mut scores = vec![0.0; count * width];
    for block in 0..blocks {
        let keys =
            Steps { weights: span.cache.block(layer, kv_head, block).0, stride: BLOCK_TOKENS, steps: head };
        for start in (0..count).step_by(MOST_ROWS) {
            let mut sums = [[0.0; LANES]; MOST_ROWS];
            let sums = &mut sums[..MOST_ROWS.min(count - start)];
            add_products(instructions, keys, Inputs { values: &asked[start * head..], stride: head }, sums);
            for (offset, sums) in sums.iter().enumerate() {
                scores[(start + offset) * width + block * BLOCK_TOKENS..][..LANES].copy_from_slice(sums);
            }
        }
    }
    for (index, scores) in scores.chunks_exact_mut(width).enumerate() {
        let (seen, unseen) = scores.split_at_mut(first + index / group + 1);
        softmax(instructions, seen);
        // Later tokens of the same block count nothing; adding nothing changes no bit.
        unseen.fill(0.0);
    }
    for start in (0..count).step_by(MOST_ROWS) {
        for part in (0..head).step_by(LANES) {
            let mut sums = [[0.0; LANES]; MOST_ROWS];
            let sums = &mut sums[..MOST_ROWS.min(count - start)];
            for block in 0..blocks {
                let values = &span.cache.block(layer, kv_head, block).1[part..];
                let values = Steps { weights: values, stride: head, steps: BLOCK_TOKENS };
                let chances = &scores[start * width + block * BLOCK_TOKENS..];
                add_products(instructions, values, Inputs { values: chances, stride: width }, sums);
            }
            for (offset, sums) in sums.iter().enumerate() {
                let index = start + offset;
                let row = tile.row(rows.start + index / group);
                row[index % group * head + part..][..LANES].copy_from_slice(sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheShape;

    fn noise(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0).collect()
    }

    /// Two sequences in one batch, one of several tokens, against the textbook in f64.
    #[test]
    fn attention_is_what_the_formula_says() {
        let heads = Heads { heads: 6, kv_heads: 2, head: 32 };
        let shape = CacheShape { layers: 2, kv_heads: 2, head: 32 };
        let mut caches = [Cache::new(shape), Cache::new(shape)];
        let lengths = [37, 20];
        let mut stored = Vec::new();
        for (sequence, cache) in caches.iter_mut().enumerate() {
            cache.reserve(lengths[sequence]);
            for position in 0..lengths[sequence] {
                let (keys, values) =
                    (noise(64, position + 50 * sequence), noise(64, position + 1000 * sequence + 7));
                cache.write(1, position, &keys, &values);
                stored.push((keys, values));
            }
        }
        let stride = 6 * 32 + 5;
        let queries = noise(12 * stride, 3);
        let spans = [
            Span { rows: 0..11, first: 26, cache: &caches[0] },
            Span { rows: 11..12, first: 19, cache: &caches[1] },
        ];
        let mut output = vec![0.0; 12 * 6 * 32];
        attend(&Threads::new(2), heads, 1, (&queries, stride), &spans, &mut output);
        for row in 0..12 {
            let (from, seen) = if row < 11 { (0, 27 + row) } else { (37, 20) };
            for head in 0..6 {
                let query = &queries[row * stride + head * 32..][..32];
                let at = head / 3 * 32;
                let scores: Vec<f64> = (0..seen)
                    .map(|position| {
                        let keys = &stored[from + position].0[at..at + 32];
                        let dot: f64 =
                            query.iter().zip(keys).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                        (dot / 32.0_f64.sqrt()).exp()
                    })
                    .collect();
                let total: f64 = scores.iter().sum();
                for dimension in 0..32 {
                    let exact: f64 = (0..seen)
                        .map(|position| {
                            scores[position] / total * f64::from(stored[from + position].1[at + dimension])
                        })
                        .sum();
                    let found = f64::from(output[row * 192 + head * 32 + dimension]);
                    assert!((found - exact).abs() < 1e-5, "row {row}, head {head}: {found} is not {exact}");
                }
            }
        }
    }
}
