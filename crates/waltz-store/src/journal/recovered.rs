//! The journal of a data folder, recovered and read to its end without a database: the same opening and the
//! same reading as a start of the gateway, for checks of the journal alone.

use super::{Journal, Position};
use crate::{Error, Settings};

/// The most entries that are read at once.
const BATCH: usize = 1024;

/// What a start finds in the journal.
#[derive(Debug)]
pub struct Recovered {
    /// The payload of every frame that can be read, in the order of the journal.
    pub payloads: Vec<Vec<u8>>,
    /// Bytes between frames that cannot be read.
    pub unreadable_bytes: u64,
    /// Bytes of a torn tail that were cut off.
    pub torn_bytes: u64,
    /// Names of the segments that were set aside.
    pub damaged: Vec<String>,
}

/// Opens the journal as a start does, which cuts off a torn tail and begins a new segment, and reads all of
/// it. Blocks on files.
pub fn recover(settings: &Settings) -> Result<Recovered, Error> {
    let journal = Journal::open(settings, Position::default())?;
    let mut payloads = Vec::new();
    let mut unreadable_bytes = 0;
    let mut position = Position::default();
    loop {
        let batch = journal.read(position, BATCH)?;
        if batch.next == position {
            let (torn_bytes, damaged) = (journal.torn_bytes(), journal.damaged());
            return Ok(Recovered { payloads, unreadable_bytes, torn_bytes, damaged });
        }
        payloads.extend(batch.payloads.into_iter().map(|payload| payload.bytes.to_vec()));
        unreadable_bytes += batch.unreadable;
        position = batch.next;
    }
}
