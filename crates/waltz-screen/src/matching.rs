//! One walk over a view finds the terms of every family at once.
//!
//! Terms belong to lists, and families are made of lists: equal lists are kept once, however many
//! families use them. Compiled by `screen.rs` at start; scanning allocates only for what it finds.

use std::collections::HashMap;

use crate::family::Term;
use crate::starts::Starts;
use crate::words::Words;

/// A list of terms, by number.
pub(crate) type ListId = u32;

/// Collects lists before they are compiled.
#[derive(Default)]
pub(crate) struct Lists {
    known: HashMap<Vec<Term>, ListId>,
    terms: HashMap<Vec<u8>, Vec<ListId>>,
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
        let mut entries: Vec<(Vec<u8>, Vec<ListId>)> = self.terms.into_iter().collect();
        entries.sort();
        // Every term begins with the blank before a word, which no walk needs to read.
        let strings: Vec<&[u8]> = entries.iter().map(|(view, _)| view.get(1..).unwrap_or_default()).collect();
        let starts = Starts::new(&strings);
        let mut matcher =
            Matcher { starts, terms: Vec::new(), lists_of_terms: Vec::new(), lists: self.known.len() };
        for (view, lists) in entries {
            let words = view.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count() as u32;
            matcher.terms.push(CompiledTerm { words, lists: matcher.lists_of_terms.len() as u32 });
            matcher.lists_of_terms.extend(lists);
        }
        let end = matcher.lists_of_terms.len() as u32;
        matcher.terms.push(CompiledTerm { words: 0, lists: end });
        matcher
    }
}

/// The compiled terms.
#[derive(Debug)]
pub(crate) struct Matcher {
    starts: Starts,
    /// The terms, and one more, at which the lists of the last one end.
    terms: Vec<CompiledTerm>,
    /// The lists that each term belongs to, term by term.
    lists_of_terms: Vec<ListId>,
    lists: usize,
}

#[derive(Debug)]
struct CompiledTerm {
    words: u32,
    /// Where its lists begin; they end where the next term's begin.
    lists: u32,
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
    /// Whether there are none of any list.
    pub(crate) fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

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
    /// wanted, if any are: most texts have terms of many families and all groups of none.
    pub(crate) fn scan(&self, view: &Words, needed: impl FnOnce(&[bool]) -> Option<Vec<bool>>) -> Hits {
        // Terms, and the words that they begin with: every fourth word or so.
        let mut found: Vec<(u32, u32)> = Vec::with_capacity(view.words.len() / 3);
        let mut seen = vec![0_u64; self.terms.len().div_ceil(64)];
        let mut present = vec![false; self.lists];
        self.starts.find(view, |index, first| {
            found.push((index, first));
            let (place, bit) = (index as usize / 64, 1 << (index % 64));
            if seen[place] & bit == 0 {
                seen[place] |= bit;
                self.lists_of(index).iter().for_each(|list| present[*list as usize] = true);
            }
        });
        let Some(needed) = needed(&present) else { return Hits::default() };
        // Terms of several words are found where they begin; hits are told in the order of their ends.
        found.iter_mut().for_each(|(term, place)| *place += self.terms[*term as usize].words - 1);
        found.sort_by_key(|(_, last)| *last);
        self.group(&found, &needed)
    }

    /// The lists of a term.
    fn lists_of(&self, term: u32) -> &[ListId] {
        let (start, end) = (self.terms[term as usize].lists, self.terms[term as usize + 1].lists);
        &self.lists_of_terms[start as usize..end as usize]
    }

    /// Sorts the hits of the needed lists by list, keeping their order.
    fn group(&self, found: &[(u32, u32)], needed: &[bool]) -> Hits {
        let lists_of =
            |term: u32| self.lists_of(term).iter().map(|list| *list as usize).filter(|list| needed[*list]);
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
