//! Opening of the SQLite database: one connection that writes, a few that read, WAL between them.
//!
//! A store never silently begins anew. The journal folder is created only after the first migration,
//! so where it exists the database must exist too: a missing or empty file is then an error. An empty
//! file without a journal folder was left by a crash during the very first start and is used.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

use crate::{Error, Settings, Sync, journal};

/// A database up to this size is checked page by page when it is opened; a larger one would delay the
/// start too much.
const CHECKED_BYTES: u64 = 64 << 20;
/// Pages of a new database: most rows of an exchange fit into one. A database keeps the pages it was made with.
const PAGE_BYTES: u32 = 16 << 10;
/// A checkpoint syncs the disk: one per so much log, instead of one per 4 MiB.
const LOG_BYTES: u32 = 32 << 20;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How messages call the database.
pub(super) fn name(settings: &Settings) -> String {
    format!("`{}`", path(&settings.data_dir).display())
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("waltz.db")
}

/// Opens the connection that writes.
pub(super) async fn open_writer(settings: &Settings) -> Result<SqlitePool, Error> {
    let data_dir = &settings.data_dir;
    let path = path(data_dir);
    look_before_opening(data_dir, &path)?;
    let options = options(&path, settings).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let pool = connect(options, 1, &path).await?;
    look_inside(&pool, &path).await?;
    Ok(pool)
}

/// Opens a further connection that writes, to a database that is there.
pub(super) async fn open_beside(settings: &Settings) -> Result<SqlitePool, Error> {
    let path = path(&settings.data_dir);
    connect(options(&path, settings), 1, &path).await
}

/// Opens connections that read.
pub(super) async fn open_readers(settings: &Settings) -> Result<SqlitePool, Error> {
    let path = path(&settings.data_dir);
    if !path.exists() {
        return Err(Error::DatabaseMissing { path, hint: "start `waltz serve` once to create it" });
    }
    let pool = connect(options(&path, settings).read_only(true), settings.readers.max(1), &path).await?;
    read_tables(&pool, &path).await?;
    Ok(pool)
}

/// Copies the database beside itself, as `waltz.db.v1` for version 1. The copy has its name only when it is
/// whole.
pub(super) async fn back_up(pool: &SqlitePool, version: i64) -> Result<(), Error> {
    let options = pool.connect_options();
    let beside = |ending: String| {
        let mut name = options.get_filename().as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (copy, partial) = (beside(format!(".v{version}")), beside(format!(".v{version}.partial")));
    match fs::remove_file(&partial) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::File { operation: "remove unfinished backup", path: partial, source });
        }
        _ => {}
    }
    sqlx::query("VACUUM INTO $1")
        .bind(partial.to_string_lossy().into_owned())
        .execute(pool)
        .await
        .map_err(Error::database("make a backup before the migration"))?;
    fs::rename(&partial, &copy).map_err(Error::file("rename backup", &partial))?;
    tracing::info!(backup = %copy.display(), version, "the database was saved before its migration");
    Ok(())
}

/// Frees the pages that a check and a migration have read: whoever writes next needs others.
pub(super) async fn forget_pages(pool: &SqlitePool) -> Result<(), Error> {
    sqlx::query("PRAGMA shrink_memory")
        .execute(pool)
        .await
        .map(|_| ())
        .map_err(Error::database("free the pages of the start"))
}

/// Moves the write-ahead log into the database file.
pub(super) async fn checkpoint(pool: &SqlitePool) -> Result<(), Error> {
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(pool)
        .await
        .map(|_| ())
        .map_err(Error::database("checkpoint the write-ahead log"))
}

fn options(path: &Path, settings: &Settings) -> SqliteConnectOptions {
    // A drained segment of the journal is deleted: where a power cut must lose nothing, the commit has to be
    // on the disk by then.
    let synchronous = match settings.sync {
        Sync::Process => SqliteSynchronous::Normal,
        Sync::Power => SqliteSynchronous::Full,
    };
    SqliteConnectOptions::new()
        .filename(path)
        .page_size(PAGE_BYTES)
        .synchronous(synchronous)
        .foreign_keys(true)
        .busy_timeout(settings.busy_timeout)
        .pragma("journal_size_limit", "67108864")
        .pragma("cache_size", "-32768")
}

async fn connect(options: SqliteConnectOptions, connections: u32, path: &Path) -> Result<SqlitePool, Error> {
    SqlitePoolOptions::new()
        .after_connect(|connection, _| Box::pin(size_log(connection)))
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options)
        .await
        .map_err(|source| unsound(path, source))
}

