//! Rollbacks and proposals as lines of files, for whoever reads files and not the store. A file holds what the store
//! holds: what a crash left out is added at the next start.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use waltz_exchange::proposal::Proposal;

use crate::admin::{Error, MOST};
use waltz_store::Store;

/// The files of one data folder.
#[derive(Debug)]
pub struct Mirror {
    rollbacks: Lines,
    proposals: Lines,
    /// Rollbacks up to here are written.
    number: i64,
}

impl Mirror {
    /// Looks at what the files hold.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let folder = data_dir.join("telemetry").join("crl");
        fs::create_dir_all(&folder)?;
        Ok(Self {
            rollbacks: Lines::open(folder.join("rollback_events.jsonl"), &["rollback_id"])?,
            proposals: Lines::open(folder.join("variant_proposals.jsonl"), &["proposal_id", "status"])?,
            number: 0,
        })
    }

    /// Adds rollbacks that are new.
    pub(super) async fn add_rollbacks(&mut self, store: &Store) -> Result<(), Error> {
        loop {
            let new = store.rollbacks_after(self.number, MOST).await?;
            let Some(last) = new.last().map(|stored| stored.number) else { return Ok(()) };
            for stored in &new {
                self.rollbacks
                    .add(&serde_json::to_value(&stored.event).unwrap_or_default())
                    .map_err(unwritten)?;
            }
            self.number = last;
        }
    }

    /// Adds proposals that are new or were decided on.
    pub(super) fn add_proposals(&mut self, proposals: &[Proposal]) -> Result<(), Error> {
        for proposal in proposals.iter().rev() {
            self.proposals.add(&serde_json::to_value(proposal).unwrap_or_default()).map_err(unwritten)?;
        }
        Ok(())
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::Invalid(format!("a file in telemetry/crl cannot be written: {error}"))
}

/// A file with one JSON object a line, each of them once.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    /// The fields that tell one line from another.
    keys: &'static [&'static str],
    known: HashSet<String>,
}

impl Lines {
    fn open(path: PathBuf, keys: &'static [&'static str]) -> io::Result<Self> {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // A line may be cut off in the middle of a letter.
        let text = String::from_utf8_lossy(&bytes);
        if !text.is_empty() && !text.ends_with('\n') {
            // The end of a line that a crash cut off must not spoil the next one.
            OpenOptions::new().append(true).open(&path)?.write_all(b"\n")?;
        }
        let rows = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let known = rows.map(|row: Value| key(&row, keys)).collect();
        Ok(Self { path, keys, known })
    }

    fn add(&mut self, row: &Value) -> io::Result<()> {
        let key = key(row, self.keys);
        if self.known.contains(&key) {
            return Ok(());
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(format!("{row}\n").as_bytes())?;
        self.known.insert(key);
        Ok(())
    }
}

fn key(row: &Value, keys: &[&str]) -> String {
    let words: Vec<&str> = keys.iter().map(|key| row[*key].as_str().unwrap_or_default()).collect();
    words.join("\u{1f}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_written_once_and_a_torn_one_spoils_nothing() {
        let folder = std::env::temp_dir().join(format!("waltz-mirror-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lines.jsonl");
        // Cut off in the middle of a letter of two bytes.
        fs::write(&path, b"{\"id\":\"a\"}\n{\"id\":\"t\xc3").unwrap();
        let mut lines = Lines::open(path.clone(), &["id"]).unwrap();
        for id in ["a", "torn", "torn"] {
            lines.add(&json!({"id": id})).unwrap();
        }
        let mut again = Lines::open(path.clone(), &["id"]).unwrap();
        again.add(&json!({"id": "torn"})).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes, b"{\"id\":\"a\"}\n{\"id\":\"t\xc3\n{\"id\":\"torn\"}\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
