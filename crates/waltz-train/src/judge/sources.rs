//! `sources.toml`: which source teaches what, how far it is trusted, and whose licence allows it.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use waltz_exchange::Category;

use crate::{Error, lines};

/// The list of sources, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    /// What all chance starts from.
    pub seed: u64,
    /// The file beside the list that holds readers' labels.
    #[serde(default, rename = "labels")]
    labels_file: Option<PathBuf>,
    /// Labels that readers gave to rows of the sources, by the rows' ids.
    #[serde(skip)]
    pub(super) labels: HashMap<String, Labels>,
    /// What a label is worth, by who gave it.
    pub trust: BTreeMap<String, f32>,
    /// Which licences may teach shipped weights.
    pub licences: Licences,
    /// Names of harms.
    #[serde(rename = "category")]
    categories: Vec<CategoryWords>,
    /// The sources.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

/// Which licences may teach shipped weights.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licences {
    allowed: Vec<String>,
    refused: Vec<Refused>,
}

/// A licence that was looked at and not taken.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    licence: String,
    reason: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CategoryWords {
    name: String,
    words: Vec<String>,
}

/// One file of data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The file's name without its ending.
    pub name: String,
    /// What it is for.
    pub half: Half,
    /// How far its labels are trusted.
    #[serde(default = "one")]
    pub weight: f32,
    /// Every prompt is benign; the rows have no labels of their own.
    #[serde(default)]
    pub benign: bool,
    /// The labels say whether a text carries an instruction that does not come from the user, not whether it asks for
    /// harm.
    #[serde(default)]
    pub injection: bool,
}

/// What readers said about a row; `None` where they could not decide.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Labels {
    id: String,
    pub(super) harmful: Option<bool>,
    #[serde(rename = "unsafe")]
    pub(super) is_unsafe: Option<bool>,
    pub(super) refusal: Option<bool>,
}

fn one() -> f32 {
    1.0
}

/// What a source is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Teaches the judge that is shipped.
    A,
    /// Teaches the judge that scores evaluations.
    B,
    /// Sets the edges of scores.
    Validation,
    /// Wrappers for other rows.
    Frames,
    /// Only measured.
    Table,
}

impl Sources {
    /// Reads and checks the file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let mut sources = Self::parse(&text)?;
        if let Some(file) = &sources.labels_file {
            sources.labels = read_labels(&path.with_file_name(file))?;
        }
        Ok(sources)
    }

    /// Reads and checks the text of the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let sources: Self = toml::from_str(text).map_err(|error| Error::Sources(Box::new(error)))?;
        for CategoryWords { name, .. } in &sources.categories {
            if !Category::ALL.iter().any(|category| category.as_str() == name) {
                return Err(Error::Source(format!("category `{name}` does not exist")));
            }
        }
        for Refused { licence, reason } in &sources.licences.refused {
            if reason.trim().is_empty() || sources.licences.allowed.contains(licence) {
                return Err(Error::Source(format!("licence `{licence}` needs a reason and one decision")));
            }
        }
        for (index, source) in sources.sources.iter().enumerate() {
            if sources.sources[..index].iter().any(|earlier| earlier.name == source.name) {
                return Err(Error::Source(format!("source `{}` is listed twice", source.name)));
            }
            if !(0.0..=10.0).contains(&source.weight) {
                return Err(Error::Source(format!("weight of `{}` must be from 0 to 10", source.name)));
            }
        }
        Ok(sources)
    }

    /// The list with some sources held back, so that they are measured and teach nothing.
    pub fn without(mut self, names: &[String]) -> Result<Self, Error> {
        for name in names {
            let Some(source) = self.sources.iter_mut().find(|source| source.name == *name) else {
                return Err(Error::Source(format!("source `{name}` is not listed")));
            };
            source.half = Half::Table;
        }
        Ok(self)
    }

    /// Whether rows under this licence may teach shipped weights; an error where nobody decided.
    pub fn allows(&self, licence: &str) -> Result<bool, Error> {
        if self.licences.allowed.iter().any(|allowed| allowed == licence) {
            return Ok(true);
        }
        if self.licences.refused.iter().any(|refused| refused.licence == licence) {
            return Ok(false);
        }
        Err(Error::Source(format!("nothing was decided about licence `{licence}`")))
    }

    /// Our category for a source's own name of a harm, as a place in `Category::ALL`.
    pub(super) fn category(&self, name: &str) -> Option<usize> {
        let name = name.to_lowercase();
        let found = self
            .categories
            .iter()
            .find(|category| category.words.iter().any(|word| name.contains(word.as_str())))?;
        Category::ALL.iter().position(|category| category.as_str() == found.name)
    }
}

fn read_labels(path: &Path) -> Result<HashMap<String, Labels>, Error> {
    let mut labels = HashMap::new();
    for (index, line) in lines::open(path)?.lines().enumerate() {
        let line = line.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let label: Labels = serde_json::from_str(&line).map_err(|source| Error::Row {
            path: path.to_owned(),
            line: index + 1,
            source,
        })?;
        labels.insert(label.id.clone(), label);
    }
    Ok(labels)
}
