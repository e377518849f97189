//! Several gateways on one PostgreSQL database, each with its own data folder and journal.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sqlx::{Connection as _, PgConnection};
use waltz_exchange::release::Pause;
use waltz_store::{BoardKey, BoardStored, Database, Error, RolloutChange, Settings, Store};

use crate::common::{coached, exchange};
use crate::home::{Home, Kind, append, refusal, set};

#[tokio::test]
async fn two_gateways_see_each_others_sessions_and_keep_their_own_position() {
    let first_home = Home::new(Kind::Postgres).await;
    let second_home = first_home.neighbour();
    let (first, second) = (first_home.open_patient().await, second_home.open_patient().await);
    append(&first, "a");
    append(&second, "b");
    append(&second, "c");
    second.drained().await.unwrap();
    let seen = first.session(Some("acme"), "ses").await.unwrap().unwrap();
    assert_eq!(seen.summary.exchanges, 2, "the other gateway's, and not yet its own");
    first.abandon().await.unwrap();
    drop(first);
    // The other gateway's position is further on than this one's; it must not count here.
    let first = first_home.open_patient().await;
    first.drained().await.unwrap();
    assert_eq!(second.session(Some("acme"), "ses").await.unwrap().unwrap().summary.exchanges, 3);
    assert_eq!(first_home.stored().await, set(&["a", "b", "c"]));
    first.close().await.unwrap();
    second.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_share_sessions_under_load() {
    let home = Home::new(Kind::Postgres).await;
    let mut gateways = Vec::new();
    for gateway in 0..2 {
        let neighbour = home.neighbour();
        gateways.push(tokio::spawn(async move {
            let settings = Settings { drain_delay: Duration::ZERO, drain_batch: 16, ..neighbour.settings() };
            let store = Store::open(settings).await.unwrap();
            for number in 0..400 {
                // The same few sessions from both sides, in opposite orders.
                let place = if gateway == 0 { number } else { 400 - number } % 7;
                let session = format!("ses_{place}");
                let id = format!("req_{gateway}_{number:04}");
                store.append(&exchange(coached(&id, "acme", &session, number, "open my door"))).unwrap();
                tokio::task::yield_now().await;
            }
            store.drained().await.unwrap();
            // The same exchange through both gateways is stored once.
            append(&store, "same");
            store.drained().await.unwrap();
            assert!(store.health().is_good(), "{:?}", store.health());
            store.close().await.unwrap();
        }));
    }
    for gateway in gateways {
        gateway.await.unwrap();
    }
    assert_eq!(home.stored().await.len(), 801);
}

/// A gateway that waits for one board must not keep another from turning the kill switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_waits_for_a_board_keeps_no_one_from_pausing() {
    let home = Home::new(Kind::Postgres).await;
    let (one, two) = (home.open_patient().await, home.neighbour().open_patient().await);
    let key = BoardKey { agent: "writer".to_owned(), task_type: "docs".to_owned() };
    let board = |version, state: &str| {
        let board = BoardStored { key: key.clone(), version, state: state.to_owned() };
        RolloutChange { board: Some(board), ..RolloutChange::default() }
    };
    assert!(one.change_rollout(&board(0, "old")).await.unwrap());
    let mut holder = PgConnection::connect(home.url.as_deref().unwrap()).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT state FROM boards FOR UPDATE").execute(&mut *held).await.unwrap();
    let waiting = board(1, "new");
    let waiting = async { one.change_rollout(&waiting).await.unwrap() };
    let paused = async {
        let mut watch = PgConnection::connect(home.url.as_deref().unwrap()).await.unwrap();
        let waits = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
            AND datname = current_database()";
        while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut watch).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        let pause = Pause { by: "ann".to_owned(), at: Timestamp::UNIX_EPOCH, reason: None };
        let change = RolloutChange { pause: Some(Some(pause)), ..RolloutChange::default() };
        assert!(two.change_rollout(&change).await.unwrap());
        // Only now may the other go on.
        held.rollback().await.unwrap();
    };
    let (changed, ()) = tokio::join!(waiting, paused);
    assert!(changed);
    assert!(one.rollout_state().await.unwrap().paused.is_some());
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_first_starts_at_once_migrate_once() {
    let home = Home::new(Kind::Postgres).await;
    let homes = [home.neighbour(), home.neighbour(), home.neighbour(), home.neighbour()];
    let starts: Vec<_> = homes.iter().map(|home| tokio::spawn(Store::open(home.settings()))).collect();
    let mut stores = Vec::new();
    for start in starts {
        stores.push(start.await.unwrap().unwrap());
    }
    for (number, store) in stores.iter().enumerate() {
        append(store, &format!("req_{number}"));
    }
    for store in stores {
        store.close().await.unwrap();
    }
    assert_eq!(home.stored().await.len(), 4);
    let tables = home.tables().await;
    assert_eq!(tables.number("SELECT COUNT(*) FROM schema_version").await, 6);
    assert_eq!(tables.number("SELECT COUNT(*) FROM journal_positions").await, 4);
}

