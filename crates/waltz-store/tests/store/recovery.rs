//! What a store does after crashes, with a damaged folder, and beside other processes.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use waltz_exchange::{Embedding, ExchangeRecord};
use waltz_store::{Error, Settings, Store};

use crate::common::{coached, exchange};
use crate::home::{Home, Kind, append, refusal, set};
use crate::on_both;

on_both!(
    a_crash_before_the_commit_loses_nothing,
    a_crash_between_commit_and_delete_stores_nothing_twice,
    a_second_process_is_refused,
    a_full_journal_refuses_appends,
    a_newer_schema_is_refused_with_both_versions,
    a_database_of_the_version_before_opens,
    events_of_version_4_are_kept_and_told_to_nobody,
    an_entry_that_cannot_be_stored_is_kept_and_reported,
    damage_in_the_journal_is_reported_and_the_rest_is_stored,
    a_reader_beside_a_running_store_sees_the_database,
    no_order_of_events_loses_or_doubles_an_entry,
);

mod cases {
    use super::*;

    pub(super) async fn a_crash_before_the_commit_loses_nothing(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open_patient().await;
        append(&store, "a");
        append(&store, "b");
        store.abandon().await.unwrap();
        assert_eq!(home.stored().await, set(&[]));
        let store = home.open_patient().await;
        store.drained().await.unwrap();
        assert_eq!(home.stored().await, set(&["a", "b"]));
        assert_eq!(store.health().undrained_bytes, 0);
    }

    pub(super) async fn a_crash_between_commit_and_delete_stores_nothing_twice(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open_patient().await;
        append(&store, "a");
        append(&store, "b");
        store.drained().await.unwrap();
        let segment = home.segments().remove(0);
        let bytes = fs::read(&segment).unwrap();
        append(&store, "c");
        store.close().await.unwrap();
        home.open_patient().await.close().await.unwrap();
        assert!(!segment.exists(), "a drained segment is deleted");
        fs::write(&segment, bytes).unwrap();
        let store = home.open_patient().await;
        store.drained().await.unwrap();
        assert!(!segment.exists());
        assert_eq!(home.stored().await, set(&["a", "b", "c"]));
    }

    pub(super) async fn a_second_process_is_refused(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open().await;
        let message = refusal(home.settings()).await;
        assert!(message.contains("in use by another waltz process"), "{message}");
        append(&store, "a");
        store.close().await.unwrap();
        assert!(matches!(store.append(&exchange(coached("b", "acme", "s", 0, "x"))), Err(Error::Closed)));
        drop(store);
        home.open().await.close().await.unwrap();
        assert_eq!(home.stored().await, set(&["a"]));
    }

    pub(super) async fn a_full_journal_refuses_appends(kind: Kind) {
        let home = Home::new(kind).await;
        let store = Store::open(Settings { max_journal_bytes: 10_000, ..home.patient() }).await.unwrap();
        append(&store, "a");
        let one = store.health().undrained_bytes;
        let mut accepted = 1;
        let error = loop {
            match store.append(&exchange(coached(&format!("a{accepted}"), "acme", "ses", 0, "open my door")))
            {
                Ok(()) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::JournalFull { .. }), "{error}");
        assert_eq!(accepted, 10_000 / one);
        store.drained().await.unwrap();
        append(&store, "again");
        store.close().await.unwrap();
        assert_eq!(home.stored().await.len() as u64, accepted + 1);
    }

    pub(super) async fn a_newer_schema_is_refused_with_both_versions(kind: Kind) {
        let home = Home::new(kind).await;
        home.open().await.close().await.unwrap();
        let tables = home.tables().await;
        tables.run("INSERT INTO schema_version (version, name) VALUES (99, 'future')").await;
        tables.close().await;
        let message = refusal(home.settings()).await;
        assert!(message.contains("version 99") && message.contains("up to 5"), "{message}");
        assert!(matches!(
            Store::open_for_reading(&home.settings()).await,
            Err(Error::SchemaTooNew { found: 99, known: 5 })
        ));
    }

    pub(super) async fn an_entry_that_cannot_be_stored_is_kept_and_reported(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open().await;
        append(&store, "a");
        let mut record = coached("nan", "acme", "ses", 0, "x");
        record.choices[0].dir_score = f32::NAN;
        store.append(&exchange(record)).unwrap();
        let mut record = coached("twin", "acme", "ses", 0, "x");
        record.choices.push(record.choices[0].clone());
        store.append(&exchange(record)).unwrap();
        append(&store, "b");
        store.drained().await.unwrap();
        assert_eq!(home.stored().await, set(&["a", "b"]));
        assert_eq!(store.health().rejected_entries, 2);
        store.close().await.unwrap();
        drop(store);
        let tables = home.tables().await;
        let kept = tables.texts("SELECT payload FROM rejected_entries ORDER BY position").await;
        assert!(kept[0].contains("\"nan\"") && kept[1].contains("\"twin\""));
        tables.close().await;
        let store = home.open().await;
        assert_eq!(store.health().rejected_entries, 2, "still reported after a restart");
    }

