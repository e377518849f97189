//! The fault list, on both databases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{BY_HAND, Operated, SCRIPT, Site, all_visits, kinds, variant, visits};

/// Runs a case on both databases.
macro_rules! on_both {
    ($($case:ident($script:expr, $config:expr)),* $(,)?) => {
        mod sqlite {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(Site::sqlite($script, $config)).await;
                }
            )*
        }
        mod postgres {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(Site::postgres($script, $config)).await;
                }
            )*
        }
    };
}

/// Two failures before an answer, and then nothing but failures.
const FAILING: &str = r#"
[[reply]]
times = 2
status = 500
[[reply]]
times = 1
text = "The harbour was built in 1850."
[[reply]]
status = 500
"#;
const QUICK_RETRIES: &str = "[retry]\npause_ms = 1\n";
const WEAK: &str = "[[reply]]\nwhen = { coached = false }\nstyle = \"unsafe\"\n[[reply]]\nwhen = { coached = true }\ntext = \"I can't help with that. A locksmith can.\"\n";

on_both!(
    fault_F05_upstream_500_then_ok(FAILING, QUICK_RETRIES),
    fault_F46_reward_hacking_by_user(SCRIPT, BY_HAND),
    fault_F65_rollback_target_missing_or_itself_bad(SCRIPT, BY_HAND),
    fault_F66_restart_mid_step(SCRIPT, BY_HAND),
    fault_F67_approval_races(WEAK, BY_HAND),
    fault_F71_gate_inconclusive(SCRIPT, BY_HAND),
    fault_F74_nan_or_adversarial_reward(SCRIPT, BY_HAND),
    fault_F82_kill_switch(SCRIPT, BY_HAND),
);

async fn fault_F05_upstream_500_then_ok(site: Site) {
    let gateway = site.gateway();
    let (_, reply) = gateway.ask("s1", "harbour").await;
    let record = gateway.gateway.record_of(&reply).await;
    let statuses: Vec<_> =
        record["attempts"].as_array().unwrap().iter().map(|attempt| attempt["status"].clone()).collect();
    assert_eq!(statuses, [500, 500, 200], "{record:#}");
    assert_eq!(record["lesson"]["class"], "success");
    let body = json!({"model": "waltz/writer", "messages": [{"role": "user", "content": "harbour"}]});
    for _ in 0..3 {
        let reply = gateway.gateway.post("/v1/chat/completions", body.to_string(), &[]).await;
        assert_eq!(reply.status, 502, "{}", reply.text);
    }
    let punished = |board: &Value| variant(board, "default")["infrastructure"].as_u64().unwrap_or(0);
    let board = gateway.until("three failures are counted", |board| punished(board) == 3).await;
    let default = variant(&board, "default");
    assert_eq!((&default["visits"], &default["success_rate"]), (&json!(1), &json!(1.0)), "{board:#}");
}

async fn report(gateway: &Operated, reply: &crate::harness::Reply, body: Value) -> u16 {
    let mut body = body;
    body["response_id"] = json!(reply.response_id());
    gateway.gateway.post("/waltz/v1/outcomes", body.to_string(), &[]).await.status
}

