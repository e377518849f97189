//! A full disk, a slow disk, a database that is away, a second process: what clients are told, and what is
//! on record afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::disk::{ENOSPC, Fault};
use crate::harness::{BINARY, Gateway, Mock, Reply};
use crate::load::stored;
use crate::postgres::Server;

const OPTIONAL: &str = "[record]\nrequired = false\n";

/// A gateway on a failing disk.
fn on_disk(mock: &Mock, fault: Fault<'_>, config: &str) -> Gateway {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let environment = fault.environment();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Gateway::start_in(folder, &format!("{}{config}", mock.upstream("main")), &environment)
}

fn is_unrecorded(reply: &Reply) -> bool {
    reply.header("x-waltz-degraded") == "not_recorded"
}

async fn readiness(gateway: &Gateway) -> Value {
    gateway.get("/readyz", &[]).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F56_disk_full_slow_disk() {
    let mock = Mock::start("");
    let switches = tempfile::tempdir().unwrap();
    let full = switches.path().join("full");
    let fault =
        Fault { call: "write", path: "/data/", error: ENOSPC, only_while: Some(&full), ..Fault::default() };
    for required in [true, false] {
        let gateway = on_disk(&mock, fault, if required { "" } else { OPTIONAL });
        let mut kept = 0;
        for _ in 0..3 {
            assert_eq!(gateway.ask("hi").await.status, 200);
            kept += 1;
        }
        std::fs::write(&full, "").unwrap();
        for _ in 0..5 {
            let reply = gateway.ask("hi").await;
            if required {
                assert_eq!((reply.status, reply.error_code().as_str()), (503, "waltz_record_unavailable"));
            } else {
                assert_eq!((reply.status, is_unrecorded(&reply)), (200, true));
            }
        }
        let state = readiness(&gateway).await;
        assert_eq!(state["unrecorded"], 5);
        assert_eq!(state["degraded"], json!(["exchanges cannot be recorded"]));
        let said = gateway.says("exchange could not be recorded").await;
        assert_eq!(said.matches("exchange could not be recorded").count(), 1, "{said}");
        // Counted as it ended for the client, not as it would have.
        let metrics = gateway.get("/metrics", &[]).await.text;
        let sent = if required { 3 } else { 8 };
        let released =
            r#"waltz_requests_total{endpoint="/v1/chat/completions",status="200",decision="released"}"#;
        assert!(metrics.lines().any(|line| line == format!("{released} {sent}")), "{metrics}");
        assert!(metrics.lines().any(|line| line == "waltz_record_failing 1"), "{metrics}");
        let answers: usize = metrics
            .lines()
            .filter(|line| line.starts_with("waltz_answers_total{"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(answers, sent, "an answer that was refused for want of a record is none");
        let mut unrecorded = 5;
        if required {
            let calls = mock.requests().await.len();
            for (path, body) in [
                ("/v1/embeddings", json!({"model": "mock", "input": "a text"})),
                ("/waltz/v1/evaluate", json!({"prompt": "a text", "response": "another"})),
            ] {
                assert_eq!(gateway.post(path, body.to_string(), &[]).await.status, 503, "{path}");
                unrecorded += 1;
            }
            assert_eq!(mock.requests().await.len(), calls, "nobody pays for what cannot be sent");
        }
        std::fs::remove_file(&full).unwrap();
        // Everybody finds out by themselves that there is room again, whoever comes first.
        let first = gateway.ask("hi").await;
        assert_eq!((first.status, is_unrecorded(&first)), (200, false), "{}", first.text);
        kept += 1;
        for (path, said) in [("/readyz", r#""status":"ready""#), ("/metrics", "waltz_record_failing 0")] {
            std::fs::write(&full, "").unwrap();
            assert_eq!(gateway.ask("hi").await.status, if required { 503 } else { 200 });
            unrecorded += 1;
            std::fs::remove_file(&full).unwrap();
            let told = gateway.get(path, &[]).await.text;
            assert!(told.contains(said), "{told}");
            let next = gateway.ask("hi").await;
            assert_eq!((next.status, is_unrecorded(&next)), (200, false));
            kept += 1;
        }
        assert_eq!(readiness(&gateway).await["unrecorded"], unrecorded);
        let folder = Arc::clone(&gateway.folder);
        assert_eq!(gateway.stop(), Some(0));
        assert_eq!(stored(folder.path(), &[]).len(), kept, "required {required}");
    }

    // Each sync takes a while; appends that meet share one, and nobody waits for all the others.
    let pause = 300;
    let slow = Fault { call: "sync", path: "/data/", slow: Some(pause), ..Fault::default() };
    let gateway = on_disk(&mock, slow, "[record]\ndurability = \"power\"\n");
    let began = Instant::now();
    let replies = futures_util::future::join_all((0..24).map(|_| gateway.ask("hi"))).await;
    let took = began.elapsed();
    assert!(replies.iter().all(|reply| reply.status == 200));
    let one_by_one = 24 * Duration::from_millis(u64::from(pause));
    assert!(took >= Duration::from_millis(u64::from(pause)), "the disk was not slow: {took:?}");
    assert!(took < one_by_one / 2, "24 appends took {took:?}");
    // Where the system's word is enough, no request waits for the disk.
    let gateway = on_disk(&mock, slow, "");
    let began = Instant::now();
    for _ in 0..24 {
        assert_eq!(gateway.ask("hi").await.status, 200);
    }
    assert!(began.elapsed() < one_by_one / 2, "24 requests took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F59_two_processes_one_dir() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    assert_eq!(gateway.ask("hi").await.status, 200);
    for _ in 0..3 {
        let output = std::process::Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(gateway.folder.path().join("waltz.toml"))
            .arg("--data")
            .arg(gateway.data())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("is in use by another waltz process"), "{told}");
        assert!(told.contains(gateway.data().to_str().unwrap()), "{told}");
        assert!(!told.contains("waltz is listening"), "{told}");
        assert_eq!(gateway.ask("hi").await.status, 200, "the first goes on");
    }
    let folder = Arc::clone(&gateway.folder);
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(stored(folder.path(), &[]).len(), 4, "and nothing is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F62_log_spool_overflow() {
    let limit = 1 << 20;
    let prompt = "word ".repeat(6_000);
    for required in [true, false] {
        let mut server = Server::start(false).unwrap_or_else(|message| panic!("{message}"));
        let url = server.url("postgres");
        let environment = [("TEST_DATABASE", url.as_str())];
        let mock = Mock::start("");
        let config = format!(
            "{}[record]\nrequired = {required}\nmax_journal_bytes = {limit}\ndatabase_url_env = \"TEST_DATABASE\"\n",
            mock.upstream("main")
        );
        let gateway = Gateway::start(&config, &environment);
        assert_eq!(gateway.ask("before").await.status, 200);
        gateway.drain().await;
        server.stop("INT").unwrap();
        // Many at a time, so that the count has to be right under contention.
        let (mut asked, mut kept, mut dropped) = (1, 1, 0);
        while dropped < 20 {
            let calls = (0..8).map(|_| gateway.ask(&prompt));
            for reply in futures_util::future::join_all(calls).await {
                asked += 1;
                if reply.status == 200 && !is_unrecorded(&reply) {
                    kept += 1;
                } else {
                    assert_eq!(reply.status, if required { 503 } else { 200 }, "{}", reply.text);
                    dropped += 1;
                }
            }
            assert!(asked < 80, "the journal is never full");
        }
        let state = readiness(&gateway).await;
        let unrecorded = usize::try_from(state["unrecorded"].as_u64().unwrap()).unwrap();
        // A refusal is small: now and then its own record still fits, and then it is not lost.
        assert!(if required { unrecorded <= dropped } else { unrecorded == dropped }, "{dropped} {state}");
        let waiting = state["undrained_bytes"].as_u64().unwrap();
        assert!(waiting <= limit && waiting > limit / 2, "{waiting}");
        // The drain finds out at its next attempt.
        let began = Instant::now();
        let mut state = state;
        while !state["degraded"].to_string().contains("behind the journal") {
            assert!(began.elapsed() < Duration::from_secs(30), "{state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            state = readiness(&gateway).await;
        }
        assert_eq!(state["status"], "degraded");
        if required {
            let drafts = mock.requests().await.len();
            assert!(drafts < asked, "nobody pays for drafts that cannot be sent: {drafts}");
        }
        server.start_again().unwrap();
        while !readiness(&gateway).await["degraded"].as_array().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = gateway.says("the journal is drained again").await;
        assert_eq!(log.matches("the journal is drained again").count(), 1, "{log}");
        let troubles = log.lines().filter(|line| line.contains("the journal is not drained"));
        let causes = troubles.map(|line| line.matches("(os error ").count());
        assert_eq!(causes.max(), Some(1), "a cause is said once: {log}");
        assert_eq!(gateway.ask("after").await.status, 200, "the gateway does not recover");
        asked += 1;
        kept += 1;
        assert_eq!(readiness(&gateway).await["unrecorded"], unrecorded, "nothing more was lost");
        gateway.drain().await;
        let sessions = gateway.get("/waltz/v1/sessions?limit=100", &[]).await.json();
        let on_record = sessions["data"].as_array().unwrap().len();
        assert_eq!(on_record, asked - unrecorded, "required {required}: the count is exact");
        let folder = Arc::clone(&gateway.folder);
        assert_eq!(gateway.stop(), Some(0));
        assert_eq!(stored(folder.path(), &environment).len(), kept, "every answer that said so is on record");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_stops_nothing() {
    let mock = Mock::start("");
    let gateway = Gateway::start_unheard(&mock.upstream("main"), &[("WALTZ_LOG", "debug")]);
    for _ in 0..5 {
        let reply = gateway.ask("hi").await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    gateway.drain().await;
    assert_eq!(readiness(&gateway).await["status"], "ready");
}
