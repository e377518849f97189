//! What a store does after crashes, with a damaged folder, and beside other processes.

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
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
    reports_bear_the_subject_of_their_exchange,
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
        assert!(message.contains("version 99") && message.contains("up to 6"), "{message}");
        assert!(matches!(
            Store::open_for_reading(&home.settings()).await,
            Err(Error::SchemaTooNew { found: 99, known: 6 })
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

    pub(super) async fn reports_bear_the_subject_of_their_exchange(kind: Kind) {
        let home = Home::new(kind).await;
        let store = home.open().await;
        for (id, tenant) in [("req_1", "acme"), ("req_2", "other")] {
            store.append(&exchange(coached(id, tenant, "s", 0, "x"))).unwrap();
        }
        for (number, response_id) in
            ["resp_1_51g", "resp_1_0f", "resp_2_51g", "chatcmpl-1"].iter().enumerate()
        {
            let report = json!({"kind": "outcome", "entry": {"outcome": {"response_id": response_id},
                "tenant": "acme", "received_at": "2026-01-01T00:00:00Z", "id": format!("out_{number}")}});
            store.append(&serde_json::from_value(report).unwrap()).unwrap();
        }
        store.close().await.unwrap();
        let tables = home.tables().await;
        let subjects = tables.texts("SELECT COALESCE(subject, 'nobody') FROM outcomes ORDER BY id").await;
        assert_eq!(
            subjects,
            ["user-1", "nobody", "nobody", "nobody"],
            "of this answer and this tenant alone"
        );
        tables.close().await;
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
            let run = |(room, events)| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(live(kind, room, events));
                Ok(())
            };
            runner.run(&(0_usize..100_000, events()), run).unwrap();
        };
        tokio::task::spawn_blocking(property).await.unwrap();
    }
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    Append(u8),
    Drain,
    /// The database refuses what is there and so many more, and then takes them.
    Outage(u8),
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
        2 => (0_u8..12).prop_map(Event::Outage),
        1 => Just(Event::Close),
        2 => (0_usize..3000).prop_map(Event::Crash),
        1 => Just(Event::CrashBeforeDelete),
    ];
    prop::collection::vec(event, 1..14)
}

fn append_more(store: &Store, count: u8, appended: &mut Vec<String>) {
    for _ in 0..count {
        let id = format!("req_{:04}", appended.len());
        append(store, &id);
        appended.push(id);
    }
}

/// Waits until the drain has tried and failed.
async fn refused(store: &Store) {
    let told = async {
        while store.health().drain_error.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        drained = store.drained() => panic!("{drained:?}"),
        () = told => {}
    }
}

async fn live(kind: Kind, room: usize, events: Vec<Event>) {
    let home = Home::new(kind).await;
    let settings = Settings {
        segment_bytes: 20_000,
        recent_bytes: room,
        drain_batch: 7,
        retry_limit: Duration::from_millis(20),
        ..home.patient()
    };
    let mut expected = Vec::new();
    let mut store = Store::open(settings.clone()).await.unwrap();
    for event in events {
        match event {
            Event::Append(count) => {
                append_more(&store, count, &mut expected);
                continue;
            }
            Event::Outage(count) => {
                let tables = home.tables().await;
                tables.run("ALTER TABLE coaching_sessions RENAME TO away").await;
                append_more(&store, 1, &mut expected);
                refused(&store).await;
                append_more(&store, count, &mut expected);
                tables.run("ALTER TABLE away RENAME TO coaching_sessions").await;
                tables.close().await;
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
    let tables = home.tables().await;
    let order = tables.texts("SELECT exchange_id FROM past_coachings ORDER BY number").await;
    assert_eq!(order, expected, "each once, in the order of the journal");
    tables.close().await;
    assert_eq!(home.stored().await, expected.into_iter().collect());
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
}
