//! What attention remembers: keys and values of the tokens so far, in blocks of 16 tokens, and the
//! blocks of earlier prompts.
//!
//! Full blocks never change, so that sequences that begin alike share them. Only the worker's thread
//! writes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kernels::LANES;

/// Tokens of a block: as many as the kernels compute together.
pub(crate) const BLOCK_TOKENS: usize = LANES;

/// Sizes of a model's attention that a cache depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    /// Layers of the model.
    pub(crate) layers: usize,
    /// Heads that have keys and values.
    pub(crate) kv_heads: usize,
    /// Numbers of a head.
    pub(crate) head: usize,
}

/// Keys and values of 16 tokens: (layers, heads, 2, 16 x head). Keys lie as (head, 16), values as (16,
/// head), so that both are read in steps of 16 neighbours. Tokens not yet written are zero.
#[derive(Clone, Debug)]
pub(crate) struct KvBlock(Vec<f32>);

/// Keys and values of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    shape: CacheShape,
    blocks: Vec<Arc<KvBlock>>,
    tokens: usize,
}

impl CacheShape {
    fn part(self) -> usize {
        BLOCK_TOKENS * self.head
    }

    fn block(self) -> usize {
        self.layers * self.kv_heads * 2 * self.part()
    }
}

impl Cache {
    /// A cache without tokens.
    pub(crate) fn new(shape: CacheShape) -> Self {
        Self { shape, blocks: Vec::new(), tokens: 0 }
    }

    /// Tokens remembered.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Makes room for more tokens.
    pub(crate) fn reserve(&mut self, tokens: usize) {
        while self.blocks.len() * BLOCK_TOKENS < self.tokens + tokens {
            self.blocks.push(Arc::new(KvBlock(vec![0.0; self.shape.block()])));
        }
    }

    /// Remembers one token's keys and values (heads x head) at a reserved position.
    pub(crate) fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let CacheShape { kv_heads, head, .. } = self.shape;
        let part = self.shape.part();
        let (block, token) = (position / BLOCK_TOKENS, position % BLOCK_TOKENS);
        let numbers = &mut Arc::make_mut(&mut self.blocks[block]).0;
        for index in 0..kv_heads {
            let start = (layer * kv_heads + index) * 2 * part;
            let (stored_keys, stored_values) = numbers[start..start + 2 * part].split_at_mut(part);
            for (place, key) in stored_keys.chunks_exact_mut(BLOCK_TOKENS).zip(&keys[index * head..]) {
                place[token] = *key;
            }
            stored_values[token * head..][..head].copy_from_slice(&values[index * head..][..head]);
        }
    }

    /// Counts tokens whose keys and values were written in every layer.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.tokens += tokens;
    }

    /// Keys (head, 16) and values (16, head) of a block in one layer and head.
    pub(crate) fn block(&self, layer: usize, kv_head: usize, block: usize) -> (&[f32], &[f32]) {
        let part = self.shape.part();
        let start = (layer * self.shape.kv_heads + kv_head) * 2 * part;
        self.blocks[block].0[start..start + 2 * part].split_at(part)
    }
}

/// Blocks of prompts that were read before, found by the tokens that lead to them.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    shape: CacheShape,
    limit: usize,
    known: HashMap<Key, Known>,
    last: u64,
    clock: u64,
}

/// What a block is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The adapter that it was computed with; 0: none. Under another one the same tokens mean other numbers.
    adapter: u64,
    /// The block before it; 0: none.
    before: u64,
    /// Its own tokens.
    tokens: [u32; BLOCK_TOKENS],
}

#[derive(Debug)]
struct Known {
    id: u64,
    used: u64,
    block: Arc<KvBlock>,
}

impl PrefixCache {
    /// Keeps at most `tokens` tokens, rounded down to blocks.
    pub(crate) fn new(shape: CacheShape, tokens: usize) -> Self {
        Self { shape, limit: tokens / BLOCK_TOKENS, known: HashMap::new(), last: 0, clock: 0 }
    }

    /// A cache that holds as much of the prompt's beginning as is known under an adapter (0: none); at least
    /// one token is left to be read, because its output is needed.
    pub(crate) fn begin(&mut self, adapter: u64, prompt: &[u32]) -> Cache {
        self.clock += 1;
        let mut cache = Cache::new(self.shape);
        let mut before = 0;
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        for tokens in usable.as_chunks::<BLOCK_TOKENS>().0 {
            let Some(known) = self.known.get_mut(&Key { adapter, before, tokens: *tokens }) else { break };
            known.used = self.clock;
            before = known.id;
            cache.blocks.push(Arc::clone(&known.block));
            cache.tokens += BLOCK_TOKENS;
        }
        cache
    }

