//! A file of JSON lines that grows by one write a line: whoever ends the process leaves whole lines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// A file that lines are added to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens or makes a file, and reads what is in it. A line that was cut by a crash is no line.
    pub(crate) fn open<T: DeserializeOwned>(path: &Path) -> Result<(Self, Vec<T>), Error> {
        let unwritten = |source| Error::Write { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.map_err(unwritten)?;
        let (lines, whole) = read(&file, path)?;
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole))).map_err(unwritten)?;
        Ok((Self { path: path.to_owned(), file }, lines))
    }

    /// Adds a line.
    pub(crate) fn append<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        let line = serde_json::to_string(value).map_err(std::io::Error::from);
        let written = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

/// The lines, and how many bytes hold whole ones.
fn read<T: DeserializeOwned>(file: &File, path: &Path) -> Result<(Vec<T>, u64), Error> {
    let mut lines = Vec::new();
    let mut reader = BufReader::new(file);
    let mut whole = 0;
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line);
        let read = read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Ok((lines, whole));
        }
        whole += read as u64;
        let parsed = serde_json::from_slice(&line);
        lines.push(parsed.map_err(|source| Error::Row {
            path: path.to_owned(),
            line: lines.len() + 1,
            source,
        })?);
    }
}
