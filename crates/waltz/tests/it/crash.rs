//! Nothing acknowledged is lost when a process dies: a gateway, or the database server behind it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Gateway, Mock};
use crate::load::{Load, assert_stored_once, stored};
use crate::postgres::Server;

/// The variable that tells a gateway of a test its database.
const DATABASE: &str = "TEST_DATABASE";
const ON_DATABASE: &str = "[record]\ndatabase_url_env = \"TEST_DATABASE\"\n";

/// How often processes are killed: `WALTZ_KILL_ITERATIONS`, or a few times.
fn iterations(few: u64) -> u64 {
    match std::env::var("WALTZ_KILL_ITERATIONS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => few,
    }
}

fn server() -> Server {
    Server::start(false).unwrap_or_else(|message| panic!("{message}"))
}

/// Lets the load run for a moment, another one each time: from the first requests to well into the drain.
async fn a_moment(number: u64) {
    tokio::time::sleep(Duration::from_millis(20 + (number * 37) % 150)).await;
}

/// SIGKILL at random points under load.
#[tokio::test(flavor = "multi_thread")]
async fn fault_F54_kill_9_anywhere() {
    kill_9_anywhere("", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F54_kill_9_anywhere_on_postgres() {
    let server = server();
    kill_9_anywhere(ON_DATABASE, &[(DATABASE, &server.url("postgres"))]).await;
}

async fn kill_9_anywhere(record: &str, environment: &[(&str, &str)]) {
    let iterations = iterations(20);
    let mock = Mock::start("");
    let config = format!("{}{record}", mock.upstream("main"));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut acknowledged: Vec<String> = Vec::new();
    for iteration in 0..iterations {
        let began = Instant::now();
        let mut gateway = Gateway::start_in(Arc::clone(&folder), &config, environment);
        assert!(began.elapsed() < Duration::from_secs(2), "restart took {:?}", began.elapsed());
        let load = Load::on(&gateway.url, 4);
        a_moment(iteration).await;
        gateway.child.kill().unwrap();
        gateway.child.wait().unwrap();
        acknowledged.extend(load.stop().await);
    }
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, environment);
    assert_eq!(gateway.stop(), Some(0), "everything is in the database");
    assert!(acknowledged.len() as u64 > iterations, "only {} exchanges", acknowledged.len());
    assert_stored_once(&acknowledged, &stored(folder.path(), environment));
}

/// Two gateways on one database under load: one is killed, the server goes away and comes back, the killed
/// gateway comes back.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_and_their_database_die_in_turn_and_lose_nothing() {
    let mut server = server();
    let url = server.url("postgres");
    let environment = [(DATABASE, url.as_str())];
    let mock = Mock::start("");
    let config = format!("{}{ON_DATABASE}", mock.upstream("main"));
    let mut gateways = [Gateway::start(&config, &environment), Gateway::start(&config, &environment)];
    let loads = [Load::on(&gateways[0].url, 3), Load::on(&gateways[1].url, 3)];
    for round in 0..iterations(2) {
        a_moment(3 * round).await;
        let victim = &mut gateways[usize::from(round % 2 == 1)];
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        a_moment(3 * round + 1).await;
        // In turn an orderly stop, which ends every connection, and a crash.
        server.stop(if round % 2 == 0 { "INT" } else { "QUIT" }).unwrap();
        a_moment(3 * round + 2).await;
        server.start_again().unwrap();
        let address = victim.url.trim_start_matches("http://").to_owned();
        *victim = Gateway::start_at(&address, Arc::clone(&victim.folder), &config, &environment);
    }
    a_moment(4).await;
    let folder = Arc::clone(&gateways[0].folder);
    let mut acknowledged = Vec::new();
    for load in loads {
        let ids = load.stop().await;
        assert!(ids.len() > 10, "only {} exchanges on one of the gateways", ids.len());
        acknowledged.extend(ids);
    }
    for gateway in gateways {
        assert_eq!(gateway.stop(), Some(0), "everything is in the database");
    }
    assert_stored_once(&acknowledged, &stored(folder.path(), &environment));
}

#[tokio::test]
async fn a_stop_signal_finishes_open_exchanges() {
    let mock = Mock::start("[[reply]]\ndelay_ms = 500\ntext = \"late but whole\"\n");
    let gateway = Gateway::over(&mock, "");
    let url = format!("{}/v1/chat/completions", gateway.url);
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let call = tokio::spawn(async move {
        crate::harness::client().post(url).body(body).send().await.unwrap().text().await.unwrap()
    });
    while mock.requests().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let code = tokio::task::spawn_blocking(move || gateway.stop()).await.unwrap();
    assert_eq!(code, Some(0));
    assert!(call.await.unwrap().contains("late but whole"));
}
