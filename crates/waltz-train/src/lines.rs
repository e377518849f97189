//! Files of JSON lines, packed with gzip or not.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::Error;

/// Opens a file for reading; one whose name ends with `.gz` is unpacked.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, Error> {
    let file = File::open(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(file))));
    }
    Ok(Box::new(BufReader::new(file)))
}

/// Calls `each` with the number, from 1, and the bytes of every line that is not blank.
pub(crate) fn for_each(path: &Path, mut each: impl FnMut(usize, &[u8])) -> Result<(), Error> {
    for (index, line) in open(path)?.split(b'\n').enumerate() {
        let line = line.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let mut text = line.trim_ascii();
        if index == 0 {
            text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        }
        if !text.is_empty() {
            each(index + 1, text);
        }
    }
    Ok(())
}
