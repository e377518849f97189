//! A pattern family as it is evaluated: where its terms stand together, and what stands beside them.

use waltz_exchange::Span;

use crate::family::{Family, Term};
use crate::matching::{Hits, ListId, Lists};
use crate::normalise::Normalised;
use crate::proximity::{Window, windows};
use crate::words::Words;

/// A family as it is evaluated.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) all: Vec<ListId>,
    within: u32,
    ordered: bool,
    pub(super) regex: Option<regex::Regex>,
    pub(crate) unless: Vec<ListId>,
    pub(super) softened_by: Vec<ListId>,
}

pub(super) fn compiled(family: &Family, lists: &mut Lists) -> Compiled {
    let mut add = |groups: &[Vec<Term>]| groups.iter().map(|terms| lists.add(terms)).collect();
    Compiled {
        all: add(&family.all),
        within: family.within,
        ordered: family.ordered,
        regex: family.regex.clone(),
        unless: add(&family.unless),
        softened_by: add(&family.softened_by),
    }
}

impl Compiled {
    /// Where the terms of the family stand together, as far as `keep` accepts the place.
    pub(crate) fn windows(&self, view: &Words, hits: &Hits, keep: impl Fn(Window) -> bool) -> Vec<Window> {
        if self.all.iter().any(|list| hits.of(*list).is_empty()) {
            return Vec::new();
        }
        let groups: Vec<_> = self.all.iter().map(|list| hits.of(*list)).collect();
        windows(&groups, view, self.within, self.ordered, keep)
    }

    /// Whether an exception stands in a sentence of the window. The window belongs to `view`, the
    /// exceptions may come from another view of the same text: sentences are counted alike in all.
    pub(crate) fn is_excepted(&self, window: Window, view: &Words, other: &Words, hits: &Hits) -> bool {
        stands_beside(&self.unless, window, view, other, hits)
    }

    pub(super) fn is_softened(&self, window: Window, view: &Words, other: &Words, hits: &Hits) -> bool {
        stands_beside(&self.softened_by, window, view, other, hits)
    }

    /// The bytes of a window; where the family also has an expression, those that it matches.
    pub(super) fn span(&self, text: &Normalised<'_>, view: &Words, window: Window) -> Option<Span> {
        if let Some(regex) = &self.regex {
            return regex.find(&text.text).map(|place| text.span(place.range()));
        }
        let first = view.words.get(window.first as usize)?;
        let last = view.words.get(window.last as usize)?;
        Some(text.span(first.start as usize..last.end as usize))
    }
}

/// Whether a term of the lists stands in a sentence of the window.
fn stands_beside(lists: &[ListId], window: Window, view: &Words, other: &Words, hits: &Hits) -> bool {
    let sentence = |words: &Words, word: u32| words.words.get(word as usize).map_or(0, |word| word.sentence);
    let (first, last) = (sentence(view, window.first), sentence(view, window.last));
    lists.iter().any(|list| {
        let terms = hits.of(*list);
        let after = terms.partition_point(|hit| sentence(other, hit.last) < first);
        terms.get(after).is_some_and(|hit| sentence(other, hit.first) <= last)
    })
}
