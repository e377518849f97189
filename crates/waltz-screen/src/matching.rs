//! One walk over a view finds the terms of every family at once.
//!
//! Terms belong to lists, and families are made of lists: equal lists are kept once, however many
//! families use them. Compiled by `screen.rs` at start; scanning allocates only for what it finds.

use std::collections::HashMap;

use crate::family::Term;
use crate::trie::Trie;
use crate::words::Words;

/// A list of terms, by number.
pub(crate) type ListId = u32;

/// Collects lists before they are compiled.
#[derive(Default)]
pub(crate) struct Lists {
    known: HashMap<Vec<Term>, ListId>,
    terms: HashMap<String, Vec<ListId>>,
}

impl Lists {
    /// The number of a list; an equal list has the same number. Terms must be sorted.
    pub(crate) fn add(&mut self, terms: &[Term]) -> ListId {
        if let Some(known) = self.known.get(terms) {
            return *known;
        }
        let id = self.known.len() as ListId;
        self.known.insert(terms.to_vec(), id);
        for Term(view) in terms {
            self.terms.entry(view.clone()).or_default().push(id);
        }
        id
    }

    /// How many lists the most used term belongs to.
    #[cfg(test)]
    pub(crate) fn most_lists_of_a_term(&self) -> usize {
        self.terms.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Compiles all lists.
    pub(crate) fn compile(self) -> Matcher {
        let mut entries: Vec<(String, Vec<ListId>)> = self.terms.into_iter().collect();
        entries.sort();
        let trie = Trie::new(&entries.iter().map(|(view, _)| view.as_bytes()).collect::<Vec<_>>());
        let terms = entries
            .into_iter()
            .map(|(view, lists)| CompiledTerm {
                words: view.split_ascii_whitespace().count() as u32,
                lists: lists.into_boxed_slice(),
            })
            .collect();
        Matcher { trie, terms, lists: self.known.len() }
    }
}

/// The compiled terms.
#[derive(Debug)]
pub(crate) struct Matcher {
    trie: Trie,
    terms: Vec<CompiledTerm>,
    lists: usize,
}

#[derive(Debug)]
struct CompiledTerm {
    words: u32,
    lists: Box<[ListId]>,
}

/// Where a term of a list stands, by index of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// The hits of the needed lists in a view, grouped by list, each group ordered by the last word.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    ends: Vec<u32>,
    hits: Vec<Hit>,
}

impl Hits {
    /// The hits of one list.
    pub(crate) fn of(&self, list: ListId) -> &[Hit] {
        let list = list as usize;
        let start = if list == 0 { 0 } else { self.ends.get(list - 1).copied().unwrap_or(0) };
        let end = self.ends.get(list).copied().unwrap_or(0);
        self.hits.get(start as usize..end as usize).unwrap_or_default()
    }
}

impl Matcher {
    /// Finds the terms of a view. `needed` is told which lists occur at all and says whose hits are
    /// wanted: most texts have terms of many families and all groups of none.
    pub(crate) fn scan(&self, view: &Words, needed: impl FnOnce(&[bool]) -> Vec<bool>) -> Hits {
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut seen = vec![false; self.terms.len()];
        let mut present = vec![false; self.lists];
        // Every term begins with the blank before a word, so nothing else needs to be tried.
        for (first, word) in view.words.iter().enumerate() {
            self.trie.walk(&view.text.as_bytes()[word.at as usize - 1..], |index| {
                let term = &self.terms[index as usize];
                found.push((index, first as u32 + term.words - 1));
                if !std::mem::replace(&mut seen[index as usize], true) {
                    term.lists.iter().for_each(|list| present[*list as usize] = true);
                }
            });
        }
        if found.is_empty() {
            return Hits::default();
        }
        // Terms of several words are found where they begin; hits are told in the order of their ends.
        found.sort_by_key(|(_, last)| *last);
        self.group(&found, &needed(&present))
    }

    /// Sorts the hits of the needed lists by list, keeping their order.
    fn group(&self, found: &[(u32, u32)], needed: &[bool]) -> Hits {
        let lists_of = |term: u32| {
            let lists = &self.terms[term as usize].lists;
            lists.iter().map(|list| *list as usize).filter(|list| needed[*list])
        };
        let mut next = vec![0_u32; self.lists];
        for (term, _) in found {
            lists_of(*term).for_each(|list| next[list] += 1);
        }
        let mut total = 0;
        for count in &mut next {
            total += std::mem::replace(count, total);
        }
        let mut hits = vec![Hit { first: 0, last: 0 }; total as usize];
        for (term, last) in found {
            let first = (last + 1).saturating_sub(self.terms[*term as usize].words);
            for list in lists_of(*term) {
                hits[next[list] as usize] = Hit { first, last: *last };
                next[list] += 1;
            }
        }
        Hits { ends: next, hits }
    }
}
