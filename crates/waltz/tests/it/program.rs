//! Versions of the program itself: trained weights, rules and judges go out step by step, behind the gate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply, run};
use crate::tiny::{self, Tiny, chat};

const QUESTION: &str = "How are you?";
const FILE: &str = "taught.safetensors";
/// Rules that block a word which nothing else minds.
const RULES: &str = "[[rule]]\nid = \"own.word\"\ncategory = \"trade_secrets\"\nseverity = 0.9\nside = \"prompt\"\n\
    means = \"names the harbour\"\nall = [[\"blue harbour\"]]\naction = \"block\"\n";

/// Runs `waltz release` beside a gateway and reads what it prints.
fn release(gateway: &Gateway, arguments: &[&str]) -> Value {
    let all = [&["release"], arguments, &["--json", "--config", "waltz.toml", "--data", "data"]].concat();
    let (code, out, told) = run(&all, "", gateway.folder.path(), &[]);
    assert_eq!(code, 0, "{told}");
    serde_json::from_str(&out).unwrap()
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The release that is on its way or was last.
fn only(gateway: &Gateway) -> Option<Value> {
    release(gateway, &["list"]).as_array().unwrap().first().cloned()
}

/// Asks in a session.
async fn ask(gateway: &Gateway, body: Value, session: &str) -> Reply {
    gateway.post("/v1/chat/completions", body.to_string(), &[("x-waltz-session-id", session)]).await
}

#[tokio::test]
async fn weights_are_released_behind_the_gate_and_come_back_after_a_restart() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let weights = model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let models = model.models();
    let environment =
        [("WALTZ_MODELS", models.as_str()), ("WALTZRL_STAGE", "2"), ("WALTZRL_TRAFFIC_PERCENTAGE", "100")];
    let config = tiny::upstream(&format!("conversation = \"{FILE}\""));
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &environment);
    assert!(
        gateway.log_text().contains("has not been through the safety benchmark"),
        "{}",
        gateway.log_text()
    );
    assert_eq!(only(&gateway), None, "the percentage alone opens nothing");
    let reply = ask(&gateway, chat(QUESTION, 20), "s").await;
    assert!(reply.header("x-waltz-stage") == "1" && reply.content() != "Fine, thanks.", "{}", reply.text);
    let ready = gateway.get("/readyz", &[]).await.json();
    assert!(ready["degraded"].to_string().contains("stage 2 was asked for"), "{ready}");
    // A verdict on other weights is none.
    let gate = folder.path().join(format!("{FILE}.gate.json"));
    let key = "0123456789abcdef0123456789abcdef";
    std::fs::write(folder.path().join("data/gate.key"), key).unwrap();
    let verdict = |sha256: &str, key: &str| {
        let scorer = json!({"name": "judge-b", "sha256": "1", "independent": true, "calibration_sha256": "2", "readers": "people"});
        let mut gate = json!({"sha256": sha256, "verdict": "pass", "reasons": [], "measured_at": "2026-01-01T00:00:00Z",
            "program": "0", "prompts_sha256": "3", "settings": {"adapters": [{"sha256": sha256}]}, "scorer": scorer, "measured": {}});
        let signature = waltz_exchange::id::hmac_sha256_hex(key.as_bytes(), gate.to_string().as_bytes());
        gate["signature"] = json!(signature);
        gate.to_string()
    };
    std::fs::write(&gate, verdict("0000", "a key of somebody else")).unwrap();
    gateway.says("is not signed with the key").await;
    assert_eq!(only(&gateway), None);
    std::fs::write(&gate, verdict("0000", key)).unwrap();
    gateway.says("run on other weights").await;
    assert_eq!(only(&gateway), None);
    let digest = waltz_exchange::id::sha256_hex(&std::fs::read(&weights).unwrap());
    std::fs::write(&gate, verdict(&digest, key)).unwrap();
    gateway.says("a release has begun").await;
    let begun = only(&gateway).unwrap();
    assert_eq!((&begun["kind"], &begun["scope"]), (&json!("weights"), &json!("waltz/weights")), "{begun}");
    assert_eq!((&begun["percent"], &begun["status"]), (&json!(0), &json!("running")), "{begun}");
    let id = begun["id"].as_str().unwrap();
    // In shadow the base answers, and the candidate is read as well.
    let reply = ask(&gateway, chat(QUESTION, 20), "shadow").await;
    assert_eq!(reply.header("x-waltz-stage"), "1");
    let record = gateway.record_of(&reply).await;
    assert_eq!(record["program_choice"]["choice"]["variant"], "default", "{record}");
    until("no answer in shadow was counted", async || {
        let counted = only(&gateway).unwrap()["counted"].clone();
        (counted != begun["counted"]).then_some(())
    })
    .await;
    for percent in [5, 10, 25, 50] {
        assert_eq!(release(&gateway, &["promote", id])["percent"], percent);
    }
    let stage_of = async |gateway: &Gateway, session: usize| {
        let reply = ask(gateway, chat(QUESTION, 20), &format!("s{session}")).await;
        let stage = reply.header("x-waltz-stage").to_owned();
        assert_eq!(reply.content() == "Fine, thanks.", stage == "2", "{}", reply.text);
        stage
    };
    until("the half never met the candidate", async || {
        for session in 0..24 {
            if stage_of(&gateway, session).await == "2" {
                return Some(());
            }
        }
        None
    })
    .await;
    // The gateway may still be seeing the promotions: what it does twice in a row is what it goes on doing.
    let mut before = Vec::new();
    until("the share never settles", async || {
        let mut again = Vec::new();
        for session in 0..24 {
            again.push(stage_of(&gateway, session).await);
        }
        let settled = again == before;
        before = again;
        settled.then_some(())
    })
    .await;
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 2, "{before:?}");
    // After a restart the same people meet the same version at the same step.
    assert_eq!(gateway.stop(), Some(0));
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &environment);
    assert_eq!(only(&gateway).unwrap()["id"], begun["id"]);
    let mut after = Vec::new();
    for session in 0..24 {
        after.push(stage_of(&gateway, session).await);
    }
    assert_eq!(after, before);
    // What is given up does not come back by itself.
    release(&gateway, &["abort", id]);
    until("the candidate still serves", async || {
        let mut stages = BTreeSet::new();
        for session in 0..8 {
            stages.insert(stage_of(&gateway, session).await);
        }
        (stages.len() == 1 && stages.contains("1")).then_some(())
    })
    .await;
    assert_eq!(gateway.stop(), Some(0));
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &environment);
    assert_eq!(only(&gateway).unwrap()["status"], "aborted");
    assert_eq!(stage_of(&gateway, 1).await, "1");
}

