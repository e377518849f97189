//! What the store does with a SQLite file that is damaged, locked, foreign or from a backup.

use std::fs;
use std::process::Command;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use waltz_store::{Error, Settings, Store};

use crate::disk::Fault;
use crate::home::{Home, Kind, append, refusal, set};
use crate::kill::writer;

/// The answers of a file that may not be written, and of a file system that may not.
const EACCES: &str = "13";
const EROFS: &str = "30";

async fn database(home: &Home) -> SqlitePool {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(home.path().join("waltz.db")))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_database_from_a_backup_takes_the_journal_again() {
    let home = Home::new(Kind::Sqlite).await;
    let store = home.open_patient().await;
    append(&store, "a");
    store.close().await.unwrap();
    let backup = fs::read(home.path().join("waltz.db")).unwrap();
    let store = home.open_patient().await;
    append(&store, "b");
    store.close().await.unwrap();
    fs::write(home.path().join("waltz.db"), backup).unwrap();
    let store = home.open_patient().await;
    store.drained().await.unwrap();
    assert_eq!(home.stored().await, set(&["a", "b"]));
}

#[tokio::test]
async fn fault_F57_damaged_store() {
    let home = Home::new(Kind::Sqlite).await;
    let path = home.path().join("waltz.db");
    // Left by a crash at the very first start.
    fs::write(&path, b"").unwrap();
    let store = home.open().await;
    append(&store, "a");
    store.close().await.unwrap();
    let sound = fs::read(&path).unwrap();

    fs::write(&path, b"").unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.contains("is damaged (it is empty)"), "{message}");
    fs::remove_file(&path).unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.contains("is missing; its journal is there"), "{message}");
    assert!(!path.exists(), "nothing new was created");
    fs::write(&path, vec![b'x'; 8192]).unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.contains("is damaged"), "{message}");
    // Its second page.
    let mut page = sound.clone();
    for byte in &mut page[16_384..32_768] {
        *byte = 0xa5;
    }
    fs::write(&path, page).unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.contains("is damaged"), "{message}");
    fs::write(&path, sound).unwrap();
    home.open().await.close().await.unwrap();
    assert_eq!(home.stored().await, set(&["a"]));

    torn_logs_lose_nothing(&home).await;
    // Permissions do not bind root, and a file system that is read-only takes more than a test may ask for:
    // the calls answer as they would.
    for (error, told) in [(EACCES, "Permission denied"), (EROFS, "Read-only file system")] {
        for (file, named) in
            [("waltz.lock", "open lock file"), ("waltz.db", "database"), ("/journal/", "journal segment")]
        {
            let fault = Fault { call: "open", path: file, error, ..Fault::default() };
            let mut command = Command::new(writer());
            let output =
                command.arg(home.path()).args(["run00000", "1"]).envs(fault.environment()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_ne!(output.status.code(), Some(0), "{fault:?}");
            assert!(output.stdout.is_empty(), "nothing was acknowledged");
            assert!(message.contains(named) && message.contains(told), "{fault:?}: {message}");
        }
    }
    home.open().await.close().await.unwrap();
    assert_eq!(home.stored().await, set(&["a", "b", "c"]), "and nothing was harmed");
}

/// Cuts and damages the database's own log, as a power cut leaves it. The journal brings back what it held.
async fn torn_logs_lose_nothing(home: &Home) {
    let path = home.path().join("waltz.db");
    let log = home.path().join("waltz.db-wal");
    let store = home.open().await;
    append(&store, "b");
    store.drained().await.unwrap();
    append(&store, "c");
    store.drained().await.unwrap();
    // As the files are while the store is open.
    let copies: Vec<_> = [path, log.clone()].into_iter().chain(home.segments()).collect();
    let copies: Vec<_> = copies.into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect();
    store.abandon().await.unwrap();
    drop(store);
    let length = copies[1].0.len();
    assert!(length > 4096, "the log holds the commits");
    for cut in (0..length).step_by((length / 40) | 1) {
        for flipped in [false, true] {
            for (bytes, file) in &copies {
                fs::write(file, bytes).unwrap();
            }
            fs::remove_file(home.path().join("waltz.db-shm")).ok();
            let mut torn = copies[1].0.clone();
            if flipped {
                torn[cut] ^= 0xff;
            } else {
                torn.truncate(cut);
            }
            fs::write(&log, torn).unwrap();
            let store = home.open().await;
            store.drained().await.unwrap();
            assert!(store.health().is_good(), "{cut} {flipped}: {:?}", store.health());
            store.abandon().await.unwrap();
            drop(store);
            assert_eq!(home.stored().await, set(&["a", "b", "c"]), "{cut} {flipped}");
        }
    }
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_refused() {
    let home = Home::new(Kind::Sqlite).await;
    let options = SqliteConnectOptions::new().filename(home.path().join("waltz.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE shopping (item TEXT)").execute(&pool).await.unwrap();
    pool.close().await;
    let message = refusal(home.settings()).await;
    assert!(message.contains("tables that are not waltz's"), "{message}");
    fs::remove_file(home.path().join("waltz.db")).unwrap();
    fs::create_dir(home.path().join("waltz.db")).unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.starts_with("cannot open"), "{message}");
}

#[tokio::test]
async fn appends_go_on_while_the_database_is_locked() {
    let home = Home::new(Kind::Sqlite).await;
    let settings = Settings {
        busy_timeout: Duration::from_millis(5),
        drain_delay: Duration::ZERO,
        retry_limit: Duration::from_millis(20),
        ..home.settings()
    };
    let store = Store::open(settings).await.unwrap();
    append(&store, "a");
    store.drained().await.unwrap();
    let pool = database(&home).await;
    let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    append(&store, "b");
    while store.health().drain_error.is_none() {
        tokio::task::yield_now().await;
    }
    append(&store, "c");
    assert!(store.health().drain_error.unwrap().contains("locked"));
    assert!(store.health().undrained_bytes > 0);
    held.rollback().await.unwrap();
    store.drained().await.unwrap();
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
    assert_eq!(home.stored().await, set(&["a", "b", "c"]));
}

#[tokio::test]
async fn closing_while_the_database_is_locked_ends_and_keeps_the_rest() {
    let home = Home::new(Kind::Sqlite).await;
    let settings = Settings { busy_timeout: Duration::from_millis(5), ..home.patient() };
    let store = Store::open(settings.clone()).await.unwrap();
    let pool = database(&home).await;
    let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    append(&store, "a");
    assert!(matches!(store.close().await, Err(Error::DrainStopped)));
    drop(store);
    held.rollback().await.unwrap();
    let store = Store::open(settings).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(home.stored().await, set(&["a"]));
}
