//! Personal data and secrets: where they stand in a text, and the text without them.
//!
//! Called by `screen.rs` for every text and by whoever stores or shows text. Each sort has a cheap
//! sign (an `@`, enough digits, a key's prefix); text without the sign costs one pass. Patterns
//! propose, checksums and rules of issue decide. What documentation prints is nobody's.

mod actions;
mod cards;
mod checks;
mod ibans;
mod keyed;
mod kind;
mod known;
mod network;
mod numbers;
mod patterns;
mod people;
mod phones;
mod vault;
mod view;
mod wallets;

use std::borrow::Cow;

use serde::Serialize;
use waltz_exchange::Span;

use crate::secret;

pub use actions::{Action, Actions};
pub use keyed::HashKey;
pub use kind::PiiKind;
pub(crate) use known::is_stand_in;
pub(crate) use people::{Form, address, is_somebodys, person};
pub use vault::{Around, Restorer, Vault};
pub(crate) use view::{Reads, reads_as};

/// One piece of personal data or one secret.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PiiFinding {
    /// The sort.
    pub kind: PiiKind,
    /// Bytes of the text, on character boundaries.
    pub span: Span,
    /// How sure it is, 0 to 1.
    pub score: f32,
}

/// A text with its personal data and secrets taken out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Masked<'a> {
    /// The text with placeholders such as `[EMAIL]`; the original where nothing was found.
    pub text: Cow<'a, str>,
    /// What was replaced, with its place in the original text.
    pub found: Vec<PiiFinding>,
}

/// Finds personal data and secrets, in order of their place and without overlaps. Digits and signs of
/// other scripts and invisible characters among them hide nothing; places are those of the text as it is.
pub fn find_pii(text: &str) -> Vec<PiiFinding> {
    let Some(view) = view::unfolded(text) else { return find_plain(text) };
    let mut found = find_plain(&view.text);
    for finding in &mut found {
        finding.span = view.original(finding.span);
    }
    found
}

fn find_plain(text: &str) -> Vec<PiiFinding> {
    let mut found = Vec::new();
    patterns::find(text, &mut found);
    secret::find(text, &mut found);
    let mut found = resolve(found);
    found.retain(|finding| !known::is_documented(finding.kind, &text[finding.span.start..finding.span.end]));
    found
}

/// Replaces personal data and secrets by placeholders.
pub fn mask(text: &str) -> Masked<'_> {
    let found = find_pii(text);
    let text = replace(text, &found, |finding, _| Some(Cow::Borrowed(finding.kind.placeholder())));
    Masked { text, found }
}

/// The text with other words in place of findings: `other` is given each finding and its value, in order,
/// and may leave it.
pub fn replace<'t, 'o>(
    text: &'t str,
    found: &[PiiFinding],
    mut other: impl FnMut(&PiiFinding, &'t str) -> Option<Cow<'o, str>>,
) -> Cow<'t, str> {
    let mut replaced: Option<String> = None;
    let mut position = 0;
    for finding in found {
        let Some(value) = text.get(finding.span.start..finding.span.end) else { continue };
        let Some(words) = other(finding, value) else { continue };
        let text_so_far = replaced.get_or_insert_with(|| String::with_capacity(text.len()));
        text_so_far.push_str(&text[position..finding.span.start]);
        text_so_far.push_str(&words);
        position = finding.span.end;
    }
    let Some(mut replaced) = replaced else { return Cow::Borrowed(text) };
    replaced.push_str(&text[position..]);
    Cow::Owned(replaced)
}

/// Where findings overlap, the surer one stays, then the longer one, then the earlier sort.
fn resolve(mut found: Vec<PiiFinding>) -> Vec<PiiFinding> {
    if found.len() < 2 {
        return found;
    }
    found.sort_by(|left, right| {
        let length = |finding: &PiiFinding| finding.span.end - finding.span.start;
        right
            .score
            .total_cmp(&left.score)
            .then(length(right).cmp(&length(left)))
            .then(left.kind.cmp(&right.kind))
            .then(left.span.cmp(&right.span))
    });
    let mut taken = std::collections::BTreeMap::new();
    let mut kept = Vec::new();
    for finding in found {
        let Span { start, end } = finding.span;
        let before = taken.range(..end).next_back().map(|(_, end): (&usize, &usize)| *end);
        if before.is_none_or(|earlier_end| earlier_end <= start) {
            taken.insert(start, end);
            kept.push(finding);
        }
    }
    kept.sort_by_key(|finding: &PiiFinding| finding.span);
    kept
}

#[cfg(test)]
mod tests;
