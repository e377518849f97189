//! The rows of a training as files, for a training elsewhere or a comparison by another program.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use super::{Row, Split};
use crate::Error;

const TAUGHT: &str = "taught.jsonl";
const VALIDATION: &str = "validation.jsonl";
const HELD: &str = "held.jsonl";

impl Split {
    /// Writes each part into a file of a folder.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
        for (name, rows) in [(TAUGHT, &self.taught), (VALIDATION, &self.validation), (HELD, &self.held)] {
            let path = folder.join(name);
            write(&path, rows).map_err(|source| Error::Write { path, source })?;
        }
        Ok(())
    }

    /// Reads what [`Self::write`] wrote.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let taught = read(&folder.join(TAUGHT))?;
        Ok(Self { taught, validation: read(&folder.join(VALIDATION))?, held: read(&folder.join(HELD))? })
    }
}

fn write(path: &Path, rows: &[Row]) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for row in rows {
        serde_json::to_writer(&mut file, row)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

fn read(path: &Path) -> Result<Vec<Row>, Error> {
    let unread = |source| Error::Read { path: path.to_owned(), source };
    let lines = BufReader::new(File::open(path).map_err(unread)?).lines();
    let mut rows = Vec::new();
    for (index, line) in lines.enumerate() {
        let row = serde_json::from_str(&line.map_err(unread)?);
        rows.push(row.map_err(|source| Error::Row { path: path.to_owned(), line: index + 1, source })?);
    }
    Ok(rows)
}
