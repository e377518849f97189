//! The database behind the store: opened here, migrated here, written through [`Writer`] and read
//! through [`Readers`]. SQLite lies in the data folder and belongs to one gateway; a PostgreSQL server
//! is shared by many, each with a journal of its own.

mod instance;
mod migrate;
mod postgres;
mod sqlite;

use std::time::Duration;

use postgres::Use;
use secrecy::SecretString;
use sqlx::sqlite::SqlitePool;

use crate::sql::{Readers, Transaction};
use crate::{Database, Error, Settings};

/// How long one commit may take on a server that can go silent; then its connection is given up.
pub(crate) const COMMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long a change of variants may take: a bit longer than the server gives it.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_secs(12);

/// A connection that writes. The drain owns one; another is for what people and lessons change.
pub(crate) enum Writer {
    Sqlite(SqlitePool),
    Postgres(Box<postgres::Link>),
}

impl Writer {
    /// Opens the connection that writes, and migrates.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Error> {
        let mut writer = match &settings.database {
            Database::Sqlite => Self::Sqlite(sqlite::open_writer(settings).await?),
            Database::Postgres { url } => {
                let instance = instance::of(&settings.data_dir)?;
                let link = postgres::Link::open(url, Use::Drain(instance), settings.start_limit).await?;
                Self::Postgres(Box::new(link))
            }
        };
        let (name, migrations) = match &writer {
            Self::Sqlite(_) => (sqlite::name(settings), migrate::SQLITE),
            Self::Postgres(link) => (link.server().to_owned(), migrate::POSTGRES),
        };
        migrate::migrate(&mut writer, migrations, &name).await?;
        if let Self::Sqlite(pool) = &writer {
            sqlite::forget_pages(pool).await?;
        }
        Ok(writer)
    }

    /// Opens a further connection that writes, to a database that is there and has the schema of this program.
    pub(crate) async fn beside(settings: &Settings) -> Result<Self, Error> {
        match &settings.database {
            Database::Sqlite => sqlite::open_beside(settings).await.map(Self::Sqlite),
            Database::Postgres { url } => {
                let link = postgres::Link::open(url, Use::Change, settings.start_limit).await?;
                Ok(Self::Postgres(Box::new(link)))
            }
        }
    }

    /// Begins a transaction, on a new connection where the last one was given up.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        match self {
            // The lock is taken at once: a reader that turns into a writer half-way could be refused.
            Self::Sqlite(pool) => pool
                .begin_with("BEGIN IMMEDIATE")
                .await
                .map(Transaction::Sqlite)
                .map_err(Error::database("begin a transaction")),
            Self::Postgres(link) => link.begin().await.map(Transaction::Postgres),
        }
    }

    /// Whose journal is drained: the key of this gateway's rows in a shared database. A database of its
    /// own needs none.
    pub(crate) fn instance(&self) -> String {
        match self {
            Self::Sqlite(_) => String::new(),
            Self::Postgres(link) => link.instance(),
        }
    }

    /// How long a commit may take; `None` where nothing can go silent.
    pub(crate) fn limit(&self) -> Option<Duration> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(_) => Some(COMMIT_LIMIT),
        }
    }

    /// Gives up a connection on which something failed, so that the next attempt makes a new one.
    pub(crate) async fn give_up_connection(&mut self) {
        match self {
            // SQLite ends a transaction by itself when the disk is full, which the connection does not notice:
            // it would refuse to begin another one for ever.
            Self::Sqlite(pool) => match pool.acquire().await {
                Ok(connection) => {
                    connection.close().await.unwrap_or_else(|error| {
                        tracing::warn!(%error, "a connection to the database could not be closed");
                    });
                }
                Err(error) => tracing::warn!(%error, "the connection to the database is not at hand"),
            },
            Self::Postgres(link) => link.give_up(),
        }
    }

    /// Saves a database of an older version before it is migrated. A server is backed up by those who run it.
    async fn back_up(&self, version: i64) -> Result<(), Error> {
        match self {
            Self::Sqlite(pool) => sqlite::back_up(pool, version).await,
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Ends the connection. With `tidy` SQLite's write-ahead log is moved into its file first.
    pub(crate) async fn close(self, tidy: bool) -> Result<(), Error> {
        match self {
            Self::Sqlite(pool) => {
                let checkpointed = if tidy { sqlite::checkpoint(&pool).await } else { Ok(()) };
                pool.close().await;
                checkpointed
            }
            Self::Postgres(link) => {
                link.close().await;
                Ok(())
            }
        }
    }
}

/// Opens connections that read. The schema must be the one of this program.
pub(crate) async fn open_readers(settings: &Settings) -> Result<Readers, Error> {
    match &settings.database {
        Database::Sqlite => {
            let pool = sqlite::open_readers(settings).await?;
            let begun = pool.begin().await.map_err(Error::database("begin a transaction"))?;
            migrate::check(Transaction::Sqlite(begun), migrate::SQLITE, &sqlite::name(settings)).await?;
            Ok(Readers::Sqlite(pool))
        }
        Database::Postgres { url } => {
            let mut link = postgres::Link::open(url, Use::Read, settings.start_limit).await?;
            let server = link.server().to_owned();
            migrate::check(Transaction::Postgres(link.begin().await?), migrate::POSTGRES, &server).await?;
            let pool = link.pool(settings.readers.max(1));
            link.close().await;
            Ok(Readers::Postgres(pool))
        }
    }
}

/// Fails where a URL is not one of a PostgreSQL database.
pub(crate) fn check_url(url: &SecretString) -> Result<(), Error> {
    postgres::options(url).map(|_| ())
}