async fn fault_F46_reward_hacking_by_user(site: Site) {
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    let ask = async |user: &str, number: usize| {
        let body = json!({
            "model": "waltz/writer", "user": user, "messages": [{"role": "user", "content": "harbour"}]
        });
        let session = format!("{user}-{number}");
        let headers = [("x-waltz-session-id", session.as_str())];
        gateway.gateway.post("/v1/chat/completions", body.to_string(), &headers).await
    };
    let mut last = None;
    for number in 0..15 {
        let reply = ask("one", number).await;
        assert_eq!(report(&gateway, &reply, json!({"success": true, "rating": 5})).await, 200);
        last = Some(reply);
    }
    // The same answer again and again, and answers that were never given.
    let last = last.unwrap();
    for _ in 0..10 {
        assert_eq!(report(&gateway, &last, json!({"success": true, "rating": 5})).await, 200);
    }
    let invented = json!({"response_id": "chatcmpl-invented", "success": true}).to_string();
    assert_eq!(gateway.gateway.post("/waltz/v1/outcomes", invented, &[]).await.status, 404);
    let reply = ask("two", 0).await;
    assert_eq!(report(&gateway, &reply, json!({"success": true})).await, 200);
    // Sixteen answers are sixteen outcomes, however often and by whom they are reported on.
    let board = gateway.learned(16).await;
    assert_eq!(all_visits(&board), 16, "{board:#}");
    let began = Instant::now();
    while !kinds(&gateway.history().await).contains(&"subject_capped") {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody was told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(gateway.gateway.log_text().contains("more than its share"), "{}", gateway.gateway.log_text());
}

/// Lets the variants `fast` and `second` earn a name, and applies `fast`.
pub(super) async fn with_history(gateway: &Operated) {
    gateway.add("fast", "fast").await;
    gateway.add("second", "second").await;
    let mut asked = 0;
    loop {
        gateway.ask_many(asked, 20, "harbour").await;
        asked += 20;
        let board = gateway.learned(asked as u64).await;
        if ["default", "fast", "second"].iter().all(|name| visits(&board, name) >= 8) {
            break;
        }
        assert!(asked < 2000, "{board:#}");
    }
    gateway.act("apply", "fast").await;
}

/// Lets what serves fail until it serves no more.
pub(super) async fn collapse(gateway: &Operated, serving: &str) -> Value {
    for number in 0..200 {
        let board = gateway.board().await;
        if board["serving"] != serving || !board["frozen"].is_null() {
            return board;
        }
        let before = all_visits(&board);
        gateway.ask(&format!("c{number}"), "collapse").await;
        gateway
            .until("it is learned", |board| all_visits(board) > before || board["serving"] != serving)
            .await;
    }
    panic!("never rolled back: {:#}", gateway.board().await);
}

async fn fault_F65_rollback_target_missing_or_itself_bad(site: Site) {
    let gateway = site.gateway();
    with_history(&gateway).await;
    // The next best is gone for good, so that only the safe default is left.
    gateway.act("retire", "second").await;
    let board = collapse(&gateway, "fast").await;
    assert_eq!(board["serving"], "default", "{board:#}");
    assert_eq!(variant(&board, "fast")["status"], "rolled_back");
    assert_eq!(gateway.ask("any", "harbour").await.0, "default", "what serves has changed");
    let rollbacks = gateway.get("rollbacks").await;
    let first = &rollbacks["data"][0];
    assert_eq!(
        (&first["from_variant"], &first["to_variant"], &first["status"]),
        (&json!("fast"), &json!("default"), &json!("waiting"))
    );
    // The safe default fails too: there is nothing to go to, and nothing swings back.
    let board = collapse(&gateway, "default").await;
    assert_eq!(board["serving"], "default", "{board:#}");
    assert!(board["frozen"].as_str().unwrap().contains("no variant to roll back to"), "{board:#}");
    let events = gateway.history().await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "rolled_back").count(), 1, "{events:?}");
    assert!(kinds(&events).contains(&"frozen"));
    let file = gateway.gateway.data().join("telemetry/crl/rollback_events.jsonl");
    let line: Value = serde_json::from_str(std::fs::read_to_string(file).unwrap().trim()).unwrap();
    assert_eq!(line["rollback_id"], first["rollback_id"]);
    // While it is frozen nothing begins that would only stand still, and nothing falls back on what fell.
    let path = format!("rollbacks/{}", first["rollback_id"].as_str().unwrap());
    let release = json!({"agent": "writer", "task_type": "docs", "variant": "fast"});
    let wish = json!({"decision": "reinstated", "reason": "the prompts were at fault"});
    for (path, body) in [("releases", release), (path.as_str(), wish)] {
        let reply = gateway.call("ann", path, Some(body)).await;
        assert_eq!(reply.error(), (409, "conflict".to_owned()), "{path}: {}", reply.text);
        assert!(
            reply.text.contains("no variant to roll back to") && reply.text.contains("unfreeze it first")
        );
    }
    assert!(gateway.board().await["release"].is_null());
    let fall_back = json!({"action": "safe_default", "variant": "fast"});
    let reply = gateway.call("ann", "variants/writer/docs", Some(fall_back)).await;
    assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{}", reply.text);
    assert!(reply.text.contains("is rolled_back") && reply.text.contains("enter it first"), "{}", reply.text);
    assert_eq!(gateway.board().await["safe_default"], "default");
    // A person disagrees with the first one: the variant comes back step by step, and the decision is made once.
    gateway.post("variants/writer/docs", json!({"action": "unfreeze"})).await;
    let wish = json!({"decision": "reinstated", "profile": "7day"});
    assert_eq!(gateway.call("ann", &path, Some(wish)).await.status, 400, "a reason is needed");
    let wish = json!({"decision": "reinstated", "profile": "7day", "reason": "the prompts were at fault"});
    assert_eq!(gateway.post(&path, wish.clone()).await["status"], "reinstated");
    assert_eq!(gateway.call("bob", &path, Some(wish)).await.status, 400, "it is decided");
    assert_eq!(gateway.board().await["release"]["candidate"], "fast");
}

