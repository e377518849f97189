//! A trie of byte strings, kept flat and small: a node stands for all bytes up to the next place where strings part or
//! one ends, and children of a node stand side by side. There is a node behind the first blank of every string, so that
//! a walk can begin behind a first word that is known.
//!
//! Built by `starts.rs`; a walk reads bytes until no string goes on.

use std::ops::Range;

/// No string, or no node.
pub(crate) const NONE: u32 = u32::MAX;

/// The strings, numbered in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Trie {
    /// The node that strings with each first byte begin at, or [`NONE`].
    starts: Vec<u32>,
    /// The byte that leads to each node.
    bytes: Vec<u8>,
    /// The nodes, and one more, at which the last one's children and bytes end.
    nodes: Vec<Node>,
    /// The further bytes of all nodes, in their order.
    rests: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Where its children begin; they end where the next node's begin.
    children: u32,
    /// Where its further bytes begin; they end where the next node's begin.
    rest: u32,
    /// The string that ends here, or [`NONE`].
    end: u32,
    /// A [`bit`] for each byte that leads to a child: most walks end at a byte that leads nowhere.
    leads: u32,
}

fn bit(byte: u8) -> u32 {
    1 << (byte & 31)
}

impl Trie {
    /// Builds the trie of strings that are sorted and all different. An empty one is never found.
    pub(crate) fn new(strings: &[&[u8]]) -> Self {
        let mut trie =
            Self { starts: vec![NONE; 256], bytes: Vec::new(), nodes: Vec::new(), rests: Vec::new() };
        // The strings that pass through each node of a level and how much of them was read, level by level.
        let mut level: Vec<(Range<usize>, usize)> = Vec::new();
        trie.part(strings, 0..strings.len(), 0, &mut level);
        for (node, byte) in trie.bytes.iter().enumerate() {
            trie.starts[usize::from(*byte)] = node as u32;
        }
        while !level.is_empty() {
            let mut next = Vec::new();
            for (passing, depth) in level {
                // Sorted, so all share what the first and the last one share.
                let (first, last) = (strings[passing.start], strings[passing.end - 1]);
                let shared =
                    first[depth..].iter().zip(&last[depth..]).take_while(|(left, right)| left == right);
                let mut depth_behind = depth + shared.count();
                let word = first.iter().position(|byte| *byte == b' ').map_or(0, |blank| blank + 1);
                if (depth..depth_behind).contains(&word) {
                    depth_behind = word;
                }
                let end = if first.len() == depth_behind { passing.start as u32 } else { NONE };
                let rest = trie.rests.len() as u32;
                let children = trie.bytes.len();
                trie.rests.extend_from_slice(&first[depth..depth_behind]);
                trie.part(strings, passing, depth_behind, &mut next);
                let leads = trie.bytes[children..].iter().fold(0, |leads, byte| leads | bit(*byte));
                trie.nodes.push(Node { children: children as u32, rest, end, leads });
            }
            level = next;
        }
        let rest = trie.rests.len() as u32;
        trie.nodes.push(Node { children: trie.bytes.len() as u32, rest, end: NONE, leads: 0 });
        trie
    }

    /// Adds a child for each byte that stands at `depth` in the strings of a range.
    fn part(
        &mut self,
        strings: &[&[u8]],
        mut passing: Range<usize>,
        depth: usize,
        children: &mut Vec<(Range<usize>, usize)>,
    ) {
        // Sorted, so a string that ends here comes first.
        passing.start += usize::from(strings.get(passing.start).is_some_and(|string| string.len() == depth));
        while !passing.is_empty() {
            let byte = strings[passing.start][depth];
            let count = strings[passing.clone()].partition_point(|string| string[depth] == byte);
            self.bytes.push(byte);
            children.push((passing.start..passing.start + count, depth + 1));
            passing.start += count;
        }
    }

    /// Calls `found` with every string that `text` begins with, the shortest first.
    pub(crate) fn walk(&self, text: &[u8], found: impl FnMut(u32)) {
        let Some((first, rest)) = text.split_first() else { return };
        self.walk_on(self.starts[usize::from(*first)], rest, found);
    }

    /// The same from a node on, whose own bytes stand at the start of `text`.
    fn walk_on(&self, mut node: u32, mut text: &[u8], mut found: impl FnMut(u32)) {
        while let [Node { rest, end, .. }, behind, ..] = self.nodes.get(node as usize..).unwrap_or_default() {
            for byte in &self.rests[*rest as usize..behind.rest as usize] {
                match text.split_first() {
                    Some((next, others)) if next == byte => text = others,
                    _ => return,
                }
            }
            if *end != NONE {
                found(*end);
            }
            let Some((next, others)) = self.child(node, text) else { return };
            (node, text) = (next, others);
        }
    }

    /// The same behind a node, whose own bytes were read and whose [end](Self::end) was told.
    pub(crate) fn walk_behind(&self, node: u32, text: &[u8], found: impl FnMut(u32)) {
        if let Some((child, others)) = self.child(node, text) {
            self.walk_on(child, others, found);
        }
    }

    /// The string that ends at a node, or [`NONE`].
    pub(crate) fn end(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(NONE, |node| node.end)
    }

    /// The child that the first byte of a text leads to, and the text behind it.
    #[inline]
    fn child<'t>(&self, node: u32, text: &'t [u8]) -> Option<(u32, &'t [u8])> {
        let [Node { children, leads, .. }, behind, ..] = self.nodes.get(node as usize..)? else {
            return None;
        };
        let (byte, others) = text.split_first()?;
        if leads & bit(*byte) == 0 {
            return None;
        }
        let labels = &self.bytes[*children as usize..behind.children as usize];
        let child = labels.iter().position(|label| label == byte)?;
        Some((children + child as u32, others))
    }

    /// The node behind a first word and its blank.
    pub(crate) fn behind_word(&self, word: &[u8]) -> Option<u32> {
        let (first, mut text) = word.split_first()?;
        let mut node = self.starts[usize::from(*first)];
        loop {
            let [Node { rest, .. }, behind, ..] = self.nodes.get(node as usize..)? else { return None };
            text = text.strip_prefix(&self.rests[*rest as usize..behind.rest as usize])?;
            if text.is_empty() {
                return Some(node);
            }
            (node, text) = self.child(node, text)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Some that share a bit, and some that do not.
    fn bytes() -> impl Strategy<Value = u8> {
        prop::sample::select(vec![0, 1, 2, 32, 33, 160])
    }

    proptest! {
        #[test]
        fn a_walk_finds_every_string_that_a_text_begins_with(
            strings in prop::collection::btree_set(prop::collection::vec(bytes(), 1..7), 0..40),
            text in prop::collection::vec(bytes(), 0..12),
        ) {
            let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            let mut found = Vec::new();
            Trie::new(&strings).walk(&text, |index| found.push(strings[index as usize]));
            let mut expected: Vec<&[u8]> =
                strings.iter().copied().filter(|string| text.starts_with(string)).collect();
            expected.sort_by_key(|string| string.len());
            prop_assert_eq!(found, expected);
        }
    }
}
