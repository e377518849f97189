//! A folder that one process at a time works in, by a lock that the system releases however the process ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Error;
use crate::evaluate::Plan;

const LOCK: &str = "lock";

/// A folder that this process holds.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
    _lock: File,
}

impl Held {
    /// Makes and locks a folder in which nothing lies but the named files.
    pub(crate) fn take(path: &Path, ours: &[&str]) -> Result<Self, Error> {
        let write = |source| Error::Write { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(write)?;
        for entry in fs::read_dir(path).map_err(|source| Error::Read { path: path.to_owned(), source })? {
            let name = entry.map_err(write)?.file_name().to_string_lossy().into_owned();
            let is_ours = name == LOCK || ours.contains(&name.as_str());
            if !is_ours && !name.starts_with(PARTIAL) {
                let reason = format!("it has other contents, such as `{name}`; choose a new folder");
                return Err(Error::Folder { folder: path.to_owned(), reason });
            }
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
        let lock = file.map_err(write)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::Held { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) if source.kind() == ErrorKind::Unsupported => {
                Err(Error::Folder {
                    folder: path.to_owned(),
                    reason: "its file system has no locks; choose a local folder".to_owned(),
                })
            }
            Err(TryLockError::Error(source)) => Err(write(source)),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        let partial = self.path.join(format!("{PARTIAL}{name}"));
        fs::write(&partial, bytes)
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|source| Error::Write { path, source })
    }

    /// Writes down what the run is, or compares it with what is written and names every difference.
    pub(crate) fn agree(&self, name: &str, plan: &Plan) -> Result<(), Error> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(plan).map_err(std::io::Error::from);
        let text = text.map_err(|source| Error::Write { path: path.clone(), source })?;
        if !path.exists() {
            return self.write(name, text.as_bytes());
        }
        let before = fs::read(&path).map_err(|source| Error::Read { path, source })?;
        let before: Plan = serde_json::from_slice(&before)
            .map_err(|error| self.refuse(&format!("its {name} is damaged: {error}")))?;
        let mut names: Vec<&String> = before.keys().chain(plan.keys()).collect();
        names.sort();
        names.dedup();
        let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        let differs = |name: &&String| before.get(*name) != plan.get(*name);
        let told: Vec<String> = names
            .into_iter()
            .filter(differs)
            .map(|name| {
                format!("\n  {name}: {} before, {} now", shown(before.get(name)), shown(plan.get(name)))
            })
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        Err(self.refuse(&format!(
            "its run began with other settings; choose another folder, or give the same ones{}",
            told.concat()
        )))
    }

    /// Why the folder cannot be used.
    pub(crate) fn refuse(&self, reason: &str) -> Error {
        Error::Folder { folder: self.path.clone(), reason: reason.to_owned() }
    }
}

/// What the name of a file begins with that is not yet whole.
const PARTIAL: &str = ".partial-";
