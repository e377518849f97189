//! How a store is opened. The program fills these from its configuration.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::frame::MAX_PAYLOAD_BYTES;
use crate::{Error, database};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder that holds the journal, the lock file, and the database where that is SQLite. Every
    /// gateway has its own.
    pub data_dir: PathBuf,
    /// Where the journal is drained to.
    pub database: Database,
    /// What an append survives.
    pub sync: Sync,
    /// A journal segment that has reached this size is closed and a new one is begun.
    pub segment_bytes: u64,
    /// Appends are refused when this much of the journal waits for the database.
    pub max_journal_bytes: u64,
    /// How long the drain gathers entries before it commits them together.
    pub drain_delay: Duration,
    /// Entries of this process that the drain takes from memory, in bytes; what finds no room it reads from the journal.
    pub recent_bytes: usize,
    /// The most entries of one commit.
    pub drain_batch: usize,
    /// The longest pause between two attempts while the database is away.
    pub retry_limit: Duration,
    /// How long opening waits for a database server that is away.
    pub start_limit: Duration,
    /// How long a statement of SQLite waits for another process that writes to the same database.
    pub busy_timeout: Duration,
    /// Connections that read.
    pub readers: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            database: Database::Sqlite,
            sync: Sync::Process,
            segment_bytes: 64 << 20,
            max_journal_bytes: 1 << 30,
            drain_delay: Duration::from_millis(100),
            recent_bytes: 8 << 20,
            drain_batch: 1024,
            retry_limit: Duration::from_secs(5),
            start_limit: Duration::from_secs(30),
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

/// Where the journal is drained to.
#[derive(Clone, Debug, Default)]
pub enum Database {
    /// A file in the data folder, for one gateway.
    #[default]
    Sqlite,
    /// A PostgreSQL server that many gateways may share.
    Postgres {
        /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. It is never printed.
        url: SecretString,
    },
}

impl Database {
    /// A PostgreSQL database by its URL, which is read but not connected to.
    pub fn postgres(url: SecretString) -> Result<Self, Error> {
        database::check_url(&url)?;
        Ok(Self::Postgres { url })
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
