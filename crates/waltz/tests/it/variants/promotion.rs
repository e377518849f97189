//! When a live variant takes over by itself: not for a few microseconds, and with a word where it is better.

use serde_json::json;

use super::{SCRIPT, Site, kinds, variant, visits};

/// The default is unsafe without coaching, and `fast` is not.
const POOR: &str = "[[reply]]\nwhen = { model = \"plain\", coached = false }\nstyle = \"unsafe\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_is_faster_by_noise_alone_does_not_take_over() {
    let site = Site::sqlite(SCRIPT, "");
    let gateway = site.gateway();
    let patch = json!([{"operation": "append", "content": "Be kind."}]);
    let body = json!({"agent": "writer", "task_type": "docs", "name": "kind", "patch": patch, "live": true});
    gateway.post("variants", body).await;
    for round in 0..6 {
        gateway.ask_many(20 * round, 20, "Tell me about the harbour").await;
        let board = gateway.learned(20 * round as u64 + 20).await;
        assert_eq!(board["serving"], "default", "{board:#}");
        for name in ["default", "kind"] {
            assert_eq!(variant(&board, name)["status"], "live", "{board:#}");
        }
    }
    let board = gateway.board().await;
    assert!(visits(&board, "default") >= 10 && visits(&board, "kind") >= 10, "{board:#}");
    let history = gateway.history().await;
    assert!(!kinds(&history).contains(&"applied"), "{history:#?}");
    assert!(!gateway.gateway.log_text().contains("serves from now on"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_is_better_takes_over_and_that_is_told() {
    let site = Site::sqlite(&format!("{POOR}{SCRIPT}"), "");
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    for round in 0..20 {
        gateway.ask_many(20 * round, 20, "Tell me about the harbour").await;
        let board = gateway.learned(20 * round as u64 + 20).await;
        if board["serving"] == "fast" {
            break;
        }
    }
    let board = gateway.board().await;
    assert_eq!(board["serving"], "fast", "{board:#}");
    let history = gateway.history().await;
    let applied = history.iter().find(|event| event["event"] == "applied").unwrap();
    let reasoning = applied["decision"]["reasoning"].as_str().unwrap();
    assert!(reasoning.contains("of what serves and at least"), "{reasoning}");
    let log = gateway.gateway.log_text();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("a variant serves from now on")).collect();
    assert!(told.len() == 1 && told[0].contains("fast") && told[0].contains("writer"), "{told:?}");
}
