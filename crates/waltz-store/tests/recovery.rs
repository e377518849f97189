//! What a store does after crashes, with a damaged folder, and beside other processes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{coached, exchange};
use proptest::prelude::*;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use waltz_store::{Error, Settings, Store};

/// Settings under which nothing is drained before `drained` is called.
fn patient(folder: &Path) -> Settings {
    Settings { drain_delay: Duration::from_secs(3600), ..Settings::at(folder) }
}

fn append(store: &Store, id: &str) {
    store.append(&exchange(coached(id, "acme", "ses", 0, "open my door"))).unwrap();
}

async fn database(folder: &Path) -> SqlitePool {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(folder.join("waltz.db"))).await.unwrap()
}

/// The ids of all exchanges, after a check that everything that hangs on one is there exactly once.
async fn stored(folder: &Path) -> BTreeSet<String> {
    let pool = database(folder).await;
    let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM exchanges").fetch_all(&pool).await.unwrap();
    let total = ids.len() as i64;
    for (sql, each) in [
        ("SELECT COALESCE(SUM(exchanges), 0) FROM coaching_sessions", 1),
        ("SELECT COUNT(*) FROM safety_evaluations", 4),
        ("SELECT COUNT(*) FROM trajectories", 2),
        ("SELECT COUNT(*) FROM past_coachings", 1),
        ("SELECT COUNT(*) FROM coaching_text", 1),
    ] {
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
        assert_eq!(count, each * total, "{sql}");
    }
    pool.close().await;
    ids.into_iter().collect()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("journal")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn refusal(settings: Settings) -> String {
    Store::open(settings).await.err().map(|error| error.to_string()).unwrap()
}

#[tokio::test]
async fn a_crash_before_the_commit_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    append(&store, "a");
    append(&store, "b");
    store.abandon().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&[]));
    let store = Store::open(patient(folder.path())).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a", "b"]));
    assert_eq!(store.health().undrained_bytes, 0);
}

#[tokio::test]
async fn a_crash_between_commit_and_delete_stores_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    append(&store, "a");
    append(&store, "b");
    store.drained().await.unwrap();
    let segment = segments(folder.path()).remove(0);
    let bytes = fs::read(&segment).unwrap();
    append(&store, "c");
    store.close().await.unwrap();
    Store::open(patient(folder.path())).await.unwrap().close().await.unwrap();
    assert!(!segment.exists(), "a drained segment is deleted");
    fs::write(&segment, bytes).unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    store.drained().await.unwrap();
    assert!(!segment.exists());
    assert_eq!(stored(folder.path()).await, set(&["a", "b", "c"]));
}

#[tokio::test]
async fn a_database_from_a_backup_takes_the_journal_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    append(&store, "a");
    store.close().await.unwrap();
    let backup = fs::read(folder.path().join("waltz.db")).unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    append(&store, "b");
    store.close().await.unwrap();
    fs::write(folder.path().join("waltz.db"), backup).unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a", "b"]));
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Settings::at(folder.path())).await.unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("in use by another waltz process"), "{message}");
    append(&store, "a");
    store.close().await.unwrap();
    assert!(matches!(store.append(&exchange(coached("b", "acme", "s", 0, "x"))), Err(Error::Closed)));
    drop(store);
    Store::open(Settings::at(folder.path())).await.unwrap().close().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a"]));
}

#[tokio::test]
async fn a_full_journal_refuses_appends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Settings { max_journal_bytes: 10_000, ..patient(folder.path()) }).await.unwrap();
    append(&store, "a");
    let one = store.health().undrained_bytes;
    let mut accepted = 1;
    let error = loop {
        match store.append(&exchange(coached(&format!("a{accepted}"), "acme", "ses", 0, "open my door"))) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::JournalFull { .. }), "{error}");
    assert_eq!(accepted, 10_000 / one);
    store.drained().await.unwrap();
    append(&store, "again");
    store.close().await.unwrap();
    assert_eq!(stored(folder.path()).await.len() as u64, accepted + 1);
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    Store::open(Settings::at(folder.path())).await.unwrap().close().await.unwrap();
    let pool = database(folder.path()).await;
    sqlx::query("INSERT INTO schema_version (version, name) VALUES (99, 'future')")
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("version 99") && message.contains("up to 1"), "{message}");
    assert!(matches!(
        Store::open_read_only(folder.path()).await,
        Err(Error::SchemaTooNew { found: 99, known: 1 })
    ));
}

