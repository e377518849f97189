//! A pattern family: the unit of the pattern files and of operators' rules files.
//!
//! Two forms: what is written in TOML (`Written`) and the validated [`Family`] that `screen.rs`
//! compiles. Every mistake of a file is collected before anything is rejected. Runs at start and at
//! reload, never while a text is read.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use waltz_exchange::Category;

use crate::error::RuleMistake;
use crate::finding::{Kind, Side};
use crate::normalise::normalise;
use crate::words;

/// Most groups that one family may join.
pub(crate) const MAX_GROUPS: usize = 6;
/// Most terms that one group may hold after its lists are written out.
const MAX_TERMS: usize = 500;
/// Longest term, in bytes.
const MAX_TERM_BYTES: usize = 100;
/// Farthest apart that the groups of a family may stand, in words.
const MAX_WITHIN: u32 = 200;
/// Largest compiled expression of one rule, in bytes. Nested counted repetitions grow beyond it.
const MAX_EXPRESSION_BYTES: usize = 256 * 1024;

const KEYS: [&str; 12] = [
    "id",
    "category",
    "severity",
    "side",
    "means",
    "all",
    "within",
    "ordered",
    "regex",
    "unless",
    "softened_by",
    "action",
];

/// What a family is called and what it says; for documents, tests and the dashboard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyInfo {
    /// Stable id, e.g. `violence.weapon_making`.
    pub id: String,
    /// What sort of finding it makes.
    pub kind: Kind,
    /// The harm.
    pub category: Category,
    /// How bad it is, 0 to 1.
    pub severity: f32,
    /// The side it reads; `None` means both.
    pub side: Option<Side>,
    /// What it means, in words that are safe to show.
    pub means: String,
    /// The text must not pass.
    pub blocks: bool,
}

/// A validated family whose terms are normalised and whose lists are written out.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) info: FamilyInfo,
    pub(crate) all: Vec<Vec<Term>>,
    pub(crate) within: u32,
    pub(crate) ordered: bool,
    pub(crate) regex: Option<Regex>,
    /// Exceptions, one entry for each named list and one for the family's own terms, so that families
    /// share the lists.
    pub(crate) unless: Vec<Vec<Term>>,
    pub(crate) softened_by: Vec<Vec<Term>>,
}

/// A term as it stands in a view of words, with its blanks: ` hack ` or, for a prefix, ` hack`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term(pub(crate) Vec<u8>);

/// A family as written in a file.
#[derive(Deserialize)]
struct Written {
    id: String,
    category: Option<String>,
    severity: Option<f64>,
    side: Option<String>,
    means: Option<String>,
    #[serde(default)]
    all: Vec<Vec<String>>,
    within: Option<i64>,
    #[serde(default)]
    ordered: bool,
    regex: Option<String>,
    #[serde(default)]
    unless: Vec<String>,
    #[serde(default)]
    softened_by: Vec<String>,
    action: Option<String>,
}

/// Reads the families of a file: `entries` are its `[[family]]` or `[[rule]]` tables, `lists` its
/// named lists. Mistakes are added to `mistakes`; a family with a mistake is left out.
pub(crate) fn read_families(
    entries: &[toml::Value],
    lists: &BTreeMap<String, Vec<String>>,
    kind: Kind,
    mistakes: &mut Vec<RuleMistake>,
) -> Vec<Family> {
    let mut families = Vec::with_capacity(entries.len());
    let mut seen = BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let id = entry.get("id").and_then(toml::Value::as_str).unwrap_or_default();
        let place =
            if id.is_empty() { format!("rule {}", index + 1) } else { format!("rule {} `{id}`", index + 1) };
        let mut check = Check { place, lists, kind, mistakes: Vec::new() };
        if !id.is_empty() && !seen.insert(id.to_owned()) {
            check.wrong("id is used twice, each rule needs its own");
        }
        let family = check.family(entry);
        if check.mistakes.is_empty() {
            families.extend(family);
        }
        mistakes.append(&mut check.mistakes);
    }
    families
}

/// The validation of one family.
struct Check<'a> {
    place: String,
    lists: &'a BTreeMap<String, Vec<String>>,
    kind: Kind,
    mistakes: Vec<RuleMistake>,
}

