//! Numbers that authorities issue. Their check digits are few, so that most are only known by what they
//! are called; those with a form of their own are known by it.

use std::cell::OnceCell;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding, is_apart, is_called, is_word, matches};
use super::{PiiFinding, PiiKind, cards, checks};

static RUN: LazyLock<Option<Regex>> = LazyLock::new(|| compile(r"(?-u)[0-9](?:[ -]?[0-9])*"));

/// How a number is written, checked and called.
struct Issued {
    kind: PiiKind,
    /// Digits of the groups it is written in.
    shapes: &'static [&'static [usize]],
    check: fn(&[u8]) -> bool,
    names: &'static [&'static str],
    /// The first shape with hyphens is that of nothing else.
    telling: bool,
}

const ISSUED: [Issued; 7] = [
    Issued {
        kind: PiiKind::Ssn,
        shapes: &[&[3, 2, 4], &[9]],
        check: checks::is_ssn,
        names: &["ssn", "social security"],
        telling: true,
    },
    Issued {
        kind: PiiKind::Itin,
        shapes: &[&[3, 2, 4], &[9]],
        check: checks::is_itin,
        names: &["itin", "taxpayer", "tax id"],
        telling: true,
    },
    Issued {
        kind: PiiKind::Routing,
        shapes: &[&[9], &[4, 4, 1], &[3, 3, 3]],
        check: checks::is_routing,
        names: &["aba", "routing", "rtn", "transit"],
        telling: false,
    },
    Issued {
        kind: PiiKind::Nhs,
        shapes: &[&[3, 3, 4], &[10]],
        check: checks::is_nhs,
        names: &["nhs", "national health", "health service"],
        telling: false,
    },
    Issued {
        kind: PiiKind::Npi,
        shapes: &[&[10]],
        check: checks::is_npi,
        names: &["npi", "national provider", "provider"],
        telling: false,
    },
    Issued {
        kind: PiiKind::Aadhaar,
        shapes: &[&[4, 4, 4], &[12]],
        check: checks::is_aadhaar,
        names: &["aadhaar", "aadhar", "adhaar", "uidai", "uid"],
        telling: false,
    },
    Issued {
        kind: PiiKind::Imei,
        shapes: &[&[15], &[2, 6, 6, 1], &[6, 2, 6, 1], &[8, 6, 1]],
        check: checks::is_imei,
        names: &["imei", "handset", "device"],
        telling: false,
    },
];

/// The names of all kinds, and the kinds that they belong to.
static NAMES: LazyLock<Option<(AhoCorasick, Vec<PiiKind>)>> = LazyLock::new(|| {
    let issued = ISSUED.iter().flat_map(|issued| issued.names.iter().map(|name| (*name, issued.kind)));
    let cards = cards::NAMES.iter().map(|name| (*name, PiiKind::Card));
    let (names, kinds): (Vec<&str>, Vec<PiiKind>) = issued.chain(cards).unzip();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(names).ok()?;
    Some((automaton, kinds))
});

/// The kinds of numbers that a text speaks of. Read once, and only when a number asks for it.
pub(super) struct Spoken<'a> {
    /// The text.
    pub(super) text: &'a str,
    kinds: OnceCell<Vec<PiiKind>>,
}

impl<'a> Spoken<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, kinds: OnceCell::new() }
    }

    pub(super) fn of(&self, kind: PiiKind) -> bool {
        self.kinds.get_or_init(|| self.read()).contains(&kind)
    }

    fn read(&self) -> Vec<PiiKind> {
        let Some((automaton, kinds)) = NAMES.as_ref() else { return Vec::new() };
        let mut spoken: Vec<PiiKind> = Vec::new();
        for matched in automaton.find_overlapping_iter(self.text) {
            let kind = kinds[matched.pattern().as_usize()];
            if !spoken.contains(&kind) && is_word(self.text.as_bytes(), matched.start(), matched.end()) {
                spoken.push(kind);
            }
        }
        spoken
    }
}

/// Adds cards and issued numbers: both are groups of digits, which are taken apart once.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    let mut groups = Vec::new();
    let spoken = Spoken::new(text);
    for run in matches(&RUN, text) {
        if run.end - run.start < 9 {
            continue;
        }
        take_apart(text, run, &mut groups);
        cards::find(&spoken, run, &groups, found);
        for at in 0..groups.len() {
            find_issued(&spoken, &groups[at..], found);
        }
    }
}

fn take_apart(text: &str, run: Span, groups: &mut Vec<Span>) {
    groups.clear();
    let mut start = run.start;
    for group in text[run.start..run.end].split([' ', '-']) {
        groups.push(Span { start, end: start + group.len() });
        start += group.len() + 1;
    }
}

/// Adds the issued number that begins with a group, if there is one.
fn find_issued(spoken: &Spoken<'_>, rest: &[Span], found: &mut Vec<PiiFinding>) {
    let text = spoken.text;
    for issued in &ISSUED {
        for shape in issued.shapes {
            let fits = shape.len() <= rest.len()
                && shape.iter().zip(rest).all(|(size, group)| group.end - group.start == *size);
            let telling = issued.telling && shape.len() > 1;
            if !fits || !(telling || spoken.of(issued.kind)) {
                continue;
            }
            let span = Span { start: rest[0].start, end: rest[shape.len() - 1].end };
            if !is_bordered(text, span) || !(issued.check)(&digits(text, span)) {
                continue;
            }
            let hyphens = text[span.start..span.end].bytes().filter(|byte| *byte == b'-').count();
            let score = if is_called(text, span, issued.names) {
                0.97
            } else if telling && hyphens == shape.len() - 1 {
                0.9
            } else if telling && hyphens == 0 && is_apart(text, span) {
                0.6
            } else {
                continue;
            };
            found.push(finding(issued.kind, span, score));
        }
    }
}

/// Whether neither end of the place goes on: with a letter, a digit or a hyphen, or as a fraction or a path.
fn is_bordered(text: &str, span: Span) -> bool {
    let bytes = text.as_bytes();
    let at = |index: Option<usize>| index.and_then(|index| bytes.get(index)).copied();
    let goes_on = |next: Option<u8>, second: Option<u8>| {
        next.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            || next.is_some_and(|byte| matches!(byte, b'.' | b'/'))
                && second.is_some_and(|byte| byte.is_ascii_digit())
    };
    !goes_on(at(span.start.checked_sub(1)), at(span.start.checked_sub(2)))
        && !goes_on(at(Some(span.end)), at(Some(span.end + 1)))
}

/// The values of the digits of a place.
pub(super) fn digits(text: &str, span: Span) -> Vec<u8> {
    text[span.start..span.end].bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect()
}
