//! JSON lines from a file or standard input, one object at a time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

use super::Exit;

/// Calls `each` with every line. Blank lines are skipped; a line that cannot be read ends the run with
/// its number, so that nothing is skipped silently.
pub(crate) fn for_each<T: DeserializeOwned>(
    file: Option<&Path>,
    mut each: impl FnMut(T) -> Result<(), Exit>,
) -> Result<(), Exit> {
    let named = file.filter(|file| *file != Path::new("-"));
    let name = named.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let reader: Box<dyn BufRead> = match named {
        None => Box::new(BufReader::new(std::io::stdin())),
        Some(file) => {
            Box::new(BufReader::new(File::open(file).with_context(|| format!("cannot open `{name}`"))?))
        }
    };
    for (number, line) in reader.split(b'\n').enumerate() {
        let line = line.with_context(|| format!("cannot read `{name}`"))?;
        let mut text = line.trim_ascii();
        if number == 0 {
            text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        }
        if text.is_empty() {
            continue;
        }
        let row = serde_json::from_slice(text)
            .map_err(|error| Exit { code: 2, message: format!("`{name}` line {}: {error}", number + 1) })?;
        each(row)?;
    }
    Ok(())
}