impl Check<'_> {
    fn wrong(&mut self, problem: impl Into<String>) {
        self.mistakes.push(RuleMistake { place: self.place.clone(), problem: problem.into() });
    }

    fn family(&mut self, entry: &toml::Value) -> Option<Family> {
        let Some(table) = entry.as_table() else {
            self.wrong("is not a table");
            return None;
        };
        for key in table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            self.wrong(format!("unknown key `{key}`, allowed are {}", KEYS.join(", ")));
        }
        let written: Written = match entry.clone().try_into() {
            Ok(written) => written,
            Err(error) => {
                self.wrong(error.to_string().trim().replace('\n', " "));
                return None;
            }
        };
        let regex = self.expression(written.regex.as_deref());
        if written.all.is_empty() && written.regex.is_none() {
            self.wrong("has neither `all` nor `regex`, one is needed");
        }
        if written.all.len() > MAX_GROUPS {
            self.wrong(format!("`all` has {} groups, allowed are {MAX_GROUPS}", written.all.len()));
        }
        let mut all = Vec::new();
        for (index, group) in written.all.iter().enumerate() {
            if group.is_empty() {
                self.wrong(format!("group {} of `all` is empty", index + 1));
            }
            all.push(self.terms("all", group));
        }
        Some(Family {
            info: FamilyInfo {
                category: self.category(written.category.as_deref())?,
                severity: self.severity(written.severity)?,
                side: self.side(written.side.as_deref()),
                means: self.means(written.means),
                blocks: self.blocks(written.action.as_deref()),
                kind: self.kind,
                id: self.id(written.id),
            },
            all,
            within: self.within(written.within),
            ordered: written.ordered,
            regex,
            unless: self.exceptions("unless", &written.unless),
            softened_by: self.exceptions("softened_by", &written.softened_by),
        })
    }

    fn id(&mut self, id: String) -> String {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if id.is_empty() || id.len() > 64 || !id.bytes().all(letter) {
            self.wrong("`id` must be 1 to 64 of the characters a-z 0-9 . _ -");
        }
        id
    }

    fn category(&mut self, name: Option<&str>) -> Option<Category> {
        let category = name.and_then(Category::parse);
        if category.is_none() {
            let builtin: Vec<&str> = Category::ALL.iter().map(Category::as_str).collect();
            let builtin = builtin.join(", ");
            let written =
                name.map_or_else(|| "is missing".to_owned(), |name| format!("`{name}` is not allowed"));
            self.wrong(format!("`category` {written}: use {builtin}, or your own name in lower snake case"));
        }
        category
    }

    fn severity(&mut self, severity: Option<f64>) -> Option<f32> {
        let allowed = severity.filter(|value| (0.0..=1.0).contains(value));
        if allowed.is_none() {
            self.wrong("`severity` must be a number from 0 to 1");
        }
        allowed.map(|value| value as f32)
    }

    fn side(&mut self, side: Option<&str>) -> Option<Side> {
        match side {
            None | Some("both") => None,
            Some("prompt") => Some(Side::Prompt),
            Some("response") => Some(Side::Response),
            Some(other) => {
                self.wrong(format!("`side` is `{other}`, allowed are prompt, response, both"));
                None
            }
        }
    }

    fn means(&mut self, means: Option<String>) -> String {
        let means = means.unwrap_or_default();
        if means.trim().is_empty() || means.len() > 200 {
            self.wrong("`means` must say in 1 to 200 bytes what the rule finds");
        }
        means
    }

    fn blocks(&mut self, action: Option<&str>) -> bool {
        match action {
            None | Some("flag") => false,
            Some("block") => true,
            Some(other) => {
                self.wrong(format!("`action` is `{other}`, allowed are flag, block"));
                false
            }
        }
    }

    fn within(&mut self, within: Option<i64>) -> u32 {
        let words = u32::try_from(within.unwrap_or(8)).ok().filter(|words| (1..=MAX_WITHIN).contains(words));
        if words.is_none() {
            self.wrong(format!("`within` must be a number of words from 1 to {MAX_WITHIN}"));
        }
        words.unwrap_or(1)
    }

    fn expression(&mut self, pattern: Option<&str>) -> Option<Regex> {
        let pattern = pattern?;
        match RegexBuilder::new(pattern)
            .case_insensitive(true)
            .size_limit(MAX_EXPRESSION_BYTES)
            .nest_limit(50)
            .build()
        {
            Ok(regex) if regex.is_match("") => {
                self.wrong("`regex` matches the empty text, so it would match everywhere");
                None
            }
            Ok(regex) => Some(regex),
            Err(regex::Error::CompiledTooBig(limit)) => {
                self.wrong(format!(
                    "`regex` needs more than {limit} bytes, use fewer or smaller repetitions"
                ));
                None
            }
            Err(error) => {
                let reason = error.to_string();
                let last = reason.lines().last().unwrap_or("it cannot be parsed").trim().to_owned();
                self.wrong(format!("`regex` is not valid: {last}"));
                None
            }
        }
    }

    fn exceptions(&mut self, key: &str, items: &[String]) -> Vec<Vec<Term>> {
        let (named, own): (Vec<String>, Vec<String>) =
            items.iter().cloned().partition(|item| item.starts_with('@'));
        let mut lists: Vec<Vec<Term>> = named.into_iter().map(|name| self.terms(key, &[name])).collect();
        lists.push(self.terms(key, &own));
        lists.retain(|list| !list.is_empty());
        lists
    }

    /// Writes lists out and brings each term into the form of a view of words.
    fn terms(&mut self, key: &str, items: &[String]) -> Vec<Term> {
        let mut terms = BTreeSet::new();
        for item in items {
            let Some(name) = item.strip_prefix('@') else {
                self.term(key, item, &mut terms);
                continue;
            };
            match self.lists.get(name) {
                Some(list) => list.iter().for_each(|member| self.term(key, member, &mut terms)),
                None => self.wrong(format!("`{key}` names the list `{item}`, which [lists] does not have")),
            }
        }
        if terms.len() > MAX_TERMS {
            self.wrong(format!("`{key}` has {} terms in one group, allowed are {MAX_TERMS}", terms.len()));
        }
        terms.into_iter().collect()
    }

    fn term(&mut self, key: &str, written: &str, terms: &mut BTreeSet<Term>) {
        let (stem, prefix) = match written.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (written, false),
        };
        let mut view = words::split(&normalise(stem).text, false).text;
        if view.is_empty() || written.len() > MAX_TERM_BYTES || stem.contains('*') {
            self.wrong(format!(
                "`{key}` has the term `{written:.100}`, which cannot be matched: terms are 1 to {MAX_TERM_BYTES} bytes of words, \
                 with `*` only at the end"
            ));
            return;
        }
        if prefix {
            view.pop();
        }
        terms.insert(Term(view));
    }
}
