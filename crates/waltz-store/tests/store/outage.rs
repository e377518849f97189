//! A PostgreSQL server that goes away and comes back. Each test has a server of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use waltz_store::{Error, Settings, Store};

use crate::home::{Home, append, fresh_database, refusal, set};
use crate::server::Server;

async fn home_on_own_server() -> (Home, Server) {
    let server = Server::start(false).unwrap_or_else(|message| panic!("{message}"));
    let url = fresh_database(&server.url("postgres")).await;
    (Home::on(&url), server)
}

fn quick(home: &Home) -> Settings {
    Settings { drain_delay: Duration::ZERO, retry_limit: Duration::from_millis(100), ..home.settings() }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "never {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_lose_nothing_and_double_nothing() {
    let (home, mut server) = home_on_own_server().await;
    let store = Arc::new(Store::open(Settings { drain_batch: 16, ..quick(&home) }).await.unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut ids = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                let id = format!("req_{:06}", ids.len());
                append(&store, &id);
                ids.insert(id);
                std::thread::sleep(Duration::from_micros(500));
            }
            ids
        })
    };
    for signal in ["INT", "QUIT", "INT", "QUIT"] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.stop(signal).unwrap();
        until("told", || store.health().drain_error.is_some()).await;
        let waiting = store.health().undrained_bytes;
        until("appended", || store.health().undrained_bytes > waiting).await;
        server.start_again().unwrap();
        until("drained again", || store.health().drain_error.is_none()).await;
        store.stats(None).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let ids = writer.join().unwrap();
    store.drained().await.unwrap();
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
    assert!(ids.len() > 100);
    assert_eq!(home.stored().await, ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_the_server() {
    let (home, mut server) = home_on_own_server().await;
    server.stop("INT").unwrap();
    let short = Settings { start_limit: Duration::from_millis(200), ..home.settings() };
    let message = refusal(short).await;
    assert!(message.contains("could not be reached for 0 s"), "{message}");
    let opening = tokio::spawn(Store::open(home.settings()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.start_again().unwrap();
    let store = opening.await.unwrap().unwrap();
    append(&store, "a");
    store.close().await.unwrap();
    assert_eq!(home.stored().await, set(&["a"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_while_the_server_is_away_ends_and_keeps_the_rest() {
    let (home, mut server) = home_on_own_server().await;
    let store = Store::open(home.patient()).await.unwrap();
    append(&store, "a");
    store.drained().await.unwrap();
    server.stop("INT").unwrap();
    append(&store, "b");
    let started = Instant::now();
    assert!(matches!(store.close().await, Err(Error::DrainStopped)));
    assert!(store.stats(None).await.is_err());
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(store);
    server.start_again().unwrap();
    let store = home.open().await;
    store.drained().await.unwrap();
    assert_eq!(home.stored().await, set(&["a", "b"]));
}
