//! Rows of labelled data, read from JSONL files in the order of the list of sources.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use waltz_exchange::Category;
use waltz_screen::{Kind, Screen, Side};

use super::sources::{Half, Source, Sources};
use crate::{Error, lines};

/// One row, with what is known about it. `None` means that nobody said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The source's name.
    pub source: String,
    /// What was asked.
    pub prompt: String,
    /// What was answered.
    pub response: Option<String>,
    /// The prompt asks for harm.
    pub harmful: Option<bool>,
    /// The answer is harmful.
    pub is_unsafe: Option<bool>,
    /// The answer refuses.
    pub refusal: Option<bool>,
    /// The prompt carries an instruction that does not come from the user.
    #[serde(default)]
    pub injection: Option<bool>,
    /// The language, where the source names it.
    #[serde(default)]
    pub language: Option<String>,
    /// The harm, as a place in `Category::ALL`.
    pub category: Option<usize>,
    /// How much the row counts.
    pub weight: f32,
    /// Its licence lets it teach shipped weights.
    pub allowed: bool,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    id: String,
    #[serde(default)]
    prompt: String,
    response: Option<String>,
    prompt_label: Option<String>,
    response_label: Option<String>,
    refusal: Option<bool>,
    #[serde(default)]
    category: Option<String>,
    license: Option<String>,
    label_source: Option<String>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    lang: Option<String>,
}

/// The licence of files of another shape, which carry none on their rows.
const AUXILIARY_LICENCE: &str = "Apache-2.0";

/// All rows of the sources that are for `half`.
pub fn read_half(sources: &Sources, folder: &Path, half: Half, screen: &Screen) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for source in sources.sources.iter().filter(|source| source.half == half && source.weight > 0.0) {
        rows.extend(read_source(sources, source, folder, screen)?);
    }
    Ok(rows)
}

fn read_source(
    sources: &Sources,
    source: &Source,
    folder: &Path,
    screen: &Screen,
) -> Result<Vec<Row>, Error> {
    let (path, lines) = open(folder, &source.name)?;
    let mut rows = Vec::new();
    let mut asked = BTreeSet::new();
    for (index, line) in lines.lines().enumerate() {
        let line = line.map_err(|error| Error::Read { path: path.clone(), source: error })?;
        let raw: Raw = serde_json::from_str(&line).map_err(|error| Error::Row {
            path: path.clone(),
            line: index + 1,
            source: error,
        })?;
        let read = sources.labels.get(&raw.id);
        let trust = match read {
            Some(_) => "readers",
            None => raw.label_source.as_deref().unwrap_or("assumed"),
        };
        let Some(trust) = sources.trust.get(trust) else {
            return Err(Error::Source(format!("nothing was decided about labels of kind `{trust}`")));
        };
        let read = read.cloned().unwrap_or_default();
        let benign = source.benign.then_some(false);
        let harmful = raw.prompt_label.map(|label| label == "harmful").or(benign).or(read.harmful);
        let mut row = Row {
            source: source.name.clone(),
            harmful: harmful.filter(|_| !source.injection),
            injection: harmful.filter(|_| source.injection),
            is_unsafe: raw.response_label.map(|label| label == "unsafe").or(read.is_unsafe),
            refusal: raw.refusal.or(read.refusal),
            language: raw.meta.and_then(|meta| meta.lang),
            weight: source.weight * trust,
            allowed: sources.allows(raw.license.as_deref().unwrap_or(AUXILIARY_LICENCE))?,
            response: raw.response,
            prompt: if source.injection { material(raw.prompt) } else { raw.prompt },
            category: None,
        };
        // A prompt with many answers is one prompt.
        if !asked.insert(row.prompt.clone()) {
            row.harmful = None;
            row.injection = None;
        }
        if row.harmful == Some(true) || row.is_unsafe == Some(true) {
            let named = raw.category.as_deref().and_then(|name| sources.category(name));
            row.category = named.or_else(|| seen_category(screen, &row.prompt));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// What begins the part of an injection row that the judge reads by itself.
const TOOL_RESULT: &str = "[tool result]";

/// Of a whole tool exchange, the result alone: that is how the judge meets it.
fn material(text: String) -> String {
    match text.find(TOOL_RESULT) {
        Some(at) => text[at + TOOL_RESULT.len()..].trim_start().to_owned(),
        None => text,
    }
}

/// What the rules of level 0 call the harm of a prompt, where the source has no name for it.
fn seen_category(screen: &Screen, prompt: &str) -> Option<usize> {
    let reading = screen.read(prompt, Side::Prompt);
    let found = reading.findings.iter().find(|finding| matches!(finding.kind, Kind::Harm | Kind::Privacy))?;
    Category::ALL.iter().position(|category| *category == found.category)
}

/// The file of a source, packed or not.
fn open(folder: &Path, name: &str) -> Result<(PathBuf, Box<dyn BufRead>), Error> {
    let plain = folder.join(format!("{name}.jsonl"));
    let path = if plain.exists() { plain } else { folder.join(format!("{name}.jsonl.gz")) };
    let lines = lines::open(&path)?;
    Ok((path, lines))
}
