//! Clients that ask without pause, and the proof that what they were told is on record.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::client;

/// Clients of one gateway.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts clients, half of which ask for streams. They go on while the gateway is away.
    pub fn on(url: &str, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let url = format!("{url}/v1/chat/completions");
        let start = |number: usize| tokio::spawn(ask(url.clone(), number % 2 == 1, Arc::clone(&stop)));
        Self { clients: (0..clients).map(start).collect(), stop }
    }

    /// Stops the clients and returns the ids of the answers that came whole.
    pub async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for client in self.clients {
            acknowledged.extend(client.await.unwrap());
        }
        acknowledged
    }
}

async fn ask(url: String, stream: bool, stop: Arc<AtomicBool>) -> Vec<String> {
    let body = json!({"model": "mock", "stream": stream, "messages": [{"role": "user", "content": "hello"}]});
    let (http, body) = (client(), body.to_string());
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(reply) = http.post(&url).body(body.clone()).send().await else {
            // The gateway is away; it comes back at the same address, or the load ends.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let id = reply.headers()["x-request-id"].to_str().unwrap().to_owned();
        let good = reply.status() == 200;
        let Ok(text) = reply.text().await else { continue };
        let whole = if stream {
            text.ends_with("data: [DONE]\n\n")
        } else {
            serde_json::from_str::<Value>(&text).is_ok()
        };
        if good && whole {
            seen.push(id);
        }
    }
    seen
}

/// How often each exchange is in the database of a configuration, read by the program itself.
pub fn stored(folder: &Path, environment: &[(&str, &str)]) -> HashMap<String, usize> {
    let out = folder.join("all.jsonl");
    let (config, data) = (folder.join("waltz.toml"), folder.join("data"));
    let words = [&out, &config, &data].map(|path| path.to_str().unwrap().to_owned());
    let arguments =
        ["data", "export", "evaluations", "--out", &words[0], "--config", &words[1], "--data", &words[2]];
    let (code, _, told) = crate::harness::run(&arguments, "", folder, environment);
    assert_eq!(code, 0, "{told}");
    let mut stored = HashMap::new();
    for line in std::fs::read_to_string(&out).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["text_kind"] == "draft" {
            *stored.entry(row["exchange_id"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
    }
    std::fs::remove_file(out).unwrap();
    stored
}

/// Fails unless each of these is stored exactly once.
pub fn assert_stored_once(acknowledged: &[String], stored: &HashMap<String, usize>) {
    for id in acknowledged {
        assert_eq!(stored.get(id), Some(&1), "{id} of {} acknowledged", acknowledged.len());
    }
    let twice = stored.values().filter(|count| **count != 1).count();
    assert_eq!(twice, 0, "and nothing is stored twice");
}
