//! A pattern family: the unit of the pattern files and of operators' rules files.
//!
//! Two forms: what is written in TOML and the validated [`Family`] that `screen.rs` compiles. Every mistake of a
//! file is collected before anything is rejected. Runs at start and at reload, never while a text is read.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
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

const KEYS: [&str; 13] = [
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
    "certain",
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
    /// What it finds is hardly ever anything else, so that an exception lowers its severity no further than to the
    /// decision.
    pub certain: bool,
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

/// Reads the families of a file: `entries` are its `[[family]]` or `[[rule]]` tables, `lists` its
/// named lists, `taken` ids that none of them may have. Mistakes are added to `mistakes`; a family with a mistake is left out.
pub(crate) fn read_families(
    entries: &[toml::Value],
    lists: &BTreeMap<String, Vec<String>>,
    (kind, taken): (Kind, &BTreeSet<String>),
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
        if taken.contains(id) {
            check.wrong("`id` is that of a built-in family, give the rule its own");
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
        // Every field is read before any of them decides, so that all mistakes are named at once.
        let id = self.id(table.get("id"));
        let category = self.category(table.get("category"));
        let severity = self.severity(table.get("severity"));
        let side = self.read::<String>(table, "side");
        let side = self.side(side.as_deref());
        let means = self.means(table.get("means"));
        let all = self.groups(table);
        let within = self.read(table, "within");
        let within = self.within(within);
        let ordered = self.read(table, "ordered").unwrap_or(false);
        let regex = self.read::<String>(table, "regex");
        let regex = self.expression(regex.as_deref());
        let unless = self.exceptions("unless", table);
        let softened_by = self.exceptions("softened_by", table);
        let action = self.read::<String>(table, "action");
        let blocks = self.blocks(action.as_deref());
        let certain = self.read(table, "certain").unwrap_or(false);
        let kind = self.kind;
        let info =
            FamilyInfo { id, kind, category: category?, severity: severity?, side, means, blocks, certain };
        Some(Family { info, all, within, ordered, regex, unless, softened_by })
    }

    /// The value of a key that may be left out; one of another type is a mistake.
    fn read<T: DeserializeOwned>(&mut self, table: &toml::Table, key: &str) -> Option<T> {
        match table.get(key)?.clone().try_into() {
            Ok(value) => Some(value),
            Err(error) => {
                let reason = error.to_string().trim().replace('\n', " ");
                self.wrong(format!("`{key}` is of the wrong type: {reason}"));
                None
            }
        }
    }

    fn groups(&mut self, table: &toml::Table) -> Vec<Vec<Term>> {
        let written: Vec<Vec<String>> = self.read(table, "all").unwrap_or_default();
        let is_empty = |value: &toml::Value| value.as_array().is_some_and(Vec::is_empty);
        if table.get("all").is_none_or(is_empty) && !table.contains_key("regex") {
            self.wrong("has neither `all` nor `regex`, one is needed");
        }
        if written.len() > MAX_GROUPS {
            self.wrong(format!("`all` has {} groups, allowed are {MAX_GROUPS}", written.len()));
        }
        let mut all = Vec::new();
        for (index, group) in written.iter().enumerate() {
            if group.is_empty() {
                self.wrong(format!("group {} of `all` is empty", index + 1));
            }
            all.push(self.terms("all", group));
        }
        all
    }

    fn id(&mut self, id: Option<&toml::Value>) -> String {
        let id = text(id);
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if id.is_empty() || id.len() > 64 || !id.bytes().all(letter) {
            self.wrong("`id` must be 1 to 64 of the characters a-z 0-9 . _ -");
        }
        id.to_owned()
    }

    fn category(&mut self, name: Option<&toml::Value>) -> Option<Category> {
        let name = name.map(|name| text(Some(name)));
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

    fn severity(&mut self, severity: Option<&toml::Value>) -> Option<f32> {
        let number = severity.and_then(|value| value.clone().try_into::<f64>().ok());
        let allowed = number.filter(|value| (0.0..=1.0).contains(value));
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

    fn means(&mut self, means: Option<&toml::Value>) -> String {
        let means = text(means);
        if means.trim().is_empty() || means.len() > 200 {
            self.wrong("`means` must say in 1 to 200 bytes what the rule finds");
        }
        means.to_owned()
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

    fn exceptions(&mut self, key: &str, table: &toml::Table) -> Vec<Vec<Term>> {
        let items: Vec<String> = self.read(table, key).unwrap_or_default();
        let (named, own): (Vec<String>, Vec<String>) =
            items.into_iter().partition(|item| item.starts_with('@'));
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

/// A text that a rule needs; what is none is as good as missing.
fn text(value: Option<&toml::Value>) -> &str {
    value.and_then(toml::Value::as_str).unwrap_or_default()
}