/// Sets how long the log grows, whatever the pages of the database. SQLite is asked for their size: whoever opens and
/// closes the file beside it gives up the locks of the whole process, and the next program that reads the database takes
/// itself for the only one and deletes the log.
async fn size_log(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let bytes: u32 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut *connection).await?;
    let pages = LOG_BYTES / bytes.max(512);
    sqlx::query(AssertSqlSafe(format!("PRAGMA wal_autocheckpoint = {pages}"))).execute(connection).await?;
    Ok(())
}

/// Refuses to create a database where there was one.
fn look_before_opening(data_dir: &Path, path: &Path) -> Result<(), Error> {
    let was_used = journal::folder(data_dir).exists();
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() == 0 && was_used => {
            Err(Error::DatabaseDamaged { path: path.to_owned(), reason: "it is empty".to_owned() })
        }
        // SQLite would open a file that it may not write for reading and fail much later.
        Ok(_) => OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map(|_| ())
            .map_err(Error::file("open for writing database", path)),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            if was_used {
                let hint = "its journal is there; restore the database from a backup, or remove the journal folder to begin anew";
                return Err(Error::DatabaseMissing { path: path.to_owned(), hint });
            }
            Ok(())
        }
        Err(source) => Err(Error::File { operation: "look at database", path: path.to_owned(), source }),
    }
}

/// Refuses a file that is not sound.
async fn look_inside(pool: &SqlitePool, path: &Path) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() <= CHECKED_BYTES) {
        let answer: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(pool)
            .await
            .map_err(|source| unsound(path, source))?;
        if answer != "ok" {
            return Err(Error::DatabaseDamaged { path: path.to_owned(), reason: answer });
        }
    }
    read_tables(pool, path).await
}

/// Reads the first page, without which nothing else can be read.
async fn read_tables(pool: &SqlitePool, path: &Path) -> Result<(), Error> {
    let read = sqlx::query("SELECT COUNT(*) FROM sqlite_master").execute(pool).await;
    read.map(|_| ()).map_err(|source| unsound(path, source))
}

/// Tells a damaged file (SQLite's codes 11 and 26) from one that cannot be opened.
fn unsound(path: &Path, source: sqlx::Error) -> Error {
    let code = source
        .as_database_error()
        .and_then(|database| database.code())
        .and_then(|code| code.parse::<u32>().ok());
    // Extended codes carry the plain one in their low byte.
    match code.map(|code| code & 0xff) {
        Some(11 | 26) => Error::DatabaseDamaged { path: path.to_owned(), reason: source.to_string() },
        _ => Error::OpenDatabase { path: path.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commits_are_on_the_disk_where_a_power_cut_must_lose_nothing() {
        for (sync, level) in [(Sync::Process, 1), (Sync::Power, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings { sync, ..Settings::at(folder.path()) };
            let pool = open_writer(&settings).await.unwrap();
            let set: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&pool).await.unwrap();
            assert_eq!(set, level, "{sync:?}");
        }
    }

    /// Without its lock on the database another program that reads it, such as a backup, takes the log away.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_store_keeps_its_lock_on_the_database() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        // The second time the file is there before.
        for _ in 0..2 {
            let store = crate::Store::open(Settings::at(folder.path())).await.unwrap();
            let ending = format!(":{}", fs::metadata(path(folder.path())).unwrap().ino());
            let locks = fs::read_to_string("/proc/locks").unwrap();
            let is_ours = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.contains(&"POSIX") && words.iter().any(|word| word.ends_with(&ending))
            };
            assert!(locks.lines().any(|line| is_ours(&line)), "{locks}");
            store.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_log_is_as_long_whatever_the_pages() {
        for (made_with, pages) in [(None, 16_384), (Some(4096), 4096), (Some(65_536), 65_536)] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings::at(folder.path());
            if let Some(bytes) = made_with {
                let options = SqliteConnectOptions::new().filename(path(folder.path())).page_size(bytes);
                let earlier = SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
                sqlx::query("CREATE TABLE a (x INTEGER)").execute(&earlier).await.unwrap();
                earlier.close().await;
            }
            // The second time the file is there in any case.
            for _ in 0..2 {
                let pool = open_writer(&settings).await.unwrap();
                let number = async |sql: &'static str| -> i64 {
                    sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap()
                };
                assert_eq!(number("PRAGMA page_size").await, pages);
                assert_eq!(number("PRAGMA wal_autocheckpoint").await * pages, i64::from(LOG_BYTES));
                pool.close().await;
            }
        }
    }
}
