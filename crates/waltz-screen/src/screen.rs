//! The screen: pattern families compiled for reading, the linear judge beside them, and the reading of
//! one text.
//!
//! Built at start and at reload of the rules, then shared; [`Screen::read`] is called by the judge
//! for every text, on the caller's thread.

use regex::RegexSet;
use waltz_exchange::{Category, Span};

use crate::error::Error;
use crate::family::{Family, FamilyInfo, Term};
use crate::finding::{Finding, Kind, Reading, Side};
use crate::linear::{LinearJudge, Text};
use crate::matching::{Hits, ListId, Lists, Matcher};
use crate::normalise::{Normalised, boundary_before, normalise};
use crate::patterns;
use crate::pii::{PiiFinding, find_pii};
use crate::proximity::{MAX_PLACES, Window, windows};
use crate::refusal::{self, Phrase};
use crate::rules::Rules;
use crate::words::{self, Words};

/// Longer texts are read in pieces of this many bytes, so that offsets inside a piece fit 32 bits.
const PIECE_BYTES: usize = 1 << 28;
/// What is left of the severity of a finding when the text around it softens it.
const SOFTENED: f32 = 0.5;

/// Compiled pattern families; immutable, to be shared in an `Arc`.
#[derive(Debug)]
pub struct Screen {
    infos: Vec<FamilyInfo>,
    families: Vec<Compiled>,
    phrases: Vec<Phrase>,
    matcher: Matcher,
    /// The expressions of families that have no terms, and the families they belong to.
    expressions: RegexSet,
    expression_families: Vec<usize>,
    linear: LinearJudge,
}

/// A family as it is evaluated.
#[derive(Debug)]
pub(crate) struct Compiled {
    all: Vec<ListId>,
    within: u32,
    ordered: bool,
    regex: Option<regex::Regex>,
    unless: Vec<ListId>,
    softened_by: Vec<ListId>,
}

impl Screen {
    /// The built-in families alone.
    pub fn builtin() -> Result<Self, Error> {
        Self::compile(&[])
    }

    /// The built-in families and an operator's rules.
    pub fn with_rules(rules: &Rules) -> Result<Self, Error> {
        Self::compile(&rules.families)
    }

    /// Every family, in the order of the pattern files, operators' rules last.
    pub fn families(&self) -> &[FamilyInfo] {
        &self.infos
    }

    /// Level 1, which reads what the families read.
    pub fn linear(&self) -> &LinearJudge {
        &self.linear
    }

    /// Reads one text.
    pub fn read(&self, text: &str, side: Side) -> Reading {
        if text.len() <= PIECE_BYTES {
            return self.read_piece(text, side).0;
        }
        let mut whole = Reading::default();
        let mut start = 0;
        while start < text.len() {
            let end = boundary_before(text, start + PIECE_BYTES);
            let (piece, _) = self.read_piece(&text[start..end], side);
            whole.refusal = if start == 0 { piece.refusal } else { whole.refusal };
            whole.disguised |= piece.disguised;
            whole.findings.extend(piece.findings.into_iter().map(|finding| Finding {
                span: Span { start: finding.span.start + start, end: finding.span.end + start },
                ..finding
            }));
            start = end;
        }
        whole
    }

    /// Reads one text, and returns its words for level 1 beside the reading: they are split once for both levels.
    pub fn read_for_both(&self, text: &str, side: Side) -> (Reading, Text) {
        if !Text::is_read_whole(text) {
            return (self.read(text, side), Text::new(text));
        }
        let (reading, words) = self.read_piece(text, side);
        (reading, Text::of(words))
    }

    fn compile(rules: &[Family]) -> Result<Self, Error> {
        let mut families = patterns::finding_families()?;
        families.extend_from_slice(rules);
        let mut lists = Lists::default();
        let phrases = patterns::refusal_families()?
            .iter()
            .map(|family| Phrase { weight: family.info.severity, family: compiled(family, &mut lists) })
            .collect();
        let compiled: Vec<Compiled> = families.iter().map(|family| compiled(family, &mut lists)).collect();
        let mut patterns = Vec::new();
        let mut expression_families = Vec::new();
        for (index, family) in compiled.iter().enumerate() {
            if let (true, Some(regex)) = (family.all.is_empty(), &family.regex) {
                patterns.push(regex.as_str());
                expression_families.push(index);
            }
        }
        let expressions = regex::RegexSetBuilder::new(patterns)
            .case_insensitive(true)
            .size_limit(256 << 20)
            .build()
            .map_err(|error| Error::Expressions(Box::new(error)))?;
        let matcher = lists.compile();
        let infos = families.into_iter().map(|family| family.info).collect();
        let linear = LinearJudge::builtin()?;
        Ok(Self { infos, families: compiled, phrases, matcher, expressions, expression_families, linear })
    }

    /// The reading, and the view in which level 1 reads the text: the first other spelling, if there is one.
    fn read_piece(&self, text: &str, side: Side) -> (Reading, Words) {
        let normalised = normalise(text);
        let view = words::plain(&normalised);
        let mut found = Found { seen: vec![false; self.families.len()], ..Found::default() };
        let odd = view.odd;
        let hits = self.scan(&view, &found.seen, odd);
        let refusal = refusal::score(&self.phrases, &view, &hits);
        let mut views = vec![(view, hits)];
        self.read_view(&normalised, &views, side, &mut found);
        if odd {
            for respelt in words::respelt(&normalised, &views[0].0) {
                let respelt_hits = self.scan(&respelt, &found.seen, odd);
                views.push((respelt, respelt_hits));
                self.read_view(&normalised, &views, side, &mut found);
            }
        }
        self.read_expressions(&normalised, side, &mut found);
        let mut findings = found.findings;
        findings.extend(find_pii(text).iter().map(|pii| personal(pii, side)));
        findings.sort_by(|left, right| {
            right.severity.total_cmp(&left.severity).then(left.span.start.cmp(&right.span.start))
        });
        views.truncate(2);
        let words = views.pop().map(|(view, _)| view).unwrap_or_default();
        (Reading { findings, refusal, disguised: normalised.disguised }, words)
    }

