//! Everything that can go wrong in the store. Messages name the operation and the object and never
//! carry text of an exchange.

use std::io;
use std::path::PathBuf;

/// What went wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of the data folder could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    File {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process holds the data folder.
    #[error("data folder `{}` is in use by another waltz process; stop it, or choose another folder", data_dir.display())]
    Locked {
        /// The folder.
        data_dir: PathBuf,
    },
    /// The database answered with an error.
    #[error("cannot {operation} in the database")]
    Database {
        /// What was tried, as a verb and its object.
        operation: &'static str,
        /// The database's answer.
        source: sqlx::Error,
    },
    /// The database file cannot be opened.
    #[error("cannot open database `{}`", path.display())]
    OpenDatabase {
        /// The file.
        path: PathBuf,
        /// The database's answer.
        source: sqlx::Error,
    },
    /// The database file is there but is not a sound waltz database.
    #[error(
        "database `{}` is damaged ({reason}); restore it from a backup, the journal beside it is replayed into it",
        path.display()
    )]
    DatabaseDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no database where one is needed.
    #[error("database `{}` is missing; {hint}", path.display())]
    DatabaseMissing {
        /// The file.
        path: PathBuf,
        /// What to do about it.
        hint: &'static str,
    },
    /// The URL of a PostgreSQL database cannot be read. It is not repeated: it may hold a password.
    #[error(
        "the database URL cannot be read; it must have the form postgres://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    DatabaseUrl,
    /// The URL has a parameter that is not known.
    #[error(
        "the database URL has the unknown parameter `{name}`; its value is not shown, as it may be a secret"
    )]
    DatabaseUrlParameter {
        /// The name before the `=`.
        name: String,
    },
    /// The PostgreSQL server refused the connection or cannot be reached.
    #[error("cannot connect to PostgreSQL database {server}")]
    Server {
        /// Database and host.
        server: String,
        /// The server's answer.
        source: sqlx::Error,
    },
    /// The PostgreSQL server was away for too long when the store was opened.
    #[error(
        "PostgreSQL database {server} could not be reached for {seconds} s; start the server, or correct the database URL"
    )]
    ServerAway {
        /// Database and host.
        server: String,
        /// How long it was tried.
        seconds: u64,
        /// The last answer.
        source: sqlx::Error,
    },
    /// Another gateway drains a journal under the same id.
    #[error(
        "another gateway is connected to the database as instance `{instance}`; stop it, or, where this data \
         folder is a copy of its folder, delete the file `instance` of the copy"
    )]
    InstanceInUse {
        /// The id that both have.
        instance: String,
    },
    /// The file with the instance id does not hold one.
    #[error(
        "`{}` holds no instance id; restore it, or delete it to start as a new gateway, which stores again what its journal holds",
        path.display()
    )]
    UnknownInstance {
        /// The file.
        path: PathBuf,
    },
    /// The database holds tables, but not those of waltz.
    #[error(
        "database {database} holds tables that are not waltz's; give waltz a database or a schema of its own"
    )]
    ForeignTables {
        /// Its name.
        database: String,
    },
    /// The database was written by a newer waltz.
    #[error(
        "database schema is version {found}, this waltz knows versions up to {known}; \
         start the newer waltz again, or restore a backup made before the upgrade"
    )]
    SchemaTooNew {
        /// The version of the database.
        found: i64,
        /// The newest version of this program.
        known: i64,
    },
    /// A reader met a database that still has to be migrated.
    #[error(
        "database schema is version {found}, this waltz reads version {known}; start `waltz serve` once to migrate it"
    )]
    SchemaTooOld {
        /// The version of the database.
        found: i64,
        /// The version that is needed.
        known: i64,
    },
    /// The undrained journal has reached its bound.
    #[error("journal is full: {undrained} bytes wait for the database, {limit} are allowed")]
    JournalFull {
        /// Bytes that wait.
        undrained: u64,
        /// The bound.
        limit: u64,
    },
    /// The journal was closed.
    #[error("cannot append to the journal: it is closed")]
    Closed,
    /// An entry is larger than one frame may be.
    #[error("cannot append an entry of {bytes} bytes to the journal: at most {limit} are allowed")]
    EntryTooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A segment has a header that this program does not know.
    #[error("journal segment `{}` has an unknown format; it was written by a newer waltz or is not a segment", path.display())]
    UnknownSegment {
        /// The file.
        path: PathBuf,
    },
    /// The store was opened for reading only.
    #[error("cannot append: the store was opened for reading only")]
    ReadOnly,
    /// The drain task is gone before everything was in the database.
    #[error("the journal is no longer drained; what is left is replayed at the next start")]
    DrainStopped,
    /// An entry could not be written as JSON.
    #[error("cannot encode a journal entry")]
    Encode {
        /// The encoder's answer.
        source: serde_json::Error,
    },
    /// A stored row could not be read back.
    #[error("cannot read {what} `{id}` from the database")]
    Decode {
        /// The kind of row.
        what: &'static str,
        /// Its key.
        id: String,
        /// The decoder's answer.
        source: serde_json::Error,
    },
    /// A name that is none of the allowed ones.
    #[error("`{name}` is not {what}; allowed are {allowed}")]
    UnknownName {
        /// What a name was wanted for, with its article.
        what: &'static str,
        /// The names that exist.
        allowed: &'static str,
        /// The name that was given.
        name: String,
    },
    /// An export could not be written.
    #[error("cannot write the export")]
    Export {
        /// The writer's answer.
        source: io::Error,
    },
    /// This program was built without the format.
    #[error(
        "this waltz was built without the parquet format; export json or jsonl, or build with the feature `parquet`"
    )]
    FormatNotBuilt,
    /// A background thread of the store stopped before its work was done.
    #[error("a background thread of the store stopped while it had to {operation}")]
    Worker {
        /// What it was doing.
        operation: &'static str,
    },
}

/// An error with its causes, on one line. A cause that the text before it ends with, as some libraries write it, is not said
/// twice.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

impl Error {
    /// Wraps a database error for `map_err`.
    pub(crate) fn database(operation: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { operation, source }
    }

    /// Wraps a file error for `map_err`.
    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation, path: path.into(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let refused = || io::Error::from_raw_os_error(111);
        let away = Error::Server { server: "`waltz` on db".to_owned(), source: sqlx::Error::Io(refused()) };
        let said = chain(&away);
        assert!(said.starts_with("cannot connect to PostgreSQL database `waltz` on db: "), "{said}");
        assert_eq!(said.matches(&refused().to_string()).count(), 1, "{said}");
        let file = Error::File { operation: "read", path: "a".into(), source: refused() };
        assert_eq!(chain(&file), format!("cannot read `a`: {}", refused()));
        assert_eq!(chain(&Error::ReadOnly), Error::ReadOnly.to_string());
    }
}
