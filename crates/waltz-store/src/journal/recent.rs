//! What this process appended and has not drained yet, as it was in memory, so that the drain neither reads nor
//! parses it. Only a help: the file is the truth, and whatever is not here is read from there: what an earlier process
//! left, what found no room while the database was away, and the second attempt at a batch.

use std::collections::VecDeque;

use super::Batch;
use super::reader::Payload;
use super::segment::Position;

/// Entries in the order of the journal, perhaps with gaps.
pub(super) struct Recent {
    entries: VecDeque<Appended>,
    bytes: usize,
    limit: usize,
}

struct Appended {
    /// Where the journal ended before: in an earlier segment, if this entry is the first of its own.
    after: Position,
    /// Where it ended with this entry.
    end: Position,
    payload: Payload,
}

impl Recent {
    /// Keeps at most so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, limit }
    }

    /// Keeps an entry that was just written, if there is room.
    pub(super) fn keep(&mut self, after: Position, end: Position, payload: Payload) {
        let bytes = size(&payload);
        if self.bytes + bytes <= self.limit {
            self.bytes += bytes;
            self.entries.push_back(Appended { after, end, payload });
        }
    }

    /// Moves what follows the batch without a gap into it, until the batch is full.
    pub(super) fn move_into(&mut self, batch: &mut Batch, limit: usize) {
        while !batch.is_full(limit) {
            let Some(Appended { after, payload, .. }) = self.entries.front() else { return };
            let is_next = *after == batch.next || payload.position == batch.next;
            if !is_next && payload.position > batch.next {
                return;
            }
            let Some(Appended { end, payload, .. }) = self.entries.pop_front() else { return };
            self.bytes -= size(&payload);
            // What lies before was read from the file.
            if is_next {
                batch.add(payload, end);
            }
        }
    }
}

/// What an entry takes at most, or about so much: its rows may have its texts once more.
fn size(payload: &Payload) -> usize {
    2 * payload.bytes.len()
}