#[tokio::test]
async fn a_copy_of_a_data_folder_is_refused_beside_the_original() {
    let original = Home::new(Kind::Postgres).await;
    let store = original.open().await;
    append(&store, "a");
    let copy = original.neighbour();
    std::fs::copy(original.path().join("instance"), copy.path().join("instance")).unwrap();
    let settings = Settings { start_limit: Duration::from_millis(200), ..copy.settings() };
    let message = refusal(settings.clone()).await;
    assert!(message.starts_with("another gateway is connected"), "{message}");
    std::fs::write(copy.path().join("instance"), "").unwrap();
    let message = refusal(settings.clone()).await;
    assert!(message.contains("holds no instance id"), "{message}");
    store.close().await.unwrap();
    std::fs::remove_file(copy.path().join("instance")).unwrap();
    Store::open(settings).await.unwrap().close().await.unwrap();
    assert_eq!(original.stored().await, set(&["a"]));
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_refused() {
    let home = Home::new(Kind::Postgres).await;
    let tables = home.tables().await;
    tables.run("CREATE TABLE shopping (item TEXT)").await;
    let message = refusal(home.settings()).await;
    assert!(message.contains("tables that are not waltz's"), "{message}");
    tables.run("CREATE SCHEMA records").await;
    tables.close().await;
    let url = format!("{}&options=-csearch_path%3Drecords", home.url.clone().unwrap());
    let schema = Home::on(&url);
    let store = schema.open().await;
    append(&store, "a");
    store.close().await.unwrap();
    assert_eq!(schema.stored().await, set(&["a"]), "a schema of its own is enough");
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_password() {
    let url = "postgres://waltz:hunter2@127.0.0.1:1/records";
    let home = Home::on(url);
    assert!(!format!("{:?}", home.settings()).contains("hunter2"));
    let limit = Duration::from_millis(300);
    let started = Instant::now();
    let error = Store::open(Settings { start_limit: limit, ..home.settings() }).await.err().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(matches!(error, Error::ServerAway { .. }), "{error}");
    let told = format!("{error} {error:?}");
    assert!(told.contains("`records` on `127.0.0.1:1`") && !told.contains("hunter2"), "{told}");
}

#[tokio::test]
async fn what_waiting_cannot_mend_is_an_error_at_once() {
    let home = Home::new(Kind::Postgres).await;
    let url = home.url.clone().unwrap();
    let wrong = url.replace("/waltz_", "/nowhere_");
    let started = Instant::now();
    let error = Store::open(Home::on(&wrong).settings()).await.err().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(matches!(&error, Error::Server { source, .. } if source.to_string().contains("does not exist")));
    assert!(matches!(Database::postgres("host=db".into()), Err(Error::DatabaseUrl)));
}

#[tokio::test]
async fn a_database_from_a_backup_takes_the_journal_again() {
    let home = Home::new(Kind::Postgres).await;
    let store = home.open_patient().await;
    append(&store, "a");
    store.close().await.unwrap();
    let url = home.url.clone().unwrap();
    let (address, options) = url.split_once('?').unwrap();
    let (host, name) = address.rsplit_once('/').unwrap();
    let mut server = PgConnection::connect(&format!("{host}/postgres?{options}")).await.unwrap();
    let copy = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}_backup TEMPLATE {name}"));
    sqlx::query(copy).execute(&mut server).await.unwrap();
    let store = home.open_patient().await;
    append(&store, "b");
    store.close().await.unwrap();
    let settings = Settings {
        database: Database::postgres(format!("{host}/{name}_backup?{options}").into()).unwrap(),
        ..home.patient()
    };
    let store = Store::open(settings).await.unwrap();
    store.drained().await.unwrap();
    assert_eq!(store.stats(None).await.unwrap().interactions, 2);
    store.close().await.unwrap();
    let remove = sqlx::AssertSqlSafe(format!("DROP DATABASE {name}_backup WITH (FORCE)"));
    sqlx::query(remove).execute(&mut server).await.unwrap();
}
