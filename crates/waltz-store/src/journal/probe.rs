//! Finding out whether the journal takes entries again after it refused one, without an entry at hand. Whoever decides to begin an
//! exchange asks, on its own thread.

use super::Journal;
use crate::{Error, Sync};

/// What is written: four of them are an impossible length, so that nothing in a run of them can be read as a frame, and a crash
/// before the cut leaves a torn tail as any other.
pub(super) const PROBE: u8 = 0xff;
/// Less would fit into the rest of a block that the file has already.
const LEAST_BYTES: u64 = 4 << 10;
const MOST_BYTES: u64 = 1 << 20;

impl Journal {
    /// Writes as much behind the journal's end as the largest entry that was refused, as an append would, and cuts it off again.
    pub(crate) fn probe(&self) -> Result<(), Error> {
        let mut writer = self.writer();
        let size = writer.refused.clamp(LEAST_BYTES, MOST_BYTES).min(self.max_bytes);
        self.make_room(&mut writer, size)?;
        let bytes = vec![PROBE; usize::try_from(size).unwrap_or_default()];
        self.put(&mut writer, &bytes)?;
        writer.half_frame = true;
        let synced = if self.sync == Sync::Power { writer.file.sync_data() } else { Ok(()) };
        self.cut(&mut writer)?;
        if let Err(source) = synced {
            // What others wait for may be gone with it.
            writer.sync_failed = writer.sync_failed.max(writer.end());
            return Err(self.refused_by("sync journal segment", &writer, source));
        }
        writer.refused = 0;
        Ok(())
    }
}