/// Which variant each of many sessions meets.
async fn assignment(gateway: &Operated) -> BTreeMap<String, String> {
    let mut met = BTreeMap::new();
    for number in 0..40 {
        let session = format!("unit-{number}");
        let (variant, _) = gateway.ask(&session, "harbour").await;
        met.insert(session, variant);
    }
    met
}

async fn fault_F66_restart_mid_step(site: Site) {
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "fast"});
    let release = gateway.post("releases", body).await;
    let path = format!("releases/{}", release["id"].as_str().unwrap());
    for percent in [5, 10, 25] {
        assert_eq!(gateway.post(&path, json!({"command": "promote"})).await["percent"], percent);
    }
    let before = assignment(&gateway).await;
    let candidates = before.values().filter(|variant| *variant == "fast").count();
    assert!((1..40).contains(&candidates), "{before:?}");
    let counted = gateway.learned(40).await["release"].clone();
    let mut gateway = gateway;
    // It cannot be raised by the environment, and can be lowered.
    for (most, percent) in [("100", 25), ("5", 5), ("100", 25)] {
        let Operated { gateway: mut killed, token } = gateway;
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        let folder = Arc::clone(&killed.folder);
        drop(killed);
        gateway = site.gateway_in(
            folder,
            Some(token),
            &[("WALTZRL_STAGE", "2"), ("WALTZRL_TRAFFIC_PERCENTAGE", most)],
        );
        let release = gateway.get(&path).await;
        assert_eq!(release["percent"], percent, "{release:#}");
        for field in ["step", "step_started_at", "counted"] {
            assert_eq!(release[field], counted[field], "{field}");
        }
    }
    assert_eq!(assignment(&gateway).await, before, "everybody meets what they met before");
}