    /// The hits of the families that are not yet found and whose groups all occur, and of their exceptions; of all
    /// exceptions where the text is odd, because then they count in every view.
    fn scan(&self, view: &Words, seen: &[bool], odd: bool) -> Hits {
        self.matcher.scan(view, |present| {
            let mut needed = vec![false; present.len()];
            let mut any = false;
            let phrases = self.phrases.iter().map(|phrase| &phrase.family);
            let done = seen.iter().copied().chain(std::iter::repeat(false));
            for (family, done) in self.families.iter().chain(phrases).zip(done) {
                let wanted =
                    !done && !family.all.is_empty() && family.all.iter().all(|list| present[*list as usize]);
                if wanted {
                    family.all.iter().for_each(|list| needed[*list as usize] = true);
                }
                if wanted || odd {
                    let exceptions = family.unless.iter().chain(&family.softened_by);
                    exceptions.for_each(|list| needed[*list as usize] = true);
                    any = true;
                }
            }
            any.then_some(needed)
        })
    }

    /// Evaluates the families with terms on the last of the views. A family that an earlier view found
    /// is done. Exceptions count in whichever view they can be read.
    fn read_view(&self, text: &Normalised<'_>, views: &[(Words, Hits)], side: Side, found: &mut Found) {
        let Some((view, hits)) = views.last().filter(|(_, hits)| !hits.is_empty()) else { return };
        for (index, family) in self.families.iter().enumerate() {
            let info = &self.infos[index];
            if family.all.is_empty() || found.seen[index] || info.side.is_some_and(|only| only != side) {
                continue;
            }
            let keep =
                |window| !views.iter().any(|(words, hits)| family.is_excepted(window, view, words, hits));
            for window in family.windows(view, hits, keep) {
                let softened = views.iter().any(|(_, hits)| family.is_softened(hits));
                let severity = if softened { info.severity * SOFTENED } else { info.severity };
                let Some(span) = family.span(text, view, window) else { continue };
                found.add(index, info, severity, span);
                if family.regex.is_some() {
                    // The expression was sought in the whole text; other windows would find the same.
                    break;
                }
            }
        }
        found.close_view();
    }

    /// Evaluates the families that have an expression only.
    fn read_expressions(&self, text: &Normalised<'_>, side: Side, found: &mut Found) {
        if self.expression_families.is_empty() {
            return;
        }
        for matched in &self.expressions.matches(&text.text) {
            let index = self.expression_families[matched];
            let info = &self.infos[index];
            let Some(regex) = &self.families[index].regex else { continue };
            if info.side.is_some_and(|only| only != side) {
                continue;
            }
            for place in regex.find_iter(&text.text).filter(|place| !place.is_empty()).take(MAX_PLACES) {
                found.add(index, info, info.severity, text.span(place.range()));
            }
        }
    }
}

/// The findings of one text so far.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    /// Families that an earlier view found.
    seen: Vec<bool>,
    /// Families that this view found.
    fresh: Vec<usize>,
}

impl Found {
    fn close_view(&mut self) {
        for index in self.fresh.drain(..) {
            self.seen[index] = true;
        }
    }

    fn add(&mut self, index: usize, info: &FamilyInfo, severity: f32, span: Span) {
        self.fresh.push(index);
        self.findings.push(Finding {
            family: info.id.clone(),
            kind: info.kind,
            category: info.category.clone(),
            severity,
            span,
            description: info.means.clone(),
            blocks: info.blocks,
        });
    }
}

fn compiled(family: &Family, lists: &mut Lists) -> Compiled {
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
        let sentence =
            |words: &Words, word: u32| words.words.get(word as usize).map_or(0, |word| word.sentence);
        let (first, last) = (sentence(view, window.first), sentence(view, window.last));
        self.unless.iter().any(|list| {
            let exceptions = hits.of(*list);
            let after = exceptions.partition_point(|hit| sentence(other, hit.last) < first);
            exceptions.get(after).is_some_and(|hit| sentence(other, hit.first) <= last)
        })
    }

    fn is_softened(&self, hits: &Hits) -> bool {
        self.softened_by.iter().any(|list| !hits.of(*list).is_empty())
    }

    /// The bytes of a window; where the family also has an expression, those that it matches.
    fn span(&self, text: &Normalised<'_>, view: &Words, window: Window) -> Option<Span> {
        if let Some(regex) = &self.regex {
            return regex.find(&text.text).map(|place| text.span(place.range()));
        }
        let first = view.words.get(window.first as usize)?;
        let last = view.words.get(window.last as usize)?;
        Some(text.span(first.start as usize..last.end as usize))
    }
}

/// Personal data as a finding. A secret that a model writes has leaked; one in a prompt is the
/// sender's own risk.
fn personal(pii: &PiiFinding, side: Side) -> Finding {
    let secret = pii.kind.is_secret();
    let severity = match (secret, side) {
        (true, Side::Response) => 0.7,
        (true, Side::Prompt) => 0.4,
        (false, _) => pii.kind.severity(),
    };
    Finding {
        family: pii.kind.family(),
        kind: if secret { Kind::Secret } else { Kind::Pii },
        category: Category::PRIVACY_VIOLATION,
        severity,
        span: pii.span,
        description: pii.kind.description().to_owned(),
        blocks: false,
    }
}

#[cfg(test)]
mod tests;