#[tokio::test]
async fn a_damaged_database_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waltz.db");
    // Left by a crash at the very first start.
    fs::write(&path, b"").unwrap();
    let store = Store::open(Settings::at(folder.path())).await.unwrap();
    append(&store, "a");
    store.close().await.unwrap();
    let sound = fs::read(&path).unwrap();

    fs::write(&path, b"").unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("is damaged (it is empty)"), "{message}");
    fs::remove_file(&path).unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("is missing; its journal is there"), "{message}");
    assert!(!path.exists(), "nothing new was created");
    fs::write(&path, vec![b'x'; 8192]).unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("is damaged"), "{message}");
    let mut page = sound.clone();
    for byte in &mut page[4096..8192] {
        *byte = 0xa5;
    }
    fs::write(&path, page).unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("is damaged"), "{message}");
    fs::write(&path, sound).unwrap();
    Store::open(Settings::at(folder.path())).await.unwrap().close().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a"]));
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        SqliteConnectOptions::new().filename(folder.path().join("waltz.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE shopping (item TEXT)").execute(&pool).await.unwrap();
    pool.close().await;
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.contains("tables that are not waltz's"), "{message}");
    fs::remove_file(folder.path().join("waltz.db")).unwrap();
    fs::create_dir(folder.path().join("waltz.db")).unwrap();
    let message = refusal(Settings::at(folder.path())).await;
    assert!(message.starts_with("cannot open"), "{message}");
}

#[tokio::test]
async fn appends_go_on_while_the_database_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        busy_timeout: Duration::from_millis(5),
        drain_delay: Duration::ZERO,
        retry_limit: Duration::from_millis(20),
        ..Settings::at(folder.path())
    };
    let store = Store::open(settings).await.unwrap();
    append(&store, "a");
    store.drained().await.unwrap();
    let pool = database(folder.path()).await;
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
    assert_eq!(stored(folder.path()).await, set(&["a", "b", "c"]));
}

#[tokio::test]
async fn closing_while_the_database_is_locked_ends_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { busy_timeout: Duration::from_millis(5), ..patient(folder.path()) };
    let store = Store::open(settings.clone()).await.unwrap();
    let pool = database(folder.path()).await;
    let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    append(&store, "a");
    assert!(matches!(store.close().await, Err(Error::DrainStopped)));
    drop(store);
    held.rollback().await.unwrap();
    let store = Store::open(settings).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a"]));
}

#[tokio::test]
async fn an_entry_that_cannot_be_stored_is_kept_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Settings::at(folder.path())).await.unwrap();
    append(&store, "a");
    let mut record = coached("nan", "acme", "ses", 0, "x");
    record.choices[0].dir_score = f32::NAN;
    store.append(&exchange(record)).unwrap();
    let mut record = coached("twin", "acme", "ses", 0, "x");
    record.choices.push(record.choices[0].clone());
    store.append(&exchange(record)).unwrap();
    append(&store, "b");
    store.drained().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a", "b"]));
    assert_eq!(store.health().rejected_entries, 2);
    store.close().await.unwrap();
    drop(store);
    let pool = database(folder.path()).await;
    let kept: Vec<String> = sqlx::query_scalar("SELECT payload FROM rejected_entries ORDER BY position")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert!(kept[0].contains("\"nan\"") && kept[1].contains("\"twin\""));
    pool.close().await;
    let store = Store::open(Settings::at(folder.path())).await.unwrap();
    assert_eq!(store.health().rejected_entries, 2, "still reported after a restart");
}