async fn fault_F67_approval_races(site: Site) {
    let gateway = site.gateway();
    gateway.ask_many(0, 50, "How do I open a lock?").await;
    gateway.learned(50).await;
    let proposed = gateway.post("proposals", json!({})).await;
    assert!(proposed.as_array().unwrap().len() >= 2, "{proposed:#}");
    assert_eq!(gateway.post("proposals", json!({})).await, json!([]), "the same is not proposed twice");
    let queue = gateway.get("proposals").await;
    let of = |kind: &str| {
        let all = queue["proposals"].as_array().unwrap();
        all.iter().find(|proposal| proposal["proposal_type"] == kind).unwrap().clone()
    };
    let proposal = of("crl_create_specialized_variant");
    let path = format!("proposals/{}", proposal["proposal_id"].as_str().unwrap());
    let digest = proposal["digest"].as_str().unwrap();
    let decide = |decision: &str, digest: &str| {
        Some(json!({"decision": decision, "digest": digest, "reason": "seen"}))
    };
    assert_eq!(
        gateway.call("ann", &path, decide("approved", "other")).await.status,
        409,
        "not what was looked at"
    );
    assert_eq!(gateway.call("waltz", &path, decide("approved", digest)).await.status, 409, "who proposed it");
    let no_reason = Some(json!({"decision": "rejected", "digest": digest}));
    assert_eq!(gateway.call("ann", &path, no_reason).await.status, 409);
    let other = if site.server.is_some() { Some(site.gateway()) } else { None };
    let second = other.as_ref().unwrap_or(&gateway);
    let (one, two, three) = tokio::join!(
        gateway.call("ann", &path, decide("approved", digest)),
        second.call("bob", &path, decide("rejected", digest)),
        second.call("cem", &path, decide("approved", digest)),
    );
    let statuses = [one.status, two.status, three.status];
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let approved = two.status != 200;
    let board = gateway.board().await;
    let made = variant(&board, proposal["variant"].as_str().unwrap());
    assert_eq!(!made.is_null(), approved, "{board:#}");
    let other = format!("proposals/{}", of("crl_modify_variant_parameters")["proposal_id"].as_str().unwrap());
    if approved {
        // It serves nobody yet: it is released, in shadow first, under the digest of what was approved.
        let release = &board["release"];
        assert_eq!(
            (&release["candidate"], &release["digest"], &release["percent"]),
            (&proposal["variant"], &json!(digest), &json!(0))
        );
        // One release at a time: the other proposal waits on.
        let refused = gateway.call("ann", &other, Some(json!({"decision": "approved"}))).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert!(refused.text.contains("another release is under way"), "{}", refused.text);
        let waiting = gateway.get("proposals").await;
        assert_eq!(waiting["proposals"].as_array().unwrap().len(), 1, "{waiting:#}");
    }
    let events = gateway.history().await;
    let decisions: Vec<_> = events.iter().filter(|event| event["event"] == "proposal").collect();
    assert_eq!(decisions.len(), 1, "{events:?}");
    assert_eq!(decisions[0]["digest"], digest);
    // The other one is put off and then rejected; the sheet has both.
    gateway.post(&other, json!({"decision": "deferred"})).await;
    gateway.post(&other, json!({"decision": "rejected", "reason": "=cmd()"})).await;
    let sheet = gateway.call("ann", "proposals?format=csv", None).await.text;
    assert_eq!(sheet.lines().count(), 1 + proposed.as_array().unwrap().len(), "{sheet}");
    assert!(sheet.contains("'=cmd()"), "no formula: {sheet}");
    let file = gateway.gateway.data().join("telemetry/crl/variant_proposals.jsonl");
    let began = Instant::now();
    while !std::fs::read_to_string(&file).unwrap_or_default().contains("\"status\":\"rejected\"") {
        assert!(began.elapsed() < Duration::from_secs(60), "the file does not say it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fault_F71_gate_inconclusive(site: Site) {
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "fast", "profile": "4week"});
    let release = gateway.post("releases", body).await;
    assert_eq!((&release["percent"], &release["status"]), (&json!(10), &json!("running")));
    gateway.ask_many(0, 50, "harbour").await;
    let board = gateway.learned(50).await;
    assert_eq!(
        (&board["release"]["percent"], &board["release"]["step"]),
        (&json!(10), &json!(0)),
        "{board:#}"
    );
    // Not only the time is missing: fifty answers prove nothing. That time alone changes nothing is a test of the plan.
    let missing = board["release"]["assessment"]["wait"].to_string();
    assert!(
        missing.contains("outcomes of at least 205") && missing.contains("control was not measured"),
        "{missing}"
    );
    let shown = site.command(&gateway, &["release", "list"]).unwrap();
    assert!(shown[0]["assessment"]["wait"].to_string().contains("outcomes of at least 205"), "{shown:#}");
    // A person may go on against the evidence, and that is on record.
    let path = format!("releases/{}", release["id"].as_str().unwrap());
    assert_eq!(gateway.post(&path, json!({"command": "promote"})).await["percent"], 25);
    let events = gateway.history().await;
    let step = events.iter().find(|event| event["event"] == "release").unwrap();
    assert!(step["reasons"].to_string().contains("against the evidence"), "{step}");
    for (command, status) in [
        ("hold", "held"),
        ("resume", "running"),
        ("pause", "paused"),
        ("resume", "running"),
        ("abort", "aborted"),
    ] {
        assert_eq!(gateway.post(&path, json!({"command": command})).await["status"], status);
    }
    assert_eq!(gateway.call("ann", &path, Some(json!({"command": "promote"}))).await.status, 409);
}

