//! The journal: an append-only log of frames in segment files, written before a client is told that
//! its exchange is finished. Request tasks append to it from many threads; the drain task reads it
//! and tells it what has reached the database. Every start begins a new segment, so that a position
//! in the database can never point into bytes that were written later.

mod probe;
mod reader;
mod recent;
mod recover;
mod recovered;
mod segment;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::rows::ExchangeRows;
use crate::{Entry, Error, Settings, Sync, frame};

pub(crate) use reader::{Batch, Payload};
use recent::Recent;
pub use recovered::{Recovered, recover};
pub(crate) use segment::Position;
use segment::{FIRST_OFFSET, Segment};

/// The journal of one data folder.
pub(crate) struct Journal {
    folder: PathBuf,
    sync: Sync,
    segment_bytes: u64,
    max_bytes: u64,
    batch: u64,
    writer: Mutex<Writer>,
    /// How far the disk has confirmed the journal; used with [`Sync::Power`] only.
    confirmed: Mutex<Position>,
    undrained_bytes: AtomicU64,
    undrained_entries: AtomicU64,
    torn_bytes: u64,
    /// Rung at every append.
    pub(crate) appended: Notify,
    /// Rung when the drain should not wait for more entries.
    pub(crate) hurry: Notify,
}

/// What the appending side holds.
struct Writer {
    file: Arc<File>,
    number: u64,
    length: u64,
    /// A failed write left bytes behind `length` that could not be cut off yet.
    half_frame: bool,
    /// The size of the largest entry that was refused since the journal was known to take entries.
    refused: u64,
    closed: bool,
    /// Older segments that are not drained yet, oldest first.
    sealed: VecDeque<Segment>,
    /// Names of the segments that were set aside.
    damaged: Vec<String>,
    /// The end of the newest segment whose last sync was refused.
    sync_failed: Position,
    /// What was appended and not drained yet, as far as there was room.
    recent: Recent,
    #[cfg(test)]
    fault: Option<usize>,
}

impl Journal {
    /// Opens the journal folder: removes what is drained, cuts a torn tail, begins a new segment.
    /// Blocks on files.
    pub(crate) fn open(settings: &Settings, drained: Position) -> Result<Self, Error> {
        let folder = folder(&settings.data_dir);
        fs::create_dir_all(&folder).map_err(Error::file("create journal folder", &folder))?;
        let recovered = recover::recover(&folder, drained)?;
        let durable = settings.sync == Sync::Power;
        let file = segment::create(&folder, recovered.next_number, durable)?;
        let writer = Writer {
            file: Arc::new(file),
            number: recovered.next_number,
            length: FIRST_OFFSET,
            half_frame: false,
            refused: 0,
            closed: false,
            sealed: recovered.segments,
            damaged: recovered.damaged,
            sync_failed: Position::default(),
            recent: Recent::new(settings.recent_bytes),
            #[cfg(test)]
            fault: None,
        };
        Ok(Self {
            folder,
            sync: settings.sync,
            segment_bytes: settings.segment_bytes,
            max_bytes: settings.max_journal_bytes,
            batch: settings.drain_batch as u64,
            writer: Mutex::new(writer),
            confirmed: Mutex::default(),
            undrained_bytes: AtomicU64::new(recovered.undrained_bytes),
            undrained_entries: AtomicU64::new(0),
            torn_bytes: recovered.torn_bytes,
            appended: Notify::new(),
            hurry: Notify::new(),
        })
    }

    /// Appends one entry with one write. When it returns, no crash of the process loses the entry.
    pub(crate) fn append(&self, entry: &Entry) -> Result<(), Error> {
        let mut buffer = frame::begin(entry.about_bytes());
        serde_json::to_writer(&mut buffer, entry).map_err(|source| Error::Encode { source })?;
        if !frame::finish(&mut buffer) {
            let bytes = buffer.len() - frame::FRAME_HEADER_BYTES;
            return Err(Error::EntryTooLarge { bytes, limit: frame::MAX_PAYLOAD_BYTES });
        }
        let (file, end) = self.write(buffer, entry.rows())?;
        let waiting = self.undrained_entries.fetch_add(1, Ordering::Relaxed) + 1;
        self.appended.notify_one();
        if waiting == self.batch {
            self.hurry.notify_one();
        }
        if self.sync == Sync::Power { self.confirm(&file, end) } else { Ok(()) }
    }

