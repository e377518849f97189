//! What the store does with a SQLite file that is damaged, locked, foreign or from a backup.

use std::fs;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use waltz_store::{Error, Settings, Store};

use crate::home::{Home, Kind, append, refusal, set};

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
async fn a_damaged_database_is_never_replaced() {
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
    let mut page = sound.clone();
    for byte in &mut page[4096..8192] {
        *byte = 0xa5;
    }
    fs::write(&path, page).unwrap();
    let message = refusal(home.settings()).await;
    assert!(message.contains("is damaged"), "{message}");
    fs::write(&path, sound).unwrap();
    home.open().await.close().await.unwrap();
    assert_eq!(home.stored().await, set(&["a"]));
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
