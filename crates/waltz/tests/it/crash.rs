//! Nothing acknowledged is lost when the process dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock};

/// SIGKILL at random points under load. 20 iterations by default, `WALTZ_KILL_ITERATIONS` for more.
#[tokio::test(flavor = "multi_thread")]
async fn fault_F54_kill_9_anywhere() {
    let iterations =
        std::env::var("WALTZ_KILL_ITERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let mock = Mock::start("");
    let config = mock.upstream("main");
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut acknowledged: Vec<String> = Vec::new();
    for iteration in 0..iterations {
        let began = Instant::now();
        let mut gateway = Gateway::start_in(Arc::clone(&folder), &config, &[]);
        assert!(began.elapsed() < Duration::from_secs(2), "restart took {:?}", began.elapsed());
        let mut clients = Vec::new();
        for client in 0..4 {
            let url = format!("{}/v1/chat/completions", gateway.url);
            let stream = client % 2 == 1;
            clients.push(tokio::spawn(async move {
                let mut seen = Vec::new();
                let http = crate::harness::client();
                for _ in 0..10_000 {
                    let body = json!({"model": "mock", "stream": stream, "messages": [{"role": "user", "content": "hello"}]});
                    let Ok(reply) = http.post(&url).body(body.to_string()).send().await else { break };
                    let id = reply.headers()["x-request-id"].to_str().unwrap().to_owned();
                    let Ok(text) = reply.text().await else { break };
                    let whole = if stream { text.ends_with("data: [DONE]\n\n") } else { serde_json::from_str::<Value>(&text).is_ok() };
                    if !whole {
                        break;
                    }
                    seen.push(id);
                }
                seen
            }));
        }
        // A different moment each time: between the first requests and well into the drain.
        tokio::time::sleep(Duration::from_millis(20 + (iteration * 37) % 150)).await;
        gateway.child.kill().unwrap();
        gateway.child.wait().unwrap();
        for client in clients {
            acknowledged.extend(client.await.unwrap());
        }
    }
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &[]);
    gateway.drain().await;
    assert_eq!(gateway.stop(), Some(0));
    let out = folder.path().join("all.json");
    let data = folder.path().join("data").display().to_string();
    let arguments = ["data", "export", "evaluations", "--out", out.to_str().unwrap(), "--data", &data];
    let (code, _, err) = crate::harness::run(&arguments, "", folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(&out).unwrap();
    let mut stored = std::collections::HashMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["text_kind"] == "draft" {
            *stored.entry(row["exchange_id"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
    }
    assert!(
        acknowledged.len() > usize::try_from(iterations).unwrap(),
        "only {} exchanges",
        acknowledged.len()
    );
    for id in &acknowledged {
        assert_eq!(stored.get(id), Some(&1), "{id} of {} acknowledged", acknowledged.len());
    }
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
