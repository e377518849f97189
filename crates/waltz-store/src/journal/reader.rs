//! Reading of the journal by the drain task, on a blocking thread. From files it reads only what the writer has
//! published, never the bytes of a write that is under way.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;

use super::segment::{self, FIRST_OFFSET, Position, Segment};
use super::{Journal, recover};
use crate::Error;
use crate::frame::{self, Frame};
use crate::rows::ExchangeRows;

/// What is read from a file at once.
const CHUNK_BYTES: u64 = 4 << 20;
const MAX_FRAME_BYTES: u64 = (frame::FRAME_HEADER_BYTES + frame::MAX_PAYLOAD_BYTES) as u64;
/// A batch ends when it holds this much, whatever its number of entries.
const BATCH_BYTES: u64 = 4 << 20;

/// One entry.
#[derive(Debug)]
pub(crate) struct Payload {
    /// Where its frame begins.
    pub(crate) position: Position,
    /// Its JSON. Those that were read from a file share what was read.
    pub(crate) bytes: Bytes,
    /// The rows of the exchange that it is, if this process appended it a moment ago.
    pub(crate) rows: Option<Box<ExchangeRows>>,
}

/// Payloads in the order in which they were appended.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// What was appended.
    pub(crate) payloads: Vec<Payload>,
    /// Where reading goes on after this batch is in the database.
    pub(crate) next: Position,
    /// Where the journal ended when reading began.
    pub(crate) end: Position,
    /// How much of the journal the batch covers, unreadable bytes included.
    pub(crate) bytes: u64,
    /// How many of those bytes could not be read.
    pub(crate) unreadable: u64,
}

impl Batch {
    /// Whether it takes no more.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.payloads.len() >= limit || self.bytes >= BATCH_BYTES
    }

    /// Adds the entry that comes next and ends at `end`.
    pub(super) fn add(&mut self, payload: Payload, end: Position) {
        self.bytes += frame::size(&payload.bytes);
        self.next = end;
        self.payloads.push(payload);
    }
}

impl Journal {
    /// At most `limit` entries from `from` on: those that are still in memory, and if the next is not, from the file.
    pub(crate) fn read(&self, from: Position, limit: usize) -> Result<Batch, Error> {
        let mut batch = Batch { next: from, ..Batch::default() };
        {
            let mut writer = self.writer();
            batch.end = writer.end();
            writer.recent.move_into(&mut batch, limit);
        }
        if !batch.payloads.is_empty() {
            return Ok(batch);
        }
        while let Some((segment, sealed)) = self.segment_at(batch.next.segment) {
            let offset = recover::start(segment.number, batch.next);
            batch.next = Position { segment: segment.number, offset };
            if offset < segment.length {
                self.read_segment(&segment, &mut batch, limit)?;
            }
            let ended = batch.next.offset >= segment.length;
            if !ended || !sealed || batch.is_full(limit) {
                break;
            }
            batch.next = Position { segment: segment.number + 1, offset: FIRST_OFFSET };
        }
        Ok(batch)
    }

    /// The first segment whose number is not below `number`, and whether it is finished.
    fn segment_at(&self, number: u64) -> Option<(Segment, bool)> {
        let writer = self.writer();
        if let Some(sealed) = writer.sealed.iter().find(|segment| segment.number >= number) {
            return Some((sealed.clone(), true));
        }
        let path = segment::path(&self.folder, writer.number);
        let active = Segment { number: writer.number, path, length: writer.length, damaged: false };
        (active.number >= number).then_some((active, false))
    }

    /// Reads frames of one segment until it ends or the batch is full.
    fn read_segment(&self, segment: &Segment, batch: &mut Batch, limit: usize) -> Result<(), Error> {
        let file = File::open(&segment.path).map_err(Error::file("open journal segment", &segment.path))?;
        let mut want = CHUNK_BYTES;
        while batch.next.offset < segment.length && !batch.is_full(limit) {
            let left = segment.length - batch.next.offset;
            let chunk = read_at(&file, &segment.path, batch.next.offset, left.min(want))?;
            if take_frames(&chunk, batch, limit) > 0 {
                want = CHUNK_BYTES;
                continue;
            }
            if (chunk.len() as u64) < left && frame::read(&chunk) == Frame::Short {
                // One frame is larger than a chunk, or a damaged length field says so.
                want = MAX_FRAME_BYTES;
                continue;
            }
            self.skip_damage(segment, &file, batch)?;
            // The segment may have been renamed and, if it was the active one, finished.
            return Ok(());
        }
        Ok(())
    }

    /// Moves over bytes that are no frame, to the next sound frame or to the end of the segment.
    fn skip_damage(&self, segment: &Segment, file: &File, batch: &mut Batch) -> Result<(), Error> {
        self.set_aside(segment.number)?;
        let left = segment.length - batch.next.offset;
        let rest = read_at(file, &segment.path, batch.next.offset, left)?;
        let skipped = frame::resync(&rest).map_or(left, |skipped| skipped as u64);
        tracing::error!(
            segment = segment.number,
            offset = batch.next.offset,
            bytes = skipped,
            "journal bytes cannot be read"
        );
        batch.next.offset += skipped;
        batch.bytes += skipped;
        batch.unreadable += skipped;
        Ok(())
    }
}

/// Moves the sound frames at the beginning of `chunk` into the batch and returns how many.
fn take_frames(chunk: &Bytes, batch: &mut Batch, limit: usize) -> usize {
    let mut taken = 0;
    let mut rest = &chunk[..];
    while !batch.is_full(limit) {
        let Frame::Sound(payload) = frame::read(rest) else {
            break;
        };
        let position = batch.next;
        let end = Position { offset: position.offset + frame::size(payload), ..position };
        batch.add(Payload { position, bytes: chunk.slice_ref(payload), rows: None }, end);
        rest = &rest[frame::FRAME_HEADER_BYTES + payload.len()..];
        taken += 1;
    }
    taken
}

fn read_at(file: &File, path: &Path, offset: u64, length: u64) -> Result<Bytes, Error> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, offset).map_err(Error::file("read journal segment", path))?;
    Ok(bytes.into())
}