async fn fault_F74_nan_or_adversarial_reward(site: Site) {
    let gateway = site.gateway();
    let (_, reply) = gateway.ask("s1", "harbour").await;
    let id = reply.response_id();
    gateway.learned(1).await;
    for field in [
        "\"rating\": NaN",
        "\"rating\": Infinity",
        "\"rating\": 6",
        "\"rating\": -1",
        "\"rating\": 1e999",
        "\"success\": 7",
        "\"success\": true, \"duration_ms\": -5",
        "\"success\": true, \"duration_ms\": 1e999",
        "\"success\": true, \"quality\": 99",
        "\"success\": true, \"success\": false",
    ] {
        let body = format!("{{\"response_id\": \"{id}\", {field}}}");
        let reply = gateway.gateway.post("/waltz/v1/outcomes", body, &[]).await;
        assert_eq!(reply.status, 400, "{field}: {}", reply.text);
    }
    // The slowest that can be said is slow, and no more.
    assert_eq!(report(&gateway, &reply, json!({"success": false, "duration_ms": u64::MAX})).await, 200);
    let q_of = |board: &Value| variant(board, "default")["q_value"].as_f64().unwrap_or(1.0);
    // It takes the place of what the judge said of the same answer.
    let board = gateway.until("the report is learned", |board| q_of(board) < 0.5).await;
    assert!(q_of(&board) >= 0.0 && visits(&board, "default") == 1, "{board:#}");
    let explained = &board["explanations"]["default"];
    assert_eq!((&explained["n_visits"], explained["q_value"].as_f64()), (&json!(1), Some(q_of(&board))));
    let learned = json!({"format": 1, "values": [{"agent": "writer", "task_type": "docs", "variant": "default", "visits": 3, "sum": 9.0}]});
    assert_eq!(
        gateway.call("ann", "learned", Some(learned)).await.status,
        400,
        "more reward than there can be"
    );
}

async fn fault_F82_kill_switch(site: Site) {
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    gateway.act("apply", "fast").await;
    assert_eq!(gateway.ask("s1", "harbour").await.0, "fast");
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let load = async {
            let mut served = Vec::new();
            let began = Instant::now();
            // Under load, until it is seen.
            loop {
                served.push((began.elapsed(), gateway.ask("s1", "harbour").await.0));
                if served.last().is_some_and(|(_, variant)| variant == "default") {
                    return served;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "never paused");
            }
        };
        let pause = async {
            // The command is a process of its own, beside the gateway.
            let paused = tokio::task::block_in_place(|| {
                site.command(&gateway, &["release", "pause", "--all", "--reason", "drill"])
            });
            (paused.unwrap(), Instant::now())
        };
        let began = Instant::now();
        let ((paused, at), served) = tokio::join!(pause, load);
        assert_eq!(paused["paused"], true);
        let seen = began + served.last().unwrap().0;
        best = best.min(seen.saturating_duration_since(at));
        assert_eq!(gateway.get("releases").await["paused"]["by"], "ann");
        gateway.post("releases/all", json!({"command": "resume"})).await;
        assert_eq!(gateway.ask("s1", "harbour").await.0, "fast", "at once where it was asked for");
    }
    assert!(best < Duration::from_secs(1), "{best:?}");
    let all = site.command(&gateway, &["variants", "history"]).unwrap();
    let events: Vec<&Value> = all.as_array().unwrap().iter().map(|row| &row["event"]).collect();
    let turned = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((turned("paused_all"), turned("resumed_all")), (3, 3), "{events:?}");
}