    /// Whether an append waits for the disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.sync == Sync::Power
    }

    /// Where the journal ends now.
    pub(crate) fn end(&self) -> Position {
        self.writer().end()
    }

    /// Refuses appends from now on.
    pub(crate) fn close(&self) {
        self.writer().closed = true;
    }

    /// Everything before `position` is in the database: forgets it and deletes finished segments.
    pub(crate) fn release(&self, position: Position, bytes: u64, entries: u64) -> Result<(), Error> {
        self.undrained_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Entries that an earlier process appended were never counted here.
        let counted = |waiting: u64| Some(waiting.saturating_sub(entries));
        let _ = self.undrained_entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        let mut finished = Vec::new();
        {
            let mut writer = self.writer();
            while writer.sealed.front().is_some_and(|oldest| oldest.number < position.segment) {
                finished.extend(writer.sealed.pop_front());
            }
        }
        for segment in finished.iter().filter(|segment| !segment.damaged) {
            remove(&segment.path)?;
        }
        Ok(())
    }

    /// Bytes that wait for the database.
    pub(crate) fn undrained_bytes(&self) -> u64 {
        self.undrained_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of a torn tail that were cut off when the journal was opened.
    pub(crate) fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Names of the segments that were set aside because part of them cannot be read.
    pub(crate) fn damaged(&self) -> Vec<String> {
        self.writer().damaged.clone()
    }

    /// Renames a segment in which damage was found, so that it is never deleted.
    fn set_aside(&self, number: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        if writer.number == number {
            self.rotate(&mut writer)?;
        }
        let Writer { sealed, damaged, .. } = &mut *writer;
        let Some(segment) = sealed.iter_mut().find(|segment| segment.number == number && !segment.damaged)
        else {
            return Ok(());
        };
        segment.path = recover::set_aside(&self.folder, segment)?;
        segment.damaged = true;
        damaged.push(recover::name(&segment.path));
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while the lock was held leaves `length` at the last good frame, so going on is safe.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, bytes: Vec<u8>, rows: Option<Box<ExchangeRows>>) -> Result<(Arc<File>, Position), Error> {
        let size = bytes.len() as u64;
        let mut writer = self.writer();
        let after = writer.end();
        let taken = self.make_room(&mut writer, size).and_then(|()| self.put(&mut writer, &bytes));
        if let Err(error) = taken {
            writer.refused = writer.refused.max(size);
            return Err(error);
        }
        let position = writer.end();
        writer.length += size;
        self.undrained_bytes.fetch_add(size, Ordering::Relaxed);
        let end = writer.end();
        let bytes = Bytes::from(bytes).slice(frame::FRAME_HEADER_BYTES..);
        writer.recent.keep(after, end, Payload { position, bytes, rows });
        Ok((Arc::clone(&writer.file), end))
    }

    /// Brings the journal into a state in which so many bytes can be written, unless it takes none.
    fn make_room(&self, writer: &mut Writer, size: u64) -> Result<(), Error> {
        if writer.closed {
            return Err(Error::Closed);
        }
        let undrained = self.undrained_bytes();
        if undrained + size > self.max_bytes {
            return Err(Error::JournalFull { undrained, limit: self.max_bytes });
        }
        if writer.half_frame {
            self.cut(writer)?;
        }
        if writer.length + size > self.segment_bytes && writer.length > FIRST_OFFSET {
            self.rotate(writer)?;
        }
        Ok(())
    }

    /// Writes behind the journal's end, or leaves nothing there.
    fn put(&self, writer: &mut Writer, bytes: &[u8]) -> Result<(), Error> {
        let Err(source) = writer.write_all(bytes) else { return Ok(()) };
        writer.half_frame = true;
        if let Err(error) = self.cut(writer) {
            tracing::error!(%error, "half a journal frame is left and is cut off before the next append");
        }
        Err(self.refused_by("append to journal segment", writer, source))
    }

    fn refused_by(&self, operation: &'static str, writer: &Writer, source: io::Error) -> Error {
        Error::File { operation, path: segment::path(&self.folder, writer.number), source }
    }

    /// Brings the file back to its last good length.
    fn cut(&self, writer: &mut Writer) -> Result<(), Error> {
        let path = segment::path(&self.folder, writer.number);
        writer.file.set_len(writer.length).map_err(Error::file("cut journal segment", path))?;
        writer.half_frame = false;
        Ok(())
    }

    fn rotate(&self, writer: &mut Writer) -> Result<(), Error> {
        let next = writer.number + 1;
        let durable = self.sync == Sync::Power;
        let file = segment::create(&self.folder, next, durable)?;
        if durable && let Err(error) = writer.file.sync_data() {
            tracing::error!(%error, segment = writer.number, "cannot sync a full journal segment");
            writer.sync_failed = writer.end();
        }
        writer.sealed.push_back(Segment {
            number: writer.number,
            path: segment::path(&self.folder, writer.number),
            length: writer.length,
            damaged: false,
        });
        writer.file = Arc::new(file);
        writer.number = next;
        writer.length = FIRST_OFFSET;
        Ok(())
    }

    /// Waits until the disk has confirmed everything before `end`. Whoever comes first syncs for all
    /// that wait behind it. Lock order: `confirmed`, then `writer`.
    fn confirm(&self, file: &File, end: Position) -> Result<(), Error> {
        let path = segment::path(&self.folder, end.segment);
        let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let (written, failed) = {
            let writer = self.writer();
            (writer.end(), writer.sync_failed)
        };
        if end <= failed {
            let source = io::Error::other("an earlier sync of the same bytes was refused");
            return Err(Error::File { operation: "sync journal segment", path, source });
        }
        if end <= *confirmed {
            return Ok(());
        }
        let through = if written.segment == end.segment { written } else { end };
        if let Err(source) = file.sync_data() {
            // After a refused sync the kernel may have dropped the pages: a later success would lie
            // about these bytes.
            let mut writer = self.writer();
            writer.sync_failed = writer.sync_failed.max(through);
            return Err(Error::File { operation: "sync journal segment", path, source });
        }
        *confirmed = (*confirmed).max(through);
        Ok(())
    }
}

impl Writer {
    /// Where the journal ends.
    fn end(&self) -> Position {
        Position { segment: self.number, offset: self.length }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(kept) = self.fault.take() {
            (&*self.file).write_all(&bytes[..kept.min(bytes.len())])?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        (&*self.file).write_all(bytes)
    }
}

/// The journal's folder in a data folder.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("journal")
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::File { operation: "delete journal segment", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
