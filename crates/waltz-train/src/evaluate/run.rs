//! A run and its folder: `run.json` says what the run is, `prompts.jsonl` what is asked, `rows.jsonl` holds one line a
//! finished prompt and `scores.jsonl` one a scored answer, written at once.
//! The same command again goes on where the rows end; a prompt whose last row is a failure is asked again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;

use super::answer::{Row, Setup, answer};
use super::prompts::lines_of;
use super::{Item, Prompts, System};
use crate::Error;
use crate::held::Held;
use crate::log::Log;

const PLAN: &str = "run.json";
const ROWS: &str = "rows.jsonl";
const PROMPTS: &str = "prompts.jsonl";
const SCORES: &str = "scores.jsonl";
const REPORT: &str = "report.json";
const PAGE: &str = "report.html";

/// What may lie in the folder of a run.
const FILES: [&str; 6] = [PLAN, PROMPTS, ROWS, SCORES, REPORT, PAGE];

/// So many failures without an answer between them end a run: the upstream is down.
const MOST_FAILURES: usize = 20;

/// What a run is: everything that its answers depend on, by name.
pub type Plan = BTreeMap<String, Value>;

/// The folder of a run, held by this process.
#[derive(Debug)]
pub struct Folder {
    held: Held,
    rows: Log,
    last: HashMap<String, Row>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Prompts with an answer, those of earlier sittings included.
    pub answered: usize,
    /// Prompts without one, in this sitting.
    pub failed: usize,
    /// All prompts.
    pub all: usize,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every prompt was asked.
    Finished,
    /// The upstream failed too often; the last reason.
    GaveUp(String),
    /// The upstream refused so many requests one after the other that it would refuse them all; the last reason.
    Refused(String),
}

impl Folder {
    /// Takes a folder for a run: a new one, or that of the same run before.
    pub fn open(path: &Path, plan: &Plan) -> Result<Self, Error> {
        let held = Held::take(path, &FILES)?;
        held.agree(PLAN, plan)?;
        Self::with_rows(path, held)
    }

    /// Takes the folder of a run that was made before, and says what the run is and asks.
    pub fn reopen(path: &Path) -> Result<(Self, Plan, Vec<Item>), Error> {
        let refuse = |reason: &str| Error::Folder { folder: path.to_owned(), reason: reason.to_owned() };
        if !path.join(PLAN).exists() || !path.join(PROMPTS).exists() {
            return Err(refuse("it holds no run with its prompts; run the same `waltz eval` again"));
        }
        let held = Held::take(path, &FILES)?;
        let text =
            std::fs::read(path.join(PLAN)).map_err(|source| Error::Read { path: path.join(PLAN), source })?;
        let plan = serde_json::from_slice(&text).map_err(|_| refuse("its run.json is damaged"))?;
        let mut prompts = Prompts::default();
        prompts.add(&path.join(PROMPTS), None, 0, None)?;
        Ok((Self::with_rows(path, held)?, plan, prompts.items))
    }

    fn with_rows(path: &Path, held: Held) -> Result<Self, Error> {
        let (rows, read) = Log::open::<Row>(&path.join(ROWS))?;
        let last = read.into_iter().map(|row| (row.id.clone(), row)).collect();
        Ok(Self { held, rows, last })
    }

    /// The last row of every prompt that was asked.
    pub fn rows(&self) -> &HashMap<String, Row> {
        &self.last
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Writes down what is asked: whoever reads or scores the answers later needs it.
    pub fn keep_prompts(&self, items: &[Item]) -> Result<(), Error> {
        self.held.write(PROMPTS, lines_of(items).as_bytes())
    }

    /// The file of scores.
    pub fn scores(&self) -> PathBuf {
        self.path().join(SCORES)
    }

    /// Writes the report, and returns where its page is.
    pub fn write_report(&self, json: &str, page: &str) -> Result<PathBuf, Error> {
        self.held.write(REPORT, json.as_bytes())?;
        self.held.write(PAGE, page.as_bytes())?;
        Ok(self.path().join(PAGE))
    }

    fn append(&mut self, row: Row) -> Result<(), Error> {
        self.rows.append(&row)?;
        self.last.insert(row.id.clone(), row);
        Ok(())
    }
}

/// Asks every prompt that has no answer yet, so many at the same time. Dropped at any moment it leaves a run that can
/// go on.
pub async fn run(
    folder: &mut Folder,
    items: &[Item],
    systems: &[System],
    setup: &Setup<'_>,
    concurrency: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<End, Error> {
    let is_answered = |item: &&Item| folder.last.get(&item.id).is_some_and(|row| row.error.is_none());
    let (done, mut left): (Vec<&Item>, Vec<&Item>) = items.iter().partition(is_answered);
    // What failed before may fail for ever, such as prompts that an upstream refuses, and comes last.
    left.sort_by_key(|item| folder.last.contains_key(&item.id));
    let mut told = Progress { answered: done.len(), failed: 0, all: items.len() };
    progress(told);
    let (mut in_a_row, mut refused_in_a_row) = (0, 0);
    let asked = stream::iter(left).map(|item| answer(setup, item, systems));
    let mut answers = std::pin::pin!(asked.buffer_unordered(concurrency.max(1)));
    while let Some(row) = answers.next().await {
        let (error, refused) = (row.error.clone(), row.refused);
        folder.append(row)?;
        refused_in_a_row = if refused { refused_in_a_row + 1 } else { 0 };
        match error {
            None => {
                in_a_row = 0;
                told.answered += 1;
            }
            Some(error) => {
                in_a_row += 1;
                told.failed += 1;
                if refused_in_a_row >= MOST_FAILURES {
                    return Ok(End::Refused(error));
                }
                if in_a_row >= MOST_FAILURES {
                    return Ok(End::GaveUp(error));
                }
            }
        }
        progress(told);
    }
    Ok(End::Finished)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(limit: u32) -> Plan {
        Plan::from([("limit".to_owned(), json!(limit)), ("seed".to_owned(), json!(1))])
    }

    fn row(id: &str, error: Option<&str>) -> Row {
        Row {
            id: id.to_owned(),
            error: error.map(str::to_owned),
            refused: false,
            draft: None,
            systems: BTreeMap::new(),
        }
    }

    #[test]
    fn rows_outlive_a_crash_and_the_last_one_of_a_prompt_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut opened = Folder::open(&path, &plan(5)).unwrap();
        opened.append(row("a", Some("unreachable"))).unwrap();
        opened.append(row("a", None)).unwrap();
        opened.append(row("b", None)).unwrap();
        assert!(matches!(Folder::open(&path, &plan(5)), Err(Error::Held { .. })));
        drop(opened);
        let file = path.join(ROWS);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&whole[..], b"{\"id\":\"c\",\"err"].concat()).unwrap();
        let mut opened = Folder::open(&path, &plan(5)).unwrap();
        assert_eq!(opened.rows().len(), 2);
        assert_eq!(opened.rows()["a"].error, None);
        opened.append(row("c", None)).unwrap();
        drop(opened);
        assert_eq!(Folder::open(&path, &plan(5)).unwrap().rows().len(), 3);
        std::fs::write(&file, b"{}\n").unwrap();
        assert!(matches!(Folder::open(&path, &plan(5)), Err(Error::Row { line: 1, .. })));
    }

    #[test]
    fn another_run_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        drop(Folder::open(folder.path(), &plan(5)).unwrap());
        let refused = Folder::open(folder.path(), &plan(6)).unwrap_err().to_string();
        assert!(refused.contains("limit: 5 before, 6 now") && !refused.contains("seed"), "{refused}");
    }
}
