//! A trie of byte strings, kept flat: children of a node stand side by side, so that a node costs nine bytes.
//!
//! Built by `matching.rs` at start; a walk reads bytes until no string goes on.

/// No string ends here.
const NONE: u32 = u32::MAX;

/// The strings, numbered in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Trie {
    /// The byte that leads to each node; the root's is never read.
    bytes: Vec<u8>,
    /// The first child of each node, and one entry more: the children end where the next node's begin.
    children: Vec<u32>,
    /// The string that ends at each node, or [`NONE`].
    ends: Vec<u32>,
}

impl Trie {
    /// Builds the trie of strings that are sorted and all different.
    pub(crate) fn new(strings: &[&[u8]]) -> Self {
        let mut trie = Self { bytes: vec![0], children: Vec::new(), ends: Vec::new() };
        // The strings that pass through each node of a level, level by level.
        let mut level: Vec<_> = std::iter::once(0..strings.len()).collect();
        let mut depth = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for mut passing in level {
                trie.children.push(trie.bytes.len() as u32);
                // Sorted, so the string that ends here comes first.
                let ends = strings.get(passing.start).is_some_and(|string| string.len() == depth);
                trie.ends.push(if ends { passing.start as u32 } else { NONE });
                passing.start += usize::from(ends);
                while !passing.is_empty() {
                    let byte = strings[passing.start][depth];
                    let rest = &strings[passing.clone()];
                    let count = rest.partition_point(|string| string[depth] == byte);
                    trie.bytes.push(byte);
                    next.push(passing.start..passing.start + count);
                    passing.start += count;
                }
            }
            level = next;
            depth += 1;
        }
        trie.children.push(trie.bytes.len() as u32);
        trie
    }

    /// Calls `found` with every string that `text` begins with, the shortest first.
    pub(crate) fn walk(&self, text: &[u8], mut found: impl FnMut(u32)) {
        let mut node = 0;
        for byte in text {
            let (first, end) = (self.children[node] as usize, self.children[node + 1] as usize);
            let Some(child) = self.bytes[first..end].iter().position(|label| label == byte) else { return };
            node = first + child;
            if self.ends[node] != NONE {
                found(self.ends[node]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_walk_finds_every_string_that_a_text_begins_with(
            strings in prop::collection::btree_set(prop::collection::vec(0_u8..4, 1..7), 0..40),
            text in prop::collection::vec(0_u8..4, 0..12),
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
