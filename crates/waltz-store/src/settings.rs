//! How a store is opened. The program fills these from its configuration.

use std::path::PathBuf;
use std::time::Duration;

use crate::frame::MAX_PAYLOAD_BYTES;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder that holds the database, the journal and the lock file.
    pub data_dir: PathBuf,
    /// What an append survives.
    pub sync: Sync,
    /// A journal segment that has reached this size is closed and a new one is begun.
    pub segment_bytes: u64,
    /// Appends are refused when this much of the journal waits for the database.
    pub max_journal_bytes: u64,
    /// How long the drain gathers entries before it commits them together.
    pub drain_delay: Duration,
    /// The most entries of one commit.
    pub drain_batch: usize,
    /// The longest pause between two attempts while the database is away.
    pub retry_limit: Duration,
    /// How long a statement waits for another process that writes to the same database.
    pub busy_timeout: Duration,
    /// Connections that read.
    pub readers: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            sync: Sync::Process,
            segment_bytes: 64 << 20,
            max_journal_bytes: 1 << 30,
            drain_delay: Duration::from_millis(10),
            drain_batch: 512,
            retry_limit: Duration::from_secs(5),
            busy_timeout: Duration::from_secs(5),
            readers: 4,
        }
    }
}

impl Settings {
    /// The defaults on a given folder.
    pub fn at(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), ..Self::default() }
    }
}

/// What an append survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// A crash of the process. The operating system holds the bytes.
    #[default]
    Process,
    /// A power cut as well: the disk has confirmed the bytes before the append returns. Appends that
    /// meet share one confirmation. Each waits for the disk, so call it where blocking is allowed.
    Power,
}

/// The largest entry, in bytes of its JSON form.
pub const MAX_ENTRY_BYTES: usize = MAX_PAYLOAD_BYTES;
