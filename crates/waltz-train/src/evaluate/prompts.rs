//! Sets of prompts: JSON lines of `{id, prompt, harmful, category, attack}`, or of the shape that public safety data is
//! converted to (`prompt_label` in place of `harmful`). What is left out is counted with its reason.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, lines};

/// A prompt, and what is known about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Unique among all prompts of a run.
    pub id: String,
    /// What is asked.
    pub prompt: String,
    /// It asks for harm; `None` where nobody said.
    pub harmful: Option<bool>,
    /// The kind of harm, or of look-alike.
    pub category: Option<String>,
    /// How the harm is disguised.
    pub attack: Option<String>,
    /// The set it is from.
    pub source: Option<String>,
    /// The licence of that set.
    pub licence: Option<String>,
}

/// Prompts in the order in which they are asked, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// The prompts.
    pub items: Vec<Item>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// Rows of one file that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The file's name.
    pub file: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub rows: usize,
}

#[derive(Deserialize)]
struct Raw {
    id: Option<Value>,
    prompt: Option<String>,
    harmful: Option<bool>,
    prompt_label: Option<String>,
    category: Option<String>,
    attack: Option<String>,
    source: Option<String>,
    license: Option<String>,
}

impl Prompts {
    /// Adds the prompts of a file, at most `limit` of them, chosen by the seed. `category` names those that have none.
    pub fn add(
        &mut self,
        path: &Path,
        limit: Option<usize>,
        seed: u64,
        category: Option<&str>,
    ) -> Result<(), Error> {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = file.split('.').next().unwrap_or_default().to_owned();
        let earlier: HashSet<String> = self.items.iter().map(|item| item.id.clone()).collect();
        let mut ids: HashSet<String> = HashSet::new();
        let mut asked: HashSet<String> = self.items.iter().map(|item| item.prompt.clone()).collect();
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = Vec::new();
        lines::for_each(path, |line, bytes| match item(bytes, || format!("{stem}-{line}")) {
            Err(reason) => *reasons.entry(reason).or_default() += 1,
            Ok(item) if asked.contains(&item.prompt) => {
                *reasons.entry("its prompt was there before").or_default() += 1;
            }
            Ok(item) if ids.contains(&item.id) => {
                *reasons.entry("its id was there before").or_default() += 1;
            }
            Ok(mut item) => {
                ids.insert(item.id.clone());
                asked.insert(item.prompt.clone());
                // Many files number their rows from the same number on.
                while earlier.contains(&item.id) {
                    item.id = format!("{file}:{}", item.id);
                }
                item.category = item.category.or_else(|| category.map(str::to_owned));
                found.push(item);
            }
        })?;
        let skipped =
            |(reason, rows): (&str, usize)| Skipped { file: file.clone(), reason: reason.to_owned(), rows };
        self.skipped.extend(reasons.into_iter().map(skipped));
        self.take(&file, found, limit, seed);
        Ok(())
    }

    /// Adds prompts in an order that the seed gives, at most `limit` of them.
    pub(super) fn take(&mut self, file: &str, mut found: Vec<Item>, limit: Option<usize>, seed: u64) {
        found.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let rows = found.len().saturating_sub(limit.unwrap_or(usize::MAX));
        if rows > 0 {
            found.truncate(found.len() - rows);
            let reason = "the limit was reached".to_owned();
            self.skipped.push(Skipped { file: file.to_owned(), reason, rows });
        }
        self.items.extend(found);
    }

    /// Every file of JSON lines in a folder, in the order of their names; a file's name is the category of its rows.
    pub fn add_folder(&mut self, folder: &Path, limit: Option<usize>, seed: u64) -> Result<(), Error> {
        for path in case_files(folder)? {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            self.add(&path, limit, seed, name.split('.').next())?;
        }
        Ok(())
    }
}

/// The files of JSON lines in a folder, in the order of their names.
pub fn case_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| Error::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.to_string_lossy();
        if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Prompts as JSON lines that [`Prompts::add`] reads.