    pub(super) async fn damage_in_the_journal_is_reported_and_the_rest_is_stored(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open_patient().await;
        for id in ["a", "b", "c"] {
            append(&store, id);
        }
        store.abandon().await.unwrap();
        drop(store);
        let segment = home.segments().remove(0);
        let mut bytes = fs::read(&segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::write(&segment, bytes).unwrap();
        let store = home.open_patient().await;
        store.drained().await.unwrap();
        assert_eq!(home.stored().await, set(&["a", "c"]));
        let health = store.health();
        assert!(!health.is_good());
        assert_eq!(health.damaged_segments, ["0000000000000001.damaged"]);
        assert!(health.unreadable_bytes > 0);
        append(&store, "d");
        store.close().await.unwrap();
        drop(store);
        let store = home.open_patient().await;
        assert_eq!(store.health().damaged_segments.len(), 1, "still reported after a restart");
        assert_eq!(home.stored().await, set(&["a", "c", "d"]));
    }

    pub(super) async fn events_of_version_4_are_kept_and_told_to_nobody(kind: Kind) {
        let home = Home::new(kind).await;
        home.open().await.close().await.unwrap();
        let tables = home.tables().await;
        for statement in [
            "DROP INDEX rollout_events_untold",
            "ALTER TABLE rollout_events DROP COLUMN told",
            "ALTER TABLE rollout_state DROP COLUMN secret",
            "ALTER TABLE rollbacks ADD COLUMN notified BOOLEAN NOT NULL DEFAULT FALSE",
            "CREATE INDEX rollbacks_untold ON rollbacks (number) WHERE NOT notified",
            "INSERT INTO rollout_events (at, agent, task_type, event) VALUES (1, 'writer', 'docs', '{}')",
            "DELETE FROM schema_version WHERE version >= 5",
        ] {
            tables.run(statement).await;
        }
        tables.close().await;
        let store = home.open().await;
        assert_eq!(store.rollout_events(None, None, 10).await.unwrap().len(), 1);
        assert!(store.untold_events(10).await.unwrap().is_empty(), "it is history");
        assert!(!store.secret().await.unwrap().is_empty());
        store.close().await.unwrap();
    }

    pub(super) async fn a_database_of_the_version_before_opens(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open().await;
        store.append(&exchange(coached("a", "acme", "s", 0, "open my door"))).unwrap();
        store.close().await.unwrap();
        drop(store);
        // What earlier versions had: the same tables without variants, and without vectors.
        let tables = home.tables().await;
        for table in [
            "DROP TABLE boards",
            "DROP TABLE lessons",
            "DROP TABLE rollout_events",
            "DROP TABLE rollbacks",
            "DROP TABLE proposals",
            "DROP TABLE rollout_state",
            "DROP TABLE coaching_vectors",
        ] {
            tables.run(table).await;
        }
        tables.run("DELETE FROM schema_version WHERE version >= 3").await;
        tables.close().await;
        let store = home.open().await;
        assert_eq!(store.rollout_state().await.unwrap().version, 0);
        let embedding = Embedding { model: "m".to_owned(), vector: vec![1.0, 0.0] };
        let found = store.similar("acme", "open the door", Some(&embedding), 3).await.unwrap();
        assert_eq!(found.len(), 1, "old coachings are found by their words");
        let record = ExchangeRecord { embedding: Some(embedding), ..coached("b", "acme", "s", 1, "a key") };
        store.append(&exchange(record)).unwrap();
        store.close().await.unwrap();
        assert_eq!(home.tables().await.number("SELECT COUNT(*) FROM coaching_vectors").await, 1);
    }

    pub(super) async fn a_reader_beside_a_running_store_sees_the_database(kind: Kind) {
        let home = Home::new(kind).await;
        let early = Store::open_for_reading(&home.settings()).await.err().unwrap().to_string();
        assert!(early.contains("start `waltz serve` once"), "{early}");
        let store = home.open_patient().await;
        append(&store, "a");
        store.drained().await.unwrap();
        let reader = Store::open_for_reading(&home.settings()).await.unwrap();
        assert_eq!(reader.stats(None).await.unwrap().interactions, 1);
        append(&store, "b");
        assert_eq!(reader.stats(None).await.unwrap().interactions, 1, "what is not drained is not seen");
        store.drained().await.unwrap();
        assert_eq!(reader.stats(None).await.unwrap().interactions, 2);
        assert!(matches!(reader.append(&exchange(coached("c", "acme", "s", 0, "x"))), Err(Error::ReadOnly)));
        reader.close().await.unwrap();
        store.close().await.unwrap();
    }

    pub(super) async fn no_order_of_events_loses_or_doubles_an_entry(kind: Kind) {
        let property = move || {
            let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
            let run = |events| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(live(kind, events));
                Ok(())
            };
            runner.run(&events(), run).unwrap();
        };
        tokio::task::spawn_blocking(property).await.unwrap();
    }
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

async fn live(kind: Kind, events: Vec<Event>) {
    let home = Home::new(kind).await;
    let settings = Settings { segment_bytes: 20_000, drain_batch: 7, ..home.patient() };
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
                let last = home.segments().pop().unwrap();
                let mut content = fs::read(&last).unwrap();
                // The beginning of a frame whose rest was never written.
                content.extend([0xff, 0x0f, 0, 0, 1, 2, 3, 4].iter().chain([b'{'; 3000].iter()).take(bytes));
                fs::write(&last, content).unwrap();
            }
            Event::CrashBeforeDelete => {
                let before: Vec<_> =
                    home.segments().into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
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
    assert_eq!(home.stored().await, expected);
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
}