    /// Learns the full blocks of a prompt that was read under an adapter (0: none), and forgets those that were
    /// longest unused.
    pub(crate) fn learn(&mut self, adapter: u64, prompt: &[u32], cache: &Cache) {
        self.clock += 1;
        let mut before = 0;
        let read = &prompt[..prompt.len().min(cache.tokens)];
        for (tokens, block) in read.as_chunks::<BLOCK_TOKENS>().0.iter().zip(&cache.blocks).take(self.limit) {
            let known = self.known.entry(Key { adapter, before, tokens: *tokens }).or_insert_with(|| {
                self.last += 1;
                Known { id: self.last, used: 0, block: Arc::clone(block) }
            });
            known.used = self.clock;
            before = known.id;
        }
        while self.known.len() > self.limit {
            // A block is used whenever its followers are and has a lower number: followers go first.
            let oldest = self.known.iter().min_by_key(|(_, known)| (known.used, u64::MAX - known.id));
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            self.known.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PrefixCache {
        /// Tokens kept.
        fn tokens(&self) -> usize {
            self.known.len() * BLOCK_TOKENS
        }
    }

    const SHAPE: CacheShape = CacheShape { layers: 2, kv_heads: 3, head: 16 };

    fn filled(tokens: usize) -> Cache {
        let mut cache = Cache::new(SHAPE);
        cache.reserve(tokens);
        for position in 0..tokens {
            for layer in 0..2 {
                let keys: Vec<f32> =
                    (0..48).map(|index| (position * 1000 + layer * 100 + index) as f32).collect();
                let values: Vec<f32> = keys.iter().map(|key| -key).collect();
                cache.write(layer, position, &keys, &values);
            }
        }
        cache.advance(tokens);
        cache
    }

    #[test]
    fn what_was_written_is_found() {
        let cache = filled(20);
        for (position, layer, kv_head, at) in [(0, 0, 0, 0), (15, 1, 2, 15), (16, 0, 1, 3), (19, 1, 0, 8)] {
            let (keys, values) = cache.block(layer, kv_head, position / 16);
            let expected = (position * 1000 + layer * 100 + kv_head * 16 + at) as f32;
            assert_eq!(keys[at * 16 + position % 16], expected);
            assert_eq!(values[position % 16 * 16 + at], -expected);
        }
        assert_eq!(cache.block(0, 0, 1).0[4], 0.0, "tokens not written are zero");
    }

    #[test]
    fn prompts_share_what_they_begin_with_and_nothing_else() {
        let mut prefixes = PrefixCache::new(SHAPE, 1000);
        let prompt: Vec<u32> = (0..50).collect();
        assert_eq!(prefixes.begin(0, &prompt).tokens(), 0);
        prefixes.learn(0, &prompt, &filled(50));
        assert_eq!(prefixes.tokens(), 48);
        assert_eq!(prefixes.begin(0, &prompt).tokens(), 48);
        assert_eq!(prefixes.begin(0, &prompt[..48]).tokens(), 32, "the last token is read again");
        assert_eq!(prefixes.begin(0, &prompt[..40]).tokens(), 32);
        let mut other = prompt.clone();
        other[20] = 99;
        assert_eq!(prefixes.begin(0, &other).tokens(), 16);
        other[0] = 99;
        assert_eq!(prefixes.begin(0, &other).tokens(), 0);
        assert_eq!(prefixes.begin(0, &prompt[16..]).tokens(), 0, "the same tokens at another place");
    }

    #[test]
    fn adapters_share_nothing() {
        let mut prefixes = PrefixCache::new(SHAPE, 1000);
        let prompt: Vec<u32> = (0..50).collect();
        prefixes.learn(1, &prompt, &filled(50));
        assert_eq!(prefixes.begin(1, &prompt).tokens(), 48);
        assert_eq!((prefixes.begin(0, &prompt).tokens(), prefixes.begin(2, &prompt).tokens()), (0, 0));
        // Blocks are numbered from 1 as adapters are; neither number stands for the other.
        prefixes.learn(0, &prompt, &filled(50));
        assert_eq!(prefixes.begin(2, &prompt[16..]).tokens(), 0);
    }

    #[test]
    fn writing_after_a_shared_prefix_leaves_the_prefix_alone() {
        let mut prefixes = PrefixCache::new(SHAPE, 1000);
        let prompt: Vec<u32> = (0..33).collect();
        prefixes.learn(0, &prompt, &filled(33));
        let mut cache = prefixes.begin(0, &prompt);
        cache.write(0, 3, &[7.0; 48], &[7.0; 48]);
        assert_eq!(prefixes.begin(0, &prompt).block(0, 0, 0).0[3], 3000.0);
        assert_eq!(cache.block(0, 0, 0).0[3], 7.0);
    }

    #[test]
    fn the_longest_unused_blocks_are_forgotten_from_the_end() {
        let mut prefixes = PrefixCache::new(SHAPE, 64);
        let first: Vec<u32> = (0..49).collect();
        let second: Vec<u32> = (100..133).collect();
        prefixes.learn(0, &first, &filled(49));
        prefixes.learn(0, &second, &filled(33));
        assert_eq!(prefixes.tokens(), 64);
        assert_eq!(prefixes.begin(0, &first).tokens(), 32);
        assert_eq!(prefixes.begin(0, &second).tokens(), 32);
        let long: Vec<u32> = (200..1000).collect();
        prefixes.learn(0, &long, &filled(800));
        assert_eq!(prefixes.tokens(), 64);
        assert_eq!(prefixes.begin(0, &long).tokens(), 64);
        let mut none = PrefixCache::new(SHAPE, 0);
        none.learn(0, &long, &filled(800));
        assert_eq!((none.tokens(), none.begin(0, &long).tokens()), (0, 0));
    }
}