pub(super) fn lines_of(items: &[Item]) -> String {
    let mut lines = String::new();
    for Item { id, prompt, harmful, category, attack, source, licence } in items {
        let line = json!({"id": id, "prompt": prompt, "harmful": harmful, "category": category,
            "attack": attack, "source": source, "license": licence});
        lines.push_str(&format!("{line}\n"));
    }
    lines
}

fn item(bytes: &[u8], number: impl Fn() -> String) -> Result<Item, &'static str> {
    let raw: Raw = serde_json::from_slice(bytes).map_err(|_| "it is not JSON of the expected shape")?;
    let prompt = raw.prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or("it has no prompt")?;
    let labelled = match raw.prompt_label.as_deref() {
        None => None,
        Some("harmful") => Some(true),
        Some("benign") => Some(false),
        Some(_) => return Err("its label is neither `harmful` nor `benign`"),
    };
    let id = match raw.id {
        Some(Value::String(id)) => id,
        Some(Value::Number(id)) => id.to_string(),
        _ => number(),
    };
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(Item {
        id,
        prompt,
        harmful: raw.harmful.or(labelled),
        category: said(raw.category),
        attack: said(raw.attack),
        source: said(raw.source),
        licence: said(raw.license),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const ROWS: &str = r#"{"id": "a", "prompt": "One?", "harmful": true, "category": "c", "attack": "x"}
{"id": 2, "prompt": "Two?", "prompt_label": "benign", "category": "", "attack": null, "meta": {}}
{"prompt": "Three?", "prompt_label": null}
not json

{"id": "b", "prompt": " "}
{"id": "c", "prompt": "One?"}
{"id": "a", "prompt": "Four?"}
{"id": "d", "prompt": "Five?", "prompt_label": "maybe"}
{"policy": "random", "click": 0}
"#;

    fn reasons(prompts: &Prompts) -> Vec<(&str, usize)> {
        prompts.skipped.iter().map(|skipped| (skipped.reason.as_str(), skipped.rows)).collect()
    }

    #[test]
    fn files_that_number_alike_lose_no_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut prompts = Prompts::default();
        for name in ["a.jsonl", "b.jsonl"] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("{{\"id\": 1, \"prompt\": \"One of {name}?\"}}\n")).unwrap();
            prompts.add(&path, None, 0, None).unwrap();
        }
        let ids: Vec<&str> = prompts.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["1", "b.jsonl:1"]);
        assert!(prompts.skipped.is_empty(), "{:?}", reasons(&prompts));
    }

    #[test]
    fn both_shapes_are_read_and_what_is_left_out_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, ROWS).unwrap();
        let mut prompts = Prompts::default();
        prompts.add(&path, None, 1, None).unwrap();
        let mut read: Vec<_> = prompts.items.iter().map(|item| (item.id.as_str(), item.harmful)).collect();
        read.sort_unstable();
        assert_eq!(read, [("2", Some(false)), ("a", Some(true)), ("rows-3", None)]);
        assert_eq!(
            reasons(&prompts),
            [
                ("it has no prompt", 2),
                ("it is not JSON of the expected shape", 1),
                ("its id was there before", 1),
                ("its label is neither `harmful` nor `benign`", 1),
                ("its prompt was there before", 1),
            ]
        );
        // Packed, and limited: the same seed chooses the same.
        let packed = folder.path().join("more.jsonl.gz");
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..50).for_each(|row| writeln!(file, "{{\"prompt\": \"Question {row}?\"}}").unwrap());
        std::fs::write(&packed, file.finish().unwrap()).unwrap();
        let mut first = Prompts::default();
        first.add(&packed, Some(10), 1, Some("law")).unwrap();
        assert_eq!((first.items.len(), reasons(&first)), (10, vec![("the limit was reached", 40)]));
        assert_eq!(first.items[0].category.as_deref(), Some("law"));
        let mut again = Prompts::default();
        again.add(&packed, Some(10), 1, Some("law")).unwrap();
        let mut other = Prompts::default();
        other.add(&packed, Some(10), 2, Some("law")).unwrap();
        assert!(first == again && first != other);
    }
}
