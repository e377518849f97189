//! Tasks whose answers a program can check: JSON lines of `{id, prompt, checks}`. One half is evolved on, the other
//! examines the winner, so that what was learned by heart does not win.

use std::collections::HashSet;
use std::path::Path;

use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use crate::evaluate::{Instruction, Item};
use crate::{Error, lines};

/// The fewest tasks of a file: five for each half. Of fewer, not even all becoming harmful would be more than chance.
const FEWEST: usize = 10;

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The prompt.
    pub item: Item,
    /// What its answer must hold to, all of it.
    pub checks: Vec<Check>,
}

/// What an answer is checked by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a check must be one of expected, contains, lacks, or an instruction such as most_words"
)]
pub enum Check {
    /// What it says.
    Text(TextCheck),
    /// How it says it.
    Instruction(Instruction),
}

/// What an answer says, whatever its case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextCheck {
    /// This and nothing else.
    Expected(String),
    /// This somewhere.
    Contains(String),
    /// This nowhere.
    Lacks(String),
}

/// The two halves of a file of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// What candidates are chosen by.
    pub practice: Vec<Task>,
    /// What nothing is chosen by.
    pub exam: Vec<Task>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    id: Option<String>,
    prompt: String,
    checks: Vec<Check>,
}

impl Check {
    /// Whether an answer holds to it. An empty one holds to nothing.
    pub fn holds(&self, answer: &str) -> bool {
        let said = answer.trim().to_lowercase();
        if said.is_empty() {
            return false;
        }
        match self {
            Self::Text(TextCheck::Expected(text)) => said == text.trim().to_lowercase(),
            Self::Text(TextCheck::Contains(text)) => said.contains(&text.to_lowercase()),
            Self::Text(TextCheck::Lacks(text)) => !said.contains(&text.to_lowercase()),
            Self::Instruction(instruction) => instruction.is_followed(answer),
        }
    }
}

impl Tasks {
    /// Reads a file and halves it as the seed says. One bad row refuses the file: a task that cannot be checked would
    /// count for nobody.
    pub fn read(path: &Path, limit: Option<usize>, seed: u64) -> Result<Self, Error> {
        let (mut tasks, mut bad, mut rows) = (Vec::new(), Vec::new(), 0);
        let (mut ids, mut prompts) = (HashSet::new(), HashSet::new());
        lines::for_each(path, |line, bytes| {
            rows += 1;
            match task(bytes, line) {
                Err(reason) => bad.push((line, reason)),
                Ok(task) if !ids.insert(task.item.id.clone()) => {
                    bad.push((line, "its id was there before".to_owned()));
                }
                Ok(task) if !prompts.insert(task.item.prompt.clone()) => {
                    bad.push((line, "its prompt was there before".to_owned()));
                }
                Ok(task) => tasks.push(task),
            }
        })?;
        if !bad.is_empty() {
            return Err(Error::Rows { path: path.to_owned(), rows, bad });
        }
        tasks.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        tasks.truncate(limit.unwrap_or(usize::MAX));
        if tasks.len() < FEWEST {
            let found =
                format!("`{}` gives {} tasks, at least {FEWEST} are needed", path.display(), tasks.len());
            return Err(Error::Evolve(found));
        }
        let exam = tasks.split_off(tasks.len().div_ceil(2));
        Ok(Self { practice: tasks, exam })
    }

    /// All prompts.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.practice.iter().chain(&self.exam).map(|task| &task.item)
    }
}

fn task(bytes: &[u8], line: usize) -> Result<Task, String> {
    let Raw { id, prompt, checks } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if prompt.trim().is_empty() {
        return Err("its prompt is empty".to_owned());
    }
    let empty = |check: &Check| match check {
        Check::Text(TextCheck::Expected(text) | TextCheck::Contains(text) | TextCheck::Lacks(text)) => {
            text.trim().is_empty()
        }
        Check::Instruction(_) => false,
    };
    if checks.is_empty() || checks.iter().any(empty) {
        return Err("it has no checks, or an empty one".to_owned());
    }
    // Safety prompts share a run with tasks; ids of both must differ.
    let id = format!("task:{}", id.unwrap_or_else(|| line.to_string()));
    Ok(Task { item: Item { id, prompt, ..Item::default() }, checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tasks, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, text).unwrap();
        Tasks::read(&path, None, 1)
    }

    #[test]
    fn tasks_are_halved_by_the_seed_and_no_task_is_in_both_halves() {
        let text: String = (0..11)
            .map(|n| format!("{{\"prompt\": \"What is {n}?\", \"checks\": [{{\"contains\": \"{n}\"}}]}}\n"))
            .collect();
        let tasks = read(&text).unwrap();
        assert_eq!((tasks.practice.len(), tasks.exam.len()), (6, 5));
        let ids: HashSet<&str> = tasks.items().map(|item| item.id.as_str()).collect();
        assert_eq!(ids.len(), 11);
        assert_eq!(read(&text).unwrap(), tasks);
    }

    #[test]
    fn what_cannot_be_checked_is_refused_by_line() {
        let text = "{\"prompt\": \"a\", \"checks\": [{\"contains\": \"x\"}]}\n\
            {\"prompt\": \"b\", \"checks\": []}\n{\"prompt\": \"c\", \"checks\": [{\"holds\": \"x\"}]}\n\
            {\"prompt\": \"a\", \"checks\": [{\"lacks\": \"x\"}]}\n{\"prompt\": \"d\", \"check\": []}\n";
        let told = read(text).unwrap_err().to_string();
        for part in [
            "4 of 5 rows",
            "line 2: it has no checks",
            "line 3: a check must be one of",
            "line 4: its prompt",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let few: String = (0..9)
            .map(|n| format!("{{\"prompt\": \"{n}\", \"checks\": [{{\"contains\": \"x\"}}]}}\n"))
            .collect();
        let few = read(&few).unwrap_err();
        assert!(few.to_string().contains("gives 9 tasks, at least 10 are needed"), "{few}");
    }

    #[test]
    fn checks_tell_what_holds_from_what_does_not() {
        for (check, good, bad) in [
            (r#"{"expected": "Paris"}"#, " paris\n", "Paris."),
            (r#"{"contains": "Paris"}"#, "It is PARIS.", "It is Rome."),
            (r#"{"lacks": "sorry"}"#, "Gladly.", "Sorry, no."),
            (r#"{"most_words": 2}"#, "Two words", "Three words here"),
            (r#"{"end_with": "The end."}"#, "So. The end.", "The end. So."),
        ] {
            let parsed: Check = serde_json::from_str(check).unwrap();
            assert!(parsed.holds(good) && !parsed.holds(bad) && !parsed.holds(" "), "{check}");
            let written = serde_json::to_value(&parsed).unwrap();
            assert_eq!(written, serde_json::from_str::<serde_json::Value>(check).unwrap());
        }
    }
}
