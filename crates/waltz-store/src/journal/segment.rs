//! Segment files: their names, their header, and the folder that holds them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;

/// The first bytes of every segment: a name and the version of the format.
pub(crate) const HEADER: &[u8; 8] = b"WALTZJ1\n";
/// Where the first frame of a segment begins.
pub(crate) const FIRST_OFFSET: u64 = HEADER.len() as u64;
const FAMILY: &[u8] = b"WALTZJ";

/// A place in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The number of the segment.
    pub(crate) segment: u64,
    /// The byte in it.
    pub(crate) offset: u64,
}

/// A segment that is no longer written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its place in the order of segments.
    pub(crate) number: u64,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its size.
    pub(crate) length: u64,
    /// It was set aside: it is read but never deleted.
    pub(crate) damaged: bool,
}

/// What the first bytes of a segment say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A segment of this format.
    Known,
    /// A segment of another version.
    OtherVersion,
    /// The file was created but its header was never finished.
    Unfinished,
    /// Something else.
    Garbage,
}

/// Looks at the first bytes of a segment.
pub(crate) fn header(bytes: &[u8]) -> Header {
    if bytes.starts_with(HEADER) {
        return Header::Known;
    }
    if bytes.len() < HEADER.len() {
        return if HEADER.starts_with(bytes) { Header::Unfinished } else { Header::Garbage };
    }
    if bytes.starts_with(FAMILY) { Header::OtherVersion } else { Header::Garbage }
}

/// The file of a segment that is sound as far as is known.
pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016}.journal"))
}

/// The file of a segment that was set aside.
pub(crate) fn damaged_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016}.damaged"))
}

/// Creates a segment and writes its header. With `durable` its name survives a power cut.
pub(crate) fn create(folder: &Path, number: u64, durable: bool) -> Result<File, Error> {
    let path = path(folder, number);
    let file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(&path)
        .map_err(Error::file("create journal segment", &path))?;
    let begun = begin(&file, folder, durable).map_err(Error::file("create journal segment", &path));
    if begun.is_err() {
        // The name must be free for the next attempt; should this fail too, that attempt says so.
        let _ = fs::remove_file(&path);
    }
    begun.map(|()| file)
}

fn begin(mut file: &File, folder: &Path, durable: bool) -> io::Result<()> {
    file.write_all(HEADER)?;
    if durable { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// All segments of a folder in order. Other files are left alone.
pub(crate) fn list(folder: &Path) -> Result<Vec<Segment>, Error> {
    let mut segments = Vec::new();
    let entries = fs::read_dir(folder).map_err(Error::file("list journal folder", folder))?;
    for entry in entries {
        let entry = entry.map_err(Error::file("list journal folder", folder))?;
        let path = entry.path();
        let Some((number, damaged)) = parse(&path) else {
            continue;
        };
        let metadata = entry.metadata().map_err(Error::file("look at journal segment", &path))?;
        segments.push(Segment { number, path, length: metadata.len(), damaged });
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

fn parse(path: &Path) -> Option<(u64, bool)> {
    let damaged = match path.extension()?.to_str()? {
        "journal" => false,
        "damaged" => true,
        _ => return None,
    };
    let number = path.file_stem()?.to_str()?.parse().ok()?;
    Some((number, damaged))
}