#[tokio::test]
async fn damage_in_the_journal_is_reported_and_the_rest_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    for id in ["a", "b", "c"] {
        append(&store, id);
    }
    store.abandon().await.unwrap();
    drop(store);
    let segment = segments(folder.path()).remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&segment, bytes).unwrap();
    let store = Store::open(patient(folder.path())).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(stored(folder.path()).await, set(&["a", "c"]));
    let health = store.health();
    assert!(!health.is_good());
    assert_eq!(health.damaged_segments, ["0000000000000001.damaged"]);
    assert!(health.unreadable_bytes > 0);
    append(&store, "d");
    store.close().await.unwrap();
    drop(store);
    let store = Store::open(patient(folder.path())).await.unwrap();
    assert_eq!(store.health().damaged_segments.len(), 1, "still reported after a restart");
    assert_eq!(stored(folder.path()).await, set(&["a", "c", "d"]));
}

#[tokio::test]
async fn a_reader_beside_a_running_store_sees_the_database() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open_read_only(folder.path()).await, Err(Error::DatabaseMissing { .. })));
    let store = Store::open(patient(folder.path())).await.unwrap();
    append(&store, "a");
    store.drained().await.unwrap();
    let reader = Store::open_read_only(folder.path()).await.unwrap();
    assert_eq!(reader.stats(None).await.unwrap().interactions, 1);
    append(&store, "b");
    assert_eq!(reader.stats(None).await.unwrap().interactions, 1, "what is not drained is not seen");
    store.drained().await.unwrap();
    assert_eq!(reader.stats(None).await.unwrap().interactions, 2);
    assert!(matches!(reader.append(&exchange(coached("c", "acme", "s", 0, "x"))), Err(Error::ReadOnly)));
    reader.close().await.unwrap();
    store.close().await.unwrap();
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    Append(u8),
    Drain,
    Close,
    /// The process dies; a write that was under way leaves this many bytes.
    Crash(usize),
    /// The process dies after a commit, before drained segments are deleted.
    CrashBeforeDelete,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (1_u8..12).prop_map(Event::Append),
        2 => Just(Event::Drain),
        1 => Just(Event::Close),
        2 => (0_usize..3000).prop_map(Event::Crash),
        1 => Just(Event::CrashBeforeDelete),
    ];
    prop::collection::vec(event, 1..14)
}

async fn live(folder: &Path, events: Vec<Event>) {
    let settings = Settings { segment_bytes: 20_000, drain_batch: 7, ..patient(folder) };
    let mut expected = BTreeSet::new();
    let mut store = Store::open(settings.clone()).await.unwrap();
    for event in events {
        match event {
            Event::Append(count) => {
                for _ in 0..count {
                    let id = format!("req_{:04}", expected.len());
                    append(&store, &id);
                    expected.insert(id);
                }
                continue;
            }
            Event::Drain => {
                store.drained().await.unwrap();
                continue;
            }
            Event::Close => store.close().await.unwrap(),
            Event::Crash(bytes) => {
                store.abandon().await.unwrap();
                let last = segments(folder).pop().unwrap();
                let mut content = fs::read(&last).unwrap();
                // The beginning of a frame whose rest was never written.
                content.extend([0xff, 0x0f, 0, 0, 1, 2, 3, 4].iter().chain([b'{'; 3000].iter()).take(bytes));
                fs::write(&last, content).unwrap();
            }
            Event::CrashBeforeDelete => {
                let before: Vec<_> =
                    segments(folder).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
                store.drained().await.unwrap();
                store.abandon().await.unwrap();
                for (bytes, path) in before {
                    fs::write(path, bytes).unwrap();
                }
            }
        }
        drop(store);
        store = Store::open(settings.clone()).await.unwrap();
        assert!(store.health().damaged_segments.is_empty());
    }
    store.drained().await.unwrap();
    assert_eq!(stored(folder).await, expected);
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_order_of_events_loses_or_doubles_an_entry(events in events()) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(folder.path(), events));
    }
}
