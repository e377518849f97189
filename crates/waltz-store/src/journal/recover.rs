//! What is done with the journal folder when a store is opened. Runs once, on a blocking thread,
//! before anything is appended.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use super::segment::{self, FIRST_OFFSET, Header, Position, Segment};
use crate::Error;
use crate::frame::{self, Frame};

/// The journal as an earlier process left it.
pub(super) struct Recovered {
    /// Segments that may hold undrained entries, oldest first.
    pub(super) segments: VecDeque<Segment>,
    /// Names of the segments that were set aside, now or earlier.
    pub(super) damaged: Vec<String>,
    /// The number of the segment to begin.
    pub(super) next_number: u64,
    /// Bytes that wait for the database.
    pub(super) undrained_bytes: u64,
    /// Bytes of a torn tail that were cut off.
    pub(super) torn_bytes: u64,
}

/// Brings the folder into order. `drained` is what the database says it has.
pub(super) fn recover(folder: &Path, drained: Position) -> Result<Recovered, Error> {
    let mut segments = VecDeque::new();
    let mut damaged = Vec::new();
    let mut highest = drained.segment;
    for mut segment in segment::list(folder)? {
        highest = highest.max(segment.number);
        if segment.damaged {
            damaged.push(name(&segment.path));
        } else if segment.number < drained.segment {
            // The process died after the commit and before the delete.
            super::remove(&segment.path)?;
        } else if !has_sound_header(&segment)? {
            segment.path = set_aside(folder, &segment)?;
            segment.damaged = true;
            damaged.push(name(&segment.path));
        }
        if segment.number >= drained.segment {
            segments.push_back(segment);
        }
    }
    let torn_bytes = match segments.back_mut() {
        Some(last) if !last.damaged => cut_torn_tail(last, drained)?,
        _ => 0,
    };
    let waiting = |segment: &Segment| segment.length.saturating_sub(start(segment.number, drained));
    let undrained_bytes = segments.iter().map(waiting).sum();
    Ok(Recovered { segments, damaged, next_number: highest + 1, undrained_bytes, torn_bytes })
}

/// Renames a segment so that it is kept, and returns its new path.
pub(super) fn set_aside(folder: &Path, segment: &Segment) -> Result<PathBuf, Error> {
    let path = segment::damaged_path(folder, segment.number);
    fs::rename(&segment.path, &path).map_err(Error::file("set aside journal segment", &segment.path))?;
    tracing::error!(segment = %name(&path), "a journal segment is damaged; what can be read of it is drained and the file is kept");
    Ok(path)
}

/// Where reading of a segment begins.
pub(super) fn start(number: u64, drained: Position) -> u64 {
    if number == drained.segment { drained.offset.max(FIRST_OFFSET) } else { FIRST_OFFSET }
}

/// The file name of a segment, for reports.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// False for a segment that has to be set aside.
fn has_sound_header(segment: &Segment) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    let file = fs::File::open(&segment.path).map_err(Error::file("open journal segment", &segment.path))?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, FIRST_OFFSET), &mut bytes)
        .map_err(Error::file("read journal segment", &segment.path))?;
    match segment::header(&bytes) {
        // A header that was never finished means that nothing was ever appended.
        Header::Known | Header::Unfinished => Ok(true),
        Header::Garbage => Ok(false),
        Header::OtherVersion => Err(Error::UnknownSegment { path: segment.path.clone() }),
    }
}

/// Cuts off what follows the last sound frame of the newest segment, and says how much that was.
/// Bytes that cannot be read but are followed by a sound frame are damage, not a tail, and stay.
fn cut_torn_tail(segment: &mut Segment, drained: Position) -> Result<u64, Error> {
    let bytes = fs::read(&segment.path).map_err(Error::file("read journal segment", &segment.path))?;
    let mut offset = usize::try_from(start(segment.number, drained)).unwrap_or(usize::MAX);
    while let Some(rest) = bytes.get(offset..) {
        match frame::read(rest) {
            Frame::Nothing => return Ok(0),
            Frame::Sound(payload) => offset += frame::FRAME_HEADER_BYTES + payload.len(),
            Frame::Short | Frame::Bad => match frame::resync(rest) {
                Some(skipped) => offset += skipped,
                None => break,
            },
        }
    }
    if offset >= bytes.len() {
        return Ok(0);
    }
    let torn = (bytes.len() - offset) as u64;
    tracing::warn!(segment = %name(&segment.path), bytes = torn, "cutting off the torn tail of the journal");
    let file = OpenOptions::new()
        .write(true)
        .open(&segment.path)
        .map_err(Error::file("open journal segment", &segment.path))?;
    file.set_len(offset as u64).map_err(Error::file("cut journal segment", &segment.path))?;
    segment.length = offset as u64;
    Ok(torn)
}
