//! Operators' rules files: the families of somebody else, read with limits and without trust.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, RuleMistake};
use crate::family::{Family, read_families};
use crate::finding::Kind;
use crate::patterns;

/// Most rules that one file may hold.
const MAX_RULES: usize = 1_000;
/// Largest rules file, in bytes.
const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Most mistakes that are listed, so that a wrong file of a thousand rules stays readable.
const MAX_MISTAKES: usize = 50;

/// A validated rules file.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(crate) families: Vec<Family>,
}

impl Rules {
    /// Reads a rules file. Either every rule is right, or the error names every mistake.
    pub fn parse(toml_text: &str) -> Result<Self, Error> {
        if toml_text.len() > MAX_FILE_BYTES {
            return Err(Error::TooLarge { bytes: toml_text.len(), limit: MAX_FILE_BYTES });
        }
        let families = parse(toml_text, "rule", (Kind::Rule, &patterns::ids()?))?;
        Ok(Self { families })
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.families.len()
    }

    /// Whether there are no rules; never true for a parsed file.
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }
}

/// Reads a file of families, none of which may have an id that is `taken`; shared with the built-in patterns, whose
/// tables are called `family`.
pub(crate) fn parse(
    toml_text: &str,
    table: &str,
    (kind, taken): (Kind, &BTreeSet<String>),
) -> Result<Vec<Family>, Error> {
    let file: toml::Table = toml::from_str(toml_text).map_err(|error| Error::Syntax(Box::new(error)))?;
    let mut mistakes = Vec::new();
    let mut wrong = |place: &str, problem: String| {
        mistakes.push(RuleMistake { place: place.to_owned(), problem });
    };
    for key in file.keys().filter(|key| key.as_str() != table && key.as_str() != "lists") {
        wrong("file", format!("unknown key `{key}`, allowed are [lists] and [[{table}]]"));
    }
    let mut lists = BTreeMap::new();
    match file.get("lists").map(|lists| lists.clone().try_into::<BTreeMap<String, Vec<String>>>()) {
        Some(Ok(read)) => lists = read,
        Some(Err(_)) => wrong("[lists]", "each list must be an array of terms".to_owned()),
        None => {}
    }
    let no_entries = Vec::new();
    let entries = match file.get(table) {
        Some(toml::Value::Array(entries)) => entries,
        Some(_) => {
            wrong("file", format!("`{table}` must be written as [[{table}]] tables"));
            &no_entries
        }
        None => &no_entries,
    };
    if entries.is_empty() && mistakes.is_empty() {
        return Err(Error::Empty);
    }
    if entries.len() > MAX_RULES {
        return Err(Error::TooManyRules { rules: entries.len(), limit: MAX_RULES });
    }
    let families = read_families(entries, &lists, (kind, taken), &mut mistakes);
    if mistakes.is_empty() {
        return Ok(families);
    }
    if mistakes.len() > MAX_MISTAKES {
        let more = mistakes.len() - MAX_MISTAKES;
        mistakes.truncate(MAX_MISTAKES);
        mistakes.push(RuleMistake { place: "file".to_owned(), problem: format!("and {more} more mistakes") });
    }
    Err(Error::Mistakes(mistakes))
}

#[cfg(test)]
mod tests;
