//! What operators do: commands, releases in shadow, webhooks, `waltz.stage`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use waltz_exchange::id::hmac_sha256_hex;

use super::faults::collapse;
use super::{BY_HAND, SCRIPT, Site, all_visits, variant, visits};
use crate::harness::receive;

#[tokio::test(flavor = "multi_thread")]
async fn commands_do_what_the_interface_does() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    let folder = gateway.gateway.folder.path().to_owned();
    let patch = folder.join("patch.json");
    let file = patch.display().to_string();
    std::fs::write(&patch, r#"[{"section": "Rules", "operation": "replace", "content": "x"}]"#).unwrap();
    let command = |arguments: &[&str]| site.command(&gateway, arguments);
    let add = ["variants", "add", "writer", "docs", "fast", "--live", "--patch", &file];
    assert!(command(&add).unwrap_err().contains("no section `Rules`"), "a patch that cannot be applied");
    let slip = command(&["variants", "add", "writer", "dcos", "fast", "--patch", &file]).unwrap_err();
    assert!(slip.contains("`writer` does docs, and not `dcos`"), "{slip}");
    std::fs::write(&patch, r#"[{"model": "fast"}]"#).unwrap();
    let nobody = ["variants", "add", "nobody", "docs", "fast", "--patch", &file];
    assert!(command(&nobody).unwrap_err().contains("no agent `nobody`"));
    let board = command(&add).unwrap();
    assert_eq!(variant(&board, "fast")["status"], "live");
    // The gateway sees it without being told.
    let mut asked = 0;
    while asked < 40 || visits(&gateway.learned(asked as u64).await, "fast") == 0 {
        gateway.ask_many(asked, 20, "harbour").await;
        asked += 20;
        assert!(asked < 2000, "never seen");
    }
    let listed = command(&["variants", "list"]).unwrap();
    assert_eq!(all_visits(&listed[0]), asked as u64);
    let shown = command(&["variants", "show", "writer", "docs"]).unwrap();
    for name in ["default", "fast"] {
        let explained = &shown["explanations"][name];
        let q = variant(&shown, name)["q_value"].as_f64().unwrap();
        assert_eq!(explained["n_visits"].as_u64().unwrap(), visits(&shown, name));
        assert!((explained["q_value"].as_f64().unwrap() - q).abs() < 1e-9, "{shown:#}");
    }
    let few = command(&["variants", "compare", "writer", "docs", "default", "fast"]);
    assert!(few.is_ok() || few.unwrap_err().contains("too few"));
    assert_eq!(
        command(&["variants", "change", "writer", "docs", "apply", "fast"]).unwrap()["serving"],
        "fast"
    );
    assert_eq!(
        command(&["variants", "rollback", "writer", "docs", "default"]).unwrap()["serving"],
        "default"
    );
    let rollbacks = command(&["variants", "rollbacks"]).unwrap();
    assert_eq!(
        (&rollbacks[0]["status"], &rollbacks[0]["reason"]),
        (&json!("confirmed"), &json!("Asked for by ann"))
    );
    assert!(command(&["variants", "change", "writer", "docs", "explode"]).is_err());
    assert!(command(&["variants", "approve", "prop-none"]).unwrap_err().contains("no proposal `prop-none`"));
    assert_eq!(command(&["variants", "propose"]).unwrap(), json!([]));
    // Where `fast` did better, people were asked about it, once.
    let queue = command(&["variants", "proposals"]).unwrap();
    let asked = queue["proposals"].as_array().unwrap();
    assert!(asked.len() <= 1 && asked.iter().all(|proposal| proposal["variant"] == "fast"), "{queue:#}");
    // What was learned travels without a word of any text.
    let learned = command(&["variants", "export"]).unwrap();
    assert!(
        !learned.to_string().contains("Be brief") && !learned.to_string().contains("harbour"),
        "{learned}"
    );
    std::fs::write(&patch, learned.to_string()).unwrap();
    let imported = |variants: u64, undeclared: u64| json!({"variants": variants, "undeclared": undeclared});
    assert_eq!(command(&["variants", "import", &file]).unwrap(), imported(2, 0));
    let elsewhere = learned.to_string().replace("\"fast\"", "\"other\"");
    std::fs::write(&patch, elsewhere).unwrap();
    assert_eq!(command(&["variants", "import", &file]).unwrap(), imported(1, 1));
    let release = command(&["release", "start", "writer", "docs", "fast", "--profile", "7day"]).unwrap();
    let id = release["id"].as_str().unwrap();
    for (action, status) in [
        ("promote", "running"),
        ("hold", "held"),
        ("resume", "running"),
        ("pause", "paused"),
        ("resume", "running"),
        ("abort", "aborted"),
    ] {
        assert_eq!(command(&["release", action, id]).unwrap()["status"], status, "{action}");
    }
    assert_eq!(command(&["release", "status", id]).unwrap()["status"], "aborted");
    assert_eq!(command(&["release", "list"]).unwrap()[0]["id"], id);
    let history = command(&["variants", "history", "writer", "docs"]).unwrap();
    let by: Vec<&Value> =
        history.as_array().unwrap().iter().filter_map(|row| row["event"].get("by")).collect();
    assert!(by.len() > 8 && by.iter().all(|by| *by == "ann" || by.is_null()), "{history:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_in_shadow_answers_and_nobody_sees_it() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("bad", "bad").await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "bad"});
    let release = gateway.post("releases", body).await;
    assert_eq!(release["percent"], 0);
    let path = format!("releases/{}", release["id"].as_str().unwrap());
    for number in 0..12 {
        let (variant, reply) = gateway.ask(&format!("s{number}"), "harbour").await;
        assert_eq!((variant.as_str(), reply.content().contains("1850")), ("default", true));
    }
    // Some may be left out where its places are taken.
    let judged = |release: &Value| release["counted"].to_string();
    let before = judged(&release);
    let began = Instant::now();
    while judged(&gateway.get(&path).await) == before {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let board = gateway.learned(12).await;
    assert_eq!((visits(&board, "default"), visits(&board, "bad")), (12, 0), "nobody saw it: {board:#}");
    let requests = site.mock.requests().await;
    let models: Vec<&Value> = requests.iter().map(|seen| &seen["body"]["model"]).collect();
    assert!(models.contains(&&json!("bad")), "{models:?}");
    assert!(!models.iter().take(1).any(|model| **model == json!("bad")), "the client comes first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_evidence_ends_waits_for_a_person_like_every_rollback() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("bad", "bad").await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "bad", "profile": "4week"});
    let release = gateway.post("releases", body).await;
    let path = format!("releases/{}", release["id"].as_str().unwrap());
    for _ in 0..2 {
        gateway.post(&path, json!({"command": "promote"})).await;
    }
    let mut asked = 0;
    let board = loop {
        gateway.ask_many(asked, 20, "harbour").await;
        asked += 20;
        let board = gateway.learned(asked as u64).await;
        if board["release"]["status"] == "aborted" {
            break board;
        }
        assert!(asked < 2000, "{board:#}");
    };
    assert_eq!(
        (&board["serving"], &variant(&board, "bad")["status"]),
        (&json!("default"), &json!("rolled_back"))
    );
    let rollbacks = gateway.get("proposals").await["rollbacks"].clone();
    let waiting = &rollbacks[0];
    assert_eq!(
        (&waiting["from_variant"], &waiting["to_variant"], &waiting["status"]),
        (&json!("bad"), &json!("default"), &json!("waiting"))
    );
    let file = gateway.gateway.data().join("telemetry/crl/rollback_events.jsonl");
    let id = waiting["rollback_id"].as_str().unwrap();
    let began = Instant::now();
    while !std::fs::read_to_string(&file).unwrap_or_default().contains(id) {
        assert!(began.elapsed() < Duration::from_secs(60), "the file does not say it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let wish = json!({"decision": "reinstated", "reason": "a drill"});
    assert_eq!(gateway.post(&format!("rollbacks/{id}"), wish).await["status"], "reinstated");
    let again = &gateway.board().await["release"];
    assert_eq!(
        (&again["candidate"], &again["percent"], &again["status"]),
        (&json!("bad"), &json!(0), &json!("running"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_everything_is_no_time_of_a_release() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "fast", "profile": "4week"});
    let release = gateway.post("releases", body).await;
    let path = format!("releases/{}", release["id"].as_str().unwrap());
    gateway.post("releases/all", json!({"command": "pause"})).await;
    let paused = gateway.get(&path).await;
    assert!(paused["assessment"]["wait"].to_string().contains("it stands still"), "{paused:#}");
    assert!(!paused["paused_at"].is_null());
    let promote = gateway.call("ann", &path, Some(json!({"command": "promote"}))).await;
    assert_eq!(promote.status, 409, "{}", promote.text);
    gateway.post("releases/all", json!({"command": "resume"})).await;
    let resumed = gateway.get(&path).await;
    assert!(resumed["paused_at"].is_null(), "{resumed:#}");
    assert_ne!(resumed["step_started_at"], release["step_started_at"], "the step has become longer");
    assert_eq!(gateway.post(&path, json!({"command": "promote"})).await["percent"], 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_variant_begins_with_what_similar_agents_learned() {
    let editor = "[[agents]]\nname = \"editor\"\ntask_types = [\"docs\"]\nskills = [\"style\"]\n\
        targets = [{ upstream = \"main\", model = \"plain\" }]\n";
    let site = Site::sqlite(SCRIPT, &format!("{editor}{BY_HAND}"));
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    gateway.act("apply", "fast").await;
    gateway.ask_many(0, 20, "harbour").await;
    let learned = gateway.learned(20).await;
    let add = json!({"agent": "editor", "task_type": "docs", "name": "quick", "patch": [{"model": "fast"}]});
    let board = gateway.post("variants", add).await;
    // Half of what either can do both can: each outcome counts half of a tenth.
    let prior = &variant(&board, "quick")["prior"];
    assert!((prior["weight"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{board:#}");
    let q = variant(&learned, "fast")["q_value"].as_f64().unwrap();
    assert!((prior["mean"].as_f64().unwrap() - q).abs() < 1e-9, "{board:#}");
    assert_eq!(visits(&board, "quick"), 0, "nothing counts as seen here");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_asked_about_what_only_they_may_apply() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("bad", "bad").await;
    gateway.act("apply", "bad").await;
    gateway.add("fast", "fast").await;
    let mut asked = 0;
    let found = loop {
        gateway.ask_many(asked, 10, "harbour").await;
        asked += 10;
        gateway.learned(asked as u64).await;
        let queue = gateway.get("proposals").await;
        if let Some(found) = queue["proposals"].as_array().and_then(|all| all.first()) {
            break found.clone();
        }
        assert!(asked < 400, "{queue:#}");
    };
    assert_eq!(
        (&found["proposal_type"], &found["variant"]),
        (&json!("crl_promote_variant_to_default"), &json!("fast"))
    );
    gateway.ask_many(asked, 20, "harbour").await;
    gateway.learned(asked as u64 + 20).await;
    let queue = gateway.get("proposals").await;
    assert_eq!(queue["proposals"].as_array().unwrap().len(), 1, "once: {queue:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_told_signed_and_told_again_when_it_was_not_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config =
        format!("{BY_HAND}[[webhooks]]\nurl = \"http://{address}/hook\"\nsecret_env = \"HOOK_SECRET\"\n");
    let site = Site::sqlite(SCRIPT, &config);
    let secret = "a secret of some length";
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let gateway = site.gateway_in(folder, None, &[("HOOK_SECRET", secret)]);
    gateway.add("fast", "fast").await;
    gateway.act("apply", "fast").await;
    gateway.act("rollback", "default").await;
    let first = receive(&listener, "500 Internal Server Error").await;
    let (head, body) = receive(&listener, "200 OK").await;
    assert_eq!(first.1, body, "the same again");
    let header =
        |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let signed = format!("{}.{body}", header("x-waltz-timestamp:"));
    let expected = format!("sha256={}", hmac_sha256_hex(secret.as_bytes(), signed.as_bytes()));
    assert_eq!(header("x-waltz-signature:"), expected);
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&event["from_variant"], &event["to_variant"]), (&json!("fast"), &json!("default")));
    assert!(!head.contains(secret) && !gateway.gateway.log_text().contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_frozen_boards_and_releases_that_were_given_up_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config =
        format!("{BY_HAND}[[webhooks]]\nurl = \"http://{address}/hook\"\nsecret_env = \"HOOK_SECRET\"\n");
    let site = Site::sqlite(SCRIPT, &config);
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let gateway = site.gateway_in(folder, None, &[("HOOK_SECRET", "a secret of some length")]);
    gateway.post("variants", json!({
        "agent": "writer", "task_type": "docs", "name": "fast", "patch": [{"model": "fast"}], "live": false
    })).await;
    let body = json!({"agent": "writer", "task_type": "docs", "variant": "fast"});
    let release = gateway.post("releases", body).await;
    gateway.post(&format!("releases/{}", release["id"].as_str().unwrap()), json!({"command": "abort"})).await;
    gateway.act("retire", "fast").await;
    gateway.ask_many(0, 40, "harbour").await;
    gateway.learned(40).await;
    // There is nothing to go to, so that the board is frozen.
    collapse(&gateway, "default").await;
    // What was told while nobody listened is told again.
    let mut told = BTreeSet::new();
    while told.len() < 3 {
        let (_, body) = receive(&listener, "200 OK").await;
        let event: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&event["agent_name"], &event["task_type"]), (&json!("writer"), &json!("docs")));
        if event["event"] == "release" {
            assert_eq!(event["to_status"], "aborted");
        }
        told.insert(event["event"].as_str().unwrap().to_owned());
    }
    assert_eq!(told, ["frozen", "release", "suspect"].map(str::to_owned).into());
    let log = gateway.gateway.log_text();
    assert!(log.contains("a variant is suspect") && log.contains("frozen until a person looks"), "{log}");
}

/// The file holds although the store is away, and what it says is written once it is back.
#[tokio::test(flavor = "multi_thread")]
async fn stage_1_in_the_file_pauses_while_the_database_is_away() {
    let mut site = Site::postgres(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    gateway.act("apply", "fast").await;
    assert_eq!(gateway.ask("s1", "harbour").await.0, "fast");
    site.server.as_mut().unwrap().stop("INT").unwrap();
    // This file never said anything of the stage: only variants serve here.
    let file = gateway.gateway.folder.path().join("waltz.toml");
    std::fs::write(&file, format!("{}[waltz]\nstage = 1\n", site.config)).unwrap();
    let began = Instant::now();
    while gateway.ask("s1", "harbour").await.0 != "default" {
        assert!(began.elapsed() < Duration::from_secs(60), "never paused: {}", gateway.gateway.log_text());
    }
    gateway.gateway.says("the store does not know it yet").await;
    site.server.as_mut().unwrap().start_again().unwrap();
    gateway.gateway.says("everything is paused; ").await;
    assert_eq!(gateway.get("releases").await["paused"]["by"], "waltz.stage");
    assert_eq!(gateway.ask("s1", "harbour").await.0, "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_1_in_the_file_pauses_everything() {
    let site = Site::sqlite(SCRIPT, &format!("{BY_HAND}[waltz]\nstage = 2\n"));
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    gateway.act("apply", "fast").await;
    assert_eq!(gateway.ask("s1", "harbour").await.0, "fast");
    let file = gateway.gateway.folder.path().join("waltz.toml");
    std::fs::write(&file, site.config.replace("stage = 2", "stage = 1")).unwrap();
    gateway.gateway.says("everything is paused").await;
    assert_eq!(gateway.ask("s1", "harbour").await.0, "default");
    assert_eq!(gateway.get("releases").await["paused"]["by"], "waltz.stage");
    // Written back, the file ends what it began.
    std::fs::write(&file, &site.config).unwrap();
    gateway.gateway.says("the pause has ended").await;
    assert_eq!(gateway.ask("s1", "harbour").await.0, "fast");
    // What a person paused, no file resumes.
    gateway.post("releases/all", json!({"command": "pause", "reason": "a drill"})).await;
    for stage in ["stage = 1", "stage = 2"] {
        std::fs::write(&file, site.config.replace("stage = 2", stage)).unwrap();
        gateway.gateway.says("configuration reloaded").await;
    }
    assert_eq!(gateway.ask("s1", "harbour").await.0, "default");
    assert_eq!(gateway.get("releases").await["paused"]["by"], "ann");
}

/// The page holds nothing: what it shows and does comes from the interface, with the token that is typed in.
#[tokio::test(flavor = "multi_thread")]
async fn the_kill_switch_has_a_page_with_a_button() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    let page = gateway.gateway.get("/waltz/switch", &[]).await;
    let script = gateway.gateway.get("/waltz/switch.js", &[]).await;
    for reply in [&page, &script] {
        assert_eq!(reply.status, 200);
        let policy = reply.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert!(!reply.text.contains("http") && !reply.text.contains("innerHTML"), "{}", reply.text);
    }
    assert!(
        page.text.contains("<script src=\"/waltz/switch.js\">") && !page.text.contains("onclick"),
        "no code in the page"
    );
    // Every element that the script names is there.
    let named = script.text.split("element(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for id in named {
        assert!(page.text.contains(&format!("id=\"{id}\"")), "{id}");
    }
    // What its button posts.
    gateway.post("releases/all", json!({"command": "pause", "reason": "a drill"})).await;
    assert_eq!(gateway.get("releases").await["paused"]["reason"], "a drill");
}

#[tokio::test]
async fn what_cannot_work_is_refused_and_says_why() {
    let mut site = Site::sqlite(SCRIPT, BY_HAND);
    let open = std::mem::take(&mut site.config);
    site.config = open.replace("name = \"main\"\n", "name = \"main\"\nmodels = [\"plain\", \"fast\"]\n");
    let gateway = site.gateway();
    let folder = Arc::clone(&gateway.gateway.folder);
    // A model that no upstream serves: the agent as it is would answer, and nobody would learn.
    let nowhere = json!({
        "agent": "writer", "task_type": "docs", "name": "new", "patch": [{"model": "nowhere"}], "live": true
    });
    let reply = gateway.call("ann", "variants", Some(nowhere)).await;
    assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{}", reply.text);
    assert!(reply.text.contains("no upstream serves the model `nowhere`; served are fast, plain"));
    let patch = folder.path().join("patch.json");
    std::fs::write(&patch, r#"[{"model": "nowhere"}]"#).unwrap();
    let file = patch.display().to_string();
    let refused = site.command(&gateway, &["variants", "add", "writer", "docs", "new", "--patch", &file]);
    assert!(refused.unwrap_err().contains("no upstream serves the model `nowhere`"));
    gateway.add("quick", "fast").await;
    gateway.act("safe_default", "quick").await;
    let act = |action: &str, variant: &str| json!({"action": action, "variant": variant});
    let board = "variants/writer/docs";
    let reply = gateway.call("ann", board, Some(act("safe_default", "nobody"))).await;
    assert_eq!(reply.error(), (404, "not_found".to_owned()), "{}", reply.text);
    gateway.act("safe_default", "default").await;

    // What is asked of the proposals is not ignored.
    for (body, status) in [("", 200), ("{}", 200), (r#"{"agent": "writer"}"#, 400), ("[]", 400), ("{", 400)] {
        let bearer = format!("Bearer {}", gateway.token);
        let headers = [("authorization", bearer.as_str())];
        let reply = gateway.gateway.post("/waltz/v1/proposals", body, &headers).await;
        assert_eq!(reply.status, status, "{body:?}: {}", reply.text);
        assert!(!body.contains("writer") || reply.text.contains("POST /waltz/v1/variants"), "{}", reply.text);
    }

    // The model goes away: the variant stays, and is given nothing until it is back.
    let token = gateway.token.clone();
    assert_eq!(gateway.gateway.stop(), Some(0));
    site.config = site.config.replace(", \"fast\"", "");
    let gateway = site.gateway_in(folder, Some(token), &[]);
    let release = json!({"agent": "writer", "task_type": "docs", "variant": "quick"});
    for (path, body) in [
        (board, act("safe_default", "quick")),
        (board, act("apply", "quick")),
        (board, act("enter", "quick")),
        ("releases", release),
    ] {
        let reply = gateway.call("ann", path, Some(body)).await;
        assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{}", reply.text);
        assert!(reply.text.contains("no upstream serves the model `fast`"), "{}", reply.text);
    }
    gateway.act("retire", "quick").await;
}

#[tokio::test]
async fn what_people_send_is_bounded() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    gateway.add("quick", "fast").await;
    let change = |count: usize, length: usize| -> Vec<Value> {
        let content = "x".repeat(length);
        (0..count).map(|_| json!({"section": "Style", "operation": "append", "content": content})).collect()
    };
    let variant = |task_type: &str, patch: Vec<Value>| json!({"agent": "writer", "task_type": task_type, "name": "large", "patch": patch});
    let release = json!({"agent": "writer", "task_type": "docs", "variant": "quick", "profile": "reckless"});
    for (path, body, why) in [
        ("variants", variant("docs", change(101, 10)), "at most 100 things"),
        ("variants", variant("docs", change(2, 40_000)), "65536 bytes"),
        ("variants", variant("..", change(1, 10)), "the task type must be"),
        ("releases", release, "`profile` must be one of standard"),
    ] {
        let reply = gateway.call("ann", path, Some(body)).await;
        assert_eq!(reply.status, 400, "{why}: {}", reply.text);
        assert!(reply.text.contains(why), "{}", reply.text);
    }
    // What is said of it keeps nobody from stopping.
    let reason = format!("{}\u{1b}[31m", "y".repeat(100_000));
    gateway.post("releases/all", json!({"command": "pause", "reason": reason})).await;
    assert_eq!(gateway.get("releases").await["paused"]["reason"], "y".repeat(500));
    for path in ["variants/writer/%ff", "releases/%ff", "variants/%ff/docs/history"] {
        let reply = gateway.call("ann", path, None).await;
        assert_eq!(reply.error(), (404, "unknown_url".to_owned()), "{path}: {}", reply.text);
    }
}
