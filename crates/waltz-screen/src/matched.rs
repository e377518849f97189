//! Why a family matches a text: the words that stand for its terms. For those who write patterns and measure them;
//! nothing on the way of a request calls it.

use std::collections::BTreeSet;

use crate::finding::Side;
use crate::matching::Hits;
use crate::normalise::normalise;
use crate::screen::Screen;
use crate::words::{self, Words};

/// A family whose terms stand together in a text as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Matched {
    /// The id of the family.
    pub family: String,
    /// The words that stand for the terms, group by group, each once.
    pub groups: Vec<BTreeSet<String>>,
    /// Whether each place of it has an exception beside it.
    pub is_excepted: bool,
    /// The words of its exceptions, wherever they stand in the text.
    pub exceptions: BTreeSet<String>,
}

impl Screen {
    /// Which families match a text as it is written, and by which words.
    pub fn matched(&self, text: &str, side: Side) -> Vec<Matched> {
        let normalised = normalise(text);
        let view = words::plain(&normalised);
        let hits = self.matcher.scan(&view, |present| Some(vec![true; present.len()]));
        let families = self
            .families()
            .iter()
            .zip(&self.families)
            .filter(|(info, _)| info.side.is_none_or(|only| only == side));
        families
            .filter_map(|(info, family)| {
                let places = family.windows(&view, &hits, |_| true);
                if places.is_empty() {
                    return None;
                }
                let groups = family.all.iter().map(|list| said(&view, &hits, *list)).collect();
                let exceptions = family.unless.iter().flat_map(|list| said(&view, &hits, *list)).collect();
                let is_excepted = places.iter().all(|place| family.is_excepted(*place, &view, &view, &hits));
                Some(Matched { family: info.id.clone(), groups, is_excepted, exceptions })
            })
            .collect()
    }
}

/// The words that stand for the terms of a list.
fn said(view: &Words, hits: &Hits, list: u32) -> BTreeSet<String> {
    let of = |first: u32, last: u32| {
        let end = view.words.get(last as usize + 1).map_or(view.text.len(), |next| next.at as usize);
        let start = view.words.get(first as usize).map_or(end, |word| word.at as usize);
        String::from_utf8_lossy(&view.text[start..end]).trim().to_owned()
    };
    hits.of(list).iter().map(|hit| of(hit.first, hit.last)).collect()
}
