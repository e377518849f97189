//! The screen: pattern families compiled for reading, the linear judge beside them, and the reading of
//! one text.
//!
//! Built at start and at reload of the rules, then shared; [`Screen::read`] is called by the judge
//! for every text, on the caller's thread.

mod compiled;

use regex::RegexSet;
use waltz_exchange::{Category, Span};

pub(crate) use self::compiled::Compiled;
use self::compiled::compiled;
use crate::encoded::{self, Budget, Hidden};
use crate::error::Error;
use crate::family::{Family, FamilyInfo};
use crate::finding::{Finding, Kind, Reading, Side};
use crate::linear::{LinearJudge, Text};
use crate::matching::{Hits, Lists, Matcher};
use crate::normalise::{Normalised, boundary_before, normalise};
use crate::patterns;
use crate::pii::{PiiFinding, find_pii};
use crate::proximity::MAX_PLACES;
use crate::refusal::{self, Phrase};
use crate::rules::Rules;
use crate::settings::{DECIDES, SOFT, Settings};
use crate::words::{self, Words};

/// Longer texts are read in pieces of this many bytes, so that offsets inside a piece fit 32 bits.
const PIECE_BYTES: usize = 1 << 28;
/// What is left of the severity of a finding when a word in its sentence softens it.
const SOFTENED: f32 = 0.5;
/// Compiled pattern families; immutable, to be shared in an `Arc`.
#[derive(Debug)]
pub struct Screen {
    infos: Vec<FamilyInfo>,
    pub(crate) families: Vec<Compiled>,
    phrases: Vec<Phrase>,
    pub(crate) matcher: Matcher,
    /// The expressions of families that have no terms, and the families they belong to.
    expressions: RegexSet,
    expression_families: Vec<usize>,
    linear: LinearJudge,
    settings: Settings,
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

    /// The same with an operator's changes.
    #[must_use]
    pub fn with_settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Personal data and secrets of a text, without what the operator allows.
    pub fn find_pii(&self, text: &str) -> Vec<PiiFinding> {
        let mut found = find_pii(text);
        self.settings.retain(text, &mut found);
        found
    }

    /// Whether a family takes no exception, so that only its own switch turns it down.
    fn is_firm(&self, family: &str) -> bool {
        let place = self.infos.iter().position(|info| info.id == family && info.certain);
        place.is_some_and(|place| self.families[place].unless.is_empty())
    }

    /// Every family, in the order of the pattern files, operators' rules last.
    pub fn families(&self) -> &[FamilyInfo] {
        &self.infos
    }

    /// Level 1, which reads what the families read.
    pub fn linear(&self) -> &LinearJudge {
        &self.linear
    }

    /// Reads one text, and what is hidden in it behind an encoding.
    pub fn read(&self, text: &str, side: Side) -> Reading {
        if text.len() <= PIECE_BYTES {
            return self.read_whole(text, side).0;
        }
        let mut whole = Reading::default();
        let mut start = 0;
        while start < text.len() {
            let end = boundary_before(text, start + PIECE_BYTES);
            let (piece, _) = self.read_whole(&text[start..end], side);
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
        let (reading, words) = self.read_whole(text, side);
        (reading, Text::of(words))
    }

    /// The reading of a text and of all that is hidden in it, and the words of both for level 1.
    fn read_whole(&self, text: &str, side: Side) -> (Reading, Words) {
        let mut budget = Budget::default();
        let (mut reading, mut words, mut hidden) = self.read_piece(text, side, &mut budget);
        if hidden.is_empty() {
            self.settings.apply(text, &mut reading.findings, |family| self.is_firm(family));
            return (reading, words);
        }
        // What is encoded may be encoded once more.
        for depth in 0..=1 {
            let mut further = Vec::new();
            for Hidden { text, span, is_prose } in hidden {
                let (seen, said, inside) = self.read_piece(&text, side, &mut budget);
                let before = reading.findings.len();
                reading
                    .findings
                    .extend(seen.findings.into_iter().filter_map(|finding| behind(finding, span)));
                reading.disguised |= is_prose || reading.findings.len() > before;
                if is_prose {
                    words.append(said);
                }
                further.extend(inside.into_iter().map(|inner| Hidden { span, ..inner }));
            }
            hidden = if depth == 0 { further } else { Vec::new() };
        }
        self.settings.apply(text, &mut reading.findings, |family| self.is_firm(family));
        by_severity(&mut reading.findings);
        (reading, words)
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
        Ok(Self {
            infos,
            families: compiled,
            phrases,
            matcher,
            expressions,
            expression_families,
            linear,
            settings: Settings::default(),
        })
    }

    /// The reading of what stands in a text, the view in which level 1 reads it (the first other spelling, if there is
    /// one), and the texts that are hidden in it.
    fn read_piece(&self, text: &str, side: Side, budget: &mut Budget) -> (Reading, Words, Vec<Hidden>) {
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
        found.close_exceptions(&self.infos);
        self.read_expressions(&normalised, side, &mut found);
        let mut findings = found.findings;
        findings.extend(find_pii(text).iter().map(|pii| personal(pii, side)));
        by_severity(&mut findings);
        views.truncate(2);
        let words = views.pop().map(|(view, _)| view).unwrap_or_default();
        let hidden = encoded::decoded(&normalised, budget);
        (Reading { findings, refusal, disguised: normalised.disguised }, words, hidden)
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
            let places = family.windows(view, hits, keep);
            if places.is_empty() && !family.unless.is_empty() && info.kind != Kind::Rule {
                // An operator's own exceptions are his word; of ours, another view may show a place without one.
                let place = family.windows(view, hits, |_| true).into_iter().next();
                let span = place.and_then(|window| family.span(text, view, window));
                found.excepted.extend(span.map(|span| (index, span)));
            }
            for window in places {
                let softened =
                    views.iter().any(|(words, hits)| family.is_softened(window, view, words, hits));
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
    /// Families that a view found beside exceptions only, and where.
    excepted: Vec<(usize, Span)>,
}

impl Found {
    /// Adds what no view found without an exception.
    fn close_exceptions(&mut self, infos: &[FamilyInfo]) {
        for (index, span) in std::mem::take(&mut self.excepted) {
            if !self.seen[index] {
                self.add(index, &infos[index], excepted(&infos[index]), span);
                self.close_view();
            }
        }
    }

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

/// The most severe first, then as they stand in the text.
fn by_severity(findings: &mut [Finding]) {
    findings.sort_by(|left, right| {
        right.severity.total_cmp(&left.severity).then(left.span.start.cmp(&right.span.start))
    });
}

/// A finding in a text that is hidden at a place. Personal data is sought in the text as it is written.
fn behind(finding: Finding, span: Span) -> Option<Finding> {
    let description = format!("{}, behind an encoding", finding.description);
    let is_data = matches!(finding.kind, Kind::Pii | Kind::Secret);
    (!is_data).then_some(Finding { span, description, ..finding })
}

/// The severity of a finding beside an exception. Words such as "for research" cost a writer nothing, so that they make
/// nothing unseen, and what is certain still decides.
fn excepted(info: &FamilyInfo) -> f32 {
    info.severity.min(if info.certain { DECIDES } else { SOFT })
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
