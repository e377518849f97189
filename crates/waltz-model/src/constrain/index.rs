//! A vocabulary arranged for constraints: a trie over the bytes of all tokens, and the tokens that are plain text.

use std::collections::BTreeMap;

use super::state::State;
use crate::{TokenMask, Tokenizer};

/// A vocabulary, arranged once per model and shared by all constraints.
#[derive(Debug)]
pub struct TokenIndex {
    bytes: Vec<Box<[u8]>>,
    end: u32,
    nodes: Vec<Node>,
    /// Plain tokens of at most as many characters as the place in the list.
    plain: Vec<TokenMask>,
    /// Tokens that are not plain text.
    marked: Vec<(u32, Box<[u8]>)>,
}

/// A node of the trie, in depth-first order.
#[derive(Clone, Copy, Debug)]
struct Node {
    byte: u8,
    depth: u16,
    /// The token that ends here.
    token: Option<u32>,
    /// The node after all that lie below this one.
    next: u32,
}

impl TokenIndex {
    /// Arranges a model's vocabulary.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let count = tokenizer.vocabulary();
        let bytes: Vec<Box<[u8]>> =
            (0..count as u32).map(|token| tokenizer.token_bytes(token).into()).collect();
        let mut sorted = BTreeMap::new();
        let mut by_length: Vec<Vec<u32>> = vec![Vec::new()];
        let mut marked = Vec::new();
        for (token, bytes) in (0_u32..).zip(&bytes).filter(|(_, bytes)| !bytes.is_empty()) {
            sorted.insert(bytes.as_ref(), token);
            match plain_characters(bytes) {
                Some(characters) => {
                    if by_length.len() <= characters {
                        by_length.resize(characters + 1, Vec::new());
                    }
                    by_length[characters].push(token);
                }
                None => marked.push((token, bytes.clone())),
            }
        }
        let mut mask = TokenMask::new(count);
        let mut plain = Vec::with_capacity(by_length.len());
        for tokens in by_length {
            tokens.into_iter().for_each(|token| mask.allow(token));
            plain.push(mask.clone());
        }
        Self { nodes: trie(&sorted), bytes, end: tokenizer.end(), plain, marked }
    }

    /// How many tokens there are.
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    /// The token that ends an answer.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// The bytes of a token; none for control tokens.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], |bytes| bytes)
    }

    /// Tokens that are whole characters, none of which JSON escapes, at most so many of them.
    pub(super) fn plain(&self, characters: usize) -> &TokenMask {
        &self.plain[characters.min(self.plain.len() - 1)]
    }

    /// All other tokens that stand for text.
    pub(super) fn marked(&self) -> &[(u32, Box<[u8]>)] {
        &self.marked
    }

    /// Whether a single byte is a token.
    pub(super) fn has_single(&self, byte: u8) -> bool {
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            if node.byte == byte {
                return node.token.is_some();
            }
            at = node.next as usize;
        }
        false
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.len()).max().unwrap_or(0)
    }

    /// Calls `found` with each token that can be read from a state, and the state after it.
    pub(super) fn walk(
        &self,
        from: State,
        step: impl Fn(State, u8) -> Option<State>,
        mut found: impl FnMut(State, u32),
    ) {
        let mut path = vec![from];
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            path.truncate(usize::from(node.depth) + 1);
            match path.last().and_then(|state| step(*state, node.byte)) {
                Some(state) => {
                    if let Some(token) = node.token {
                        found(state, token);
                    }
                    path.push(state);
                    at += 1;
                }
                None => at = node.next as usize,
            }
        }
    }

    /// The fewest tokens from each place of `text` to the end of the object. `tail` is what follows, as far as one token
    /// reaches; `tail_costs` holds the costs of its places and of the one after it. Nothing of it is copied: there may
    /// be thousands of texts before one tail.
    pub(super) fn costs(&self, text: &[u8], tail: &[u8], tail_costs: &[usize]) -> Vec<usize> {
        let mut costs = vec![usize::MAX; text.len()];
        for start in (0..text.len()).rev() {
            let mut best = usize::MAX;
            let mut at = 0;
            while let Some(node) = self.nodes.get(at) {
                let place = start + usize::from(node.depth);
                let byte = text.get(place).or_else(|| tail.get(place - text.len()));
                if byte != Some(&node.byte) {
                    at = node.next as usize;
                    continue;
                }
                if node.token.is_some() {
                    let after = place + 1;
                    let rest = costs.get(after).unwrap_or_else(|| &tail_costs[after - text.len()]);
                    best = best.min(rest.saturating_add(1));
                }
                at += 1;
            }
            costs[start] = best;
        }
        costs
    }
}

/// How many characters a token has, where it is whole characters that JSON does not escape.
fn plain_characters(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = |character: char| character >= ' ' && character != '"' && character != '\\';
    text.chars().all(is_plain).then(|| text.chars().count())
}

/// Lays the sorted tokens out as a trie.
fn trie(sorted: &BTreeMap<&[u8], u32>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    // The nodes on the way to the last token.
    let mut path: Vec<usize> = Vec::new();
    for (bytes, token) in sorted {
        let shared = path.iter().zip(*bytes).take_while(|(node, byte)| nodes[**node].byte == **byte).count();
        close(&mut nodes, &mut path, shared);
        for (depth, byte) in bytes.iter().enumerate().skip(shared) {
            path.push(nodes.len());
            nodes.push(Node { byte: *byte, depth: depth as u16, token: None, next: 0 });
        }
        if let Some(last) = path.last() {
            nodes[*last].token = Some(*token);
        }
    }
    close(&mut nodes, &mut path, 0);
    nodes
}

/// Ends the nodes of a path below a depth.
fn close(nodes: &mut [Node], path: &mut Vec<usize>, depth: usize) {
    for node in path.drain(depth..) {
        nodes[node].next = nodes.len() as u32;
    }
}
