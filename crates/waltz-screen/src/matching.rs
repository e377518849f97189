//! One Aho-Corasick pass over a view finds the terms of every family at once.
//!
//! Terms belong to lists, and families are made of lists: equal lists are kept once, however many
//! families use them. Compiled by `screen.rs` at start; scanning allocates only for what it finds.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::error::Error;
use crate::family::Term;
use crate::words::Words;

/// Above this many terms the automaton is kept small instead of as fast as possible.
const LARGE: usize = 6_000;

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

    /// Compiles all lists into one automaton.
    pub(crate) fn compile(self) -> Result<Matcher, Error> {
        let mut entries: Vec<(String, Vec<ListId>)> = self.terms.into_iter().collect();
        entries.sort();
        let kind = if entries.len() > LARGE { AhoCorasickKind::ContiguousNFA } else { AhoCorasickKind::DFA };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(kind))
            .build(entries.iter().map(|(view, _)| view.as_bytes()))
            .map_err(|error| Error::Terms(Box::new(error)))?;
        let terms = entries
            .into_iter()
            .map(|(view, lists)| CompiledTerm {
                words: view.split_ascii_whitespace().count() as u32,
                whole: view.ends_with(' '),
                lists: lists.into_boxed_slice(),
            })
            .collect();
        Ok(Matcher { automaton, terms, lists: self.known.len() })
    }
}

/// The compiled terms.
#[derive(Debug)]
pub(crate) struct Matcher {
    automaton: AhoCorasick,
    terms: Vec<CompiledTerm>,
    lists: usize,
}

#[derive(Debug)]
struct CompiledTerm {
    words: u32,
    whole: bool,
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
        let mut word = 0;
        for matched in self.automaton.find_overlapping_iter(view.text.as_bytes()) {
            let index = matched.pattern().as_usize();
            let term = &self.terms[index];
            // Matches come in the order of their ends, so the word is found by walking on.
            let inside = (matched.end() - 1 - usize::from(term.whole)) as u32;
            while view.words.get(word + 1).is_some_and(|next| next.at <= inside) {
                word += 1;
            }
            found.push((index as u32, word as u32));
            if !seen[index] {
                seen[index] = true;
                term.lists.iter().for_each(|list| present[*list as usize] = true);
            }
        }
        if found.is_empty() {
            return Hits::default();
        }
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