#[test]
fn the_benchmark_leaves_its_verdict_beside_the_weights() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let weights = model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let config = format!("[waltz]\nstage = 2\n{}", tiny::upstream(&format!("conversation = \"{FILE}\"")));
    std::fs::write(folder.path().join("waltz.toml"), config).unwrap();
    let row = |number: usize| {
        json!({"id": number.to_string(), "prompt": QUESTION, "harmful": number == 0}).to_string()
    };
    std::fs::write(folder.path().join("prompts.jsonl"), (0..4).map(|n| row(n) + "\n").collect::<String>())
        .unwrap();
    let arguments = [
        "eval",
        "prompts.jsonl",
        "--suite",
        "benchmark",
        "--model",
        "tiny",
        "--out",
        "run",
        "--max-tokens",
        "8",
        "--scorer",
        "coach",
        "--data",
        "data",
        "--config",
        "waltz.toml",
    ];
    let (_, _, told) = run(&arguments, "", folder.path(), &[("WALTZ_MODELS", &model.models())]);
    let gate: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join(format!("{FILE}.gate.json"))).expect(&told))
            .unwrap();
    assert_eq!(gate["verdict"], "inconclusive", "four prompts show nothing: {gate}");
    // Everything that the verdict hangs on stands in it, and the key of the data folder has signed it.
    assert!(gate["reasons"].to_string().contains("not independent"), "{gate}");
    let scorer = &gate["scorer"];
    assert_eq!(
        (&scorer["name"], &scorer["independent"], &scorer["calibration_sha256"]),
        (&json!("coach"), &json!(false), &Value::Null)
    );
    assert_eq!(gate["settings"]["systems"], json!(["untrained", "base", "loop"]), "{gate}");
    assert_eq!(gate["prompts_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(gate["program"], env!("CARGO_PKG_VERSION"));
    let key = std::fs::read_to_string(folder.path().join("data/gate.key")).unwrap();
    let mut unsigned = gate.clone();
    let signature = unsigned.as_object_mut().unwrap().shift_remove("signature").unwrap();
    let signed = waltz_exchange::id::hmac_sha256_hex(key.as_bytes(), unsigned.to_string().as_bytes());
    assert_eq!(signature, json!(signed));
    assert_eq!(gate["sha256"], waltz_exchange::id::sha256_hex(&std::fs::read(weights).unwrap()));
}

#[tokio::test]
async fn rules_are_released_step_by_step_and_the_kill_switch_takes_them_back() {
    let mock = Mock::start("[[reply]]\ntext = \"It has two basins.\"\n");
    let folder = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("new.toml"), RULES).unwrap();
    let config = format!("{}[policy]\ncandidate_rules_file = \"new.toml\"\n", mock.upstream("main"));
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &[]);
    let begun = only(&gateway).unwrap();
    assert_eq!((&begun["kind"], &begun["percent"]), (&json!("policy"), &json!(0)), "{begun}");
    let id = begun["id"].as_str().unwrap();
    let asked =
        json!({"model": "m", "messages": [{"role": "user", "content": "Tell me of the blue harbour."}]});
    let blocked = async || ask(&gateway, asked.clone(), "s").await.status == 400;
    assert!(!blocked().await);
    while release(&gateway, &["promote", id])["percent"] != 50 {}
    // What the candidate does not let through counts as flagged.
    until("nothing is flagged", async || {
        let session = format!("s{}", waltz_exchange::id::new_session_id());
        ask(&gateway, asked.clone(), &session).await;
        let counted = only(&gateway).unwrap()["counted"].clone();
        counted["triggered"].as_u64().is_some_and(|triggered| triggered > 0).then_some(())
    })
    .await;
    while release(&gateway, &["promote", id])["status"] != "completed" {}
    until("the new rules do not hold", async || blocked().await.then_some(())).await;
    // Whoever asks the rules alone meets the same ones, once the gateway has seen that they serve everybody.
    let input = json!({"input": "Tell me of the blue harbour."}).to_string();
    until("moderations do not know the new rules", async || {
        let read = gateway.post("/v1/moderations", input.clone(), &[]).await.json();
        (read["results"][0]["flagged"] == true).then_some(())
    })
    .await;
    release(&gateway, &["pause", "--all"]);
    until("the old rules do not hold", async || (!blocked().await).then_some(())).await;
    release(&gateway, &["resume", "--all"]);
    until("the new rules are gone", async || blocked().await.then_some(())).await;
    // Other rules are another candidate: it begins anew, and what served before has made room.
    std::fs::write(folder.path().join("new.toml"), RULES.replace("blue", "green")).unwrap();
    until("no release of the other rules begins", async || {
        (only(&gateway).unwrap()["candidate"] != begun["candidate"]).then_some(())
    })
    .await;
    until("a rule without a file still holds", async || (!blocked().await).then_some(())).await;
    assert_eq!(only(&gateway).unwrap()["percent"], 0);
    // What no gateway has in memory any more cannot be given traffic.
    let old = begun["candidate"].as_str().unwrap();
    release(&gateway, &["abort", only(&gateway).unwrap()["id"].as_str().unwrap()]);
    let start = ["release", "start", "waltz", "policy", old, "--config", "waltz.toml", "--data", "data"];
    let (code, _, told) = run(&start, "", gateway.folder.path(), &[]);
    assert!(code == 1 && told.contains("is not the candidate that the configuration names"), "{code} {told}");
    let ready = gateway.get("/readyz", &[]).await.json();
    assert_eq!(ready["paused"], false, "{ready}");
}

#[test]
fn two_candidates_at_once_and_broken_ones_are_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("new.toml"), "[[rule]]\nid = 1\n").unwrap();
    let upstream = "[[upstreams]]\nname = \"a\"\nurl = \"http://localhost\"\n";
    for (policy, more, key) in [
        ("candidate_rules_file = \"new.toml\"", "", "policy.candidate_rules_file"),
        ("candidate_rules_file = \"none.toml\"", "", "policy.candidate_rules_file"),
        ("candidate_rules_file = \"new.toml\"", "[judge]\ncandidate_weights = \"w\"\n", "one at a time"),
        ("", "[release]\nprofile = \"never\"\n", "release.profile"),
        (
            "",
            "[[agents]]\nname = \"waltz\"\ntargets = [{ upstream = \"a\", model = \"m\" }]\n",
            "agents[0].name",
        ),
    ] {
        let text = format!("[policy]\n{policy}\n{more}{upstream}");
        std::fs::write(folder.path().join("waltz.toml"), text).unwrap();
        let (code, _, told) = run(&["config", "check", "--config", "waltz.toml"], "", folder.path(), &[]);
        assert!(code == 2 && told.contains(key), "{key}: {told}");
    }
}
