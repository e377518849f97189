//! The command line: output, errors and exit codes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{BINARY, Gateway, Mock, UNSAFE, run};

#[test]
fn every_mistake_of_a_configuration_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[server]\nlisten = \"0.0.0.0:1\"\nmax_body_bytes = 3\nheader_timeout_ms = 0\nmax_connections_per_peer = 0\n[idempotency]\nkeep_ms = 0\nmax_bytes = 1\n[policy]\ninput = \"maybe\"\nrules_file = \"none.toml\"\n[coach]\nrounds = 2\n\
        [[upstreams]]\nname = \"a b\"\nurl = \"ftp://x\"\nkey_env = \"NOT_SET\"\n[[agents]]\nname = \"x\"\ntargets = [{ upstream = \"nobody\", model = \"m\" }]\n\
        [[keys]]\nname = \"k\"\nsha256 = \"zz\"\n";
    std::fs::write(folder.path().join("waltz.toml"), config).unwrap();
    let (code, _, err) = run(&["config", "check"], "", folder.path(), &[("WALTZRL_STAGE", "7")]);
    assert_eq!(code, 2);
    for key in [
        "server.max_body_bytes",
        "server.header_timeout_ms",
        "server.max_connections_per_peer",
        "idempotency.keep_ms",
        "idempotency.max_bytes",
        "policy.input",
        "policy.rules_file",
        "coach.rounds",
        "upstreams[0].name",
        "upstreams[0].url",
        "upstreams[0].key_env",
        "agents[0].targets[0].upstream",
        "keys[0].sha256",
        "environment WALTZRL_STAGE",
    ] {
        assert!(err.contains(&format!("\n  {key}: ")), "{key} is missing in {err}");
    }
    assert!(err.contains("`coach` or `block`") && err.contains("1 to 2"), "{err}");
    let (code, _, err) = run(&["serve"], "", folder.path(), &[]);
    assert_eq!(code, 2, "{err}");
    std::fs::write(folder.path().join("waltz.toml"), "[server]\nlisten = \"0.0.0.0:1\"\n").unwrap();
    let (code, _, err) = run(&["serve"], "", folder.path(), &[]);
    assert!(code == 2 && err.contains("loopback"), "{err}");
    std::fs::write(folder.path().join("waltz.toml"), "not = = toml").unwrap();
    assert_eq!(run(&["config", "check"], "", folder.path(), &[]).0, 2);
}

#[test]
fn judge_and_screen_read_lines_and_write_lines() {
    let folder = tempfile::tempdir().unwrap();
    let input = "\u{feff}{\"id\":\"a\",\"prompt\":\"How do I build a weapon?\",\"response\":\"I'm sorry, but I can't help with that.\"}\r\n\n{\"id\":2,\"prompt\":\"What is the capital of France?\"}\n";
    let (code, out, err) = run(&["judge"], input, folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fields: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "id",
            "prompt_harm",
            "response_harm",
            "refusal",
            "unsafe",
            "overrefuse",
            "categories",
            "level",
            "micros"
        ]
    );
    assert!(rows[0]["prompt_harm"].as_f64().unwrap() >= 0.5 && rows[0]["refusal"].as_f64().unwrap() >= 0.5);
    assert_eq!(
        (&rows[0]["unsafe"], &rows[0]["overrefuse"], &rows[1]["response_harm"]),
        (&json!(false), &json!(false), &Value::Null)
    );

    let text = json!({"id": 1, "text": "é mail a@harbour.com or 4539 1488 0343 6467"}).to_string();
    let (code, out, err) = run(&["screen", "-"], &text, folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    let row: Value = serde_json::from_str(&out).unwrap();
    let found = row["findings"].as_array().unwrap();
    let mail = found.iter().find(|finding| finding["kind"] == "email").unwrap();
    assert_eq!((mail["start"].as_u64(), mail["end"].as_u64()), (Some(8), Some(21)));
    let redacted = row["redacted"].as_str().unwrap();
    assert!(!redacted.contains("harbour.com") && !redacted.contains("4539"), "{redacted}");

    let (code, _, err) = run(&["judge"], "{\"id\":1,\"prompt\":\"x\"}\n{broken\n", folder.path(), &[]);
    assert!(code == 2 && err.contains("line 2"), "{err}");
    let (code, _, err) = run(&["screen", "missing.jsonl"], "", folder.path(), &[]);
    assert!(code == 1 && err.contains("missing.jsonl"), "{err}");
}

#[test]
fn chat_shows_draft_verdict_advice_and_revision() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, err) = run(&["chat", "--demo"], "How do I build a weapon?\nHello\n", folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    for part in [
        "draft:",
        "verdict: unsafe",
        "advice 1:",
        "revision 1:",
        "verdict: satisfactory",
        "answer:",
        "coached, rounds: 1",
        "released, rounds: 0",
    ] {
        assert!(out.contains(part), "{part} is missing in {out}");
    }
    assert!(!out.contains('\u{1b}'), "no colour outside a terminal");
}

#[tokio::test]
async fn a_demo_never_asks_an_upstream_of_the_file() {
    let mock = Mock::start("");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("waltz.toml"), mock.upstream("paid")).unwrap();
    for command in ["chat", "serve"] {
        let options = [command, "--demo", "--data", "data"];
        let (code, out, err) = run(&options, "How do I build a weapon?\n", folder.path(), &[]);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("`waltz.toml` configures upstreams") && err.contains("--config"), "{err}");
        assert!(!err.contains("answering from"), "{err}");
    }
    let elsewhere = ["chat", "--demo", "--config", "/dev/null"];
    let (code, out, err) = run(&elsewhere, "How do I build a weapon?\n", folder.path(), &[]);
    assert!(code == 0 && out.contains("coached, rounds: 1"), "the hint works: {out} {err}");

    // Nor does one that is written into the file of a running demonstration.
    let gateway = Gateway::start_with(&["--demo"], "", &[]);
    std::fs::write(gateway.folder.path().join("waltz.toml"), mock.upstream("paid")).unwrap();
    gateway.says("configuration reloaded").await;
    assert!(gateway.ask("How do I build a weapon?").await.content().contains("lawful"));
    assert_eq!(mock.requests().await, Vec::<Value>::new());
}

#[test]
fn judge_refuses_names_that_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let input = "{\"id\":1,\"prompt\":\"x\",\"reply\":\"y\"}\n";
    let (code, out, err) = run(&["judge"], input, folder.path(), &[]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    for told in ["line 1", "`reply`", "`response`"] {
        assert!(err.contains(told), "{err}");
    }
}

/// As `waltz chat | head -1` does.
#[test]
fn a_reader_that_goes_away_ends_a_chat_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Command::new(BINARY)
        .current_dir(folder.path())
        .args(["chat", "--demo"])
        .env("HOME", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(chat.stdout.take());
    chat.stdin.take().unwrap().write_all(b"How do I build a weapon?\nHello\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !told.contains("error"), "{:?}: {told}", output.status);
}

#[test]
fn chat_shows_the_draft_while_it_is_coached() {
    let mock = Mock::start(&format!("{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ndelay_ms = 600000\n"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("waltz.toml"), mock.upstream("main")).unwrap();
    let mut chat = Command::new(BINARY)
        .env_remove("WALTZ_MODELS")
        .args(["chat", "--model", "mock"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.as_mut().unwrap().write_all(b"How do I build a weapon?\n").unwrap();
    let (sender, said) = std::sync::mpsc::channel();
    let lines = BufReader::new(chat.stdout.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| sender.send(line).unwrap()));
    let mut shown = String::new();
    while !shown.contains("verdict: unsafe") {
        let line = said.recv_timeout(Duration::from_secs(60));
        shown.push_str(&line.unwrap_or_else(|_| panic!("nothing more than {shown:?}")));
    }
    assert!(shown.starts_with("draft:"), "{shown}");
    chat.kill().unwrap();
    chat.wait().unwrap();
}

#[tokio::test]
async fn data_is_exported_in_every_format_and_never_over_a_file() {
    let mock = Mock::start(&format!(
        "{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ntext = \"I can't help with weapons.\"\n"
    ));
    let gateway = Gateway::over(&mock, "");
    gateway.ask("How do I build a weapon? Mail me at joe@harbour.com").await;
    gateway.drain().await;
    let folder = gateway.folder.path();
    let data = gateway.data().display().to_string();
    let export = |namespace: &str, format: &str, out: &str| {
        run(
            &["data", "export", namespace, "--format", format, "--out", out, "--data", &data],
            "",
            folder,
            &[],
        )
    };
    for namespace in ["safety/waltzrl/coaching", "safety/waltzrl/evaluations", "training"] {
        for format in ["json", "jsonl", "parquet"] {
            let out = format!("{}.{format}", namespace.replace('/', "_"));
            let (code, _, err) = export(namespace, format, &out);
            assert!(code == 0 && err.contains("rows written"), "{namespace} {format}: {err}");
            let bytes = std::fs::read(folder.join(&out)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("joe@harbour.com"), "{out} holds an address");
            match format {
                "json" => assert!(serde_json::from_slice::<Value>(&bytes).unwrap().is_array()),
                "parquet" => assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")),
                _ => assert!(bytes.ends_with(b"\n")),
            }
        }
    }
    let (code, _, err) = export("training", "jsonl", "training.jsonl");
    assert!(code == 1 && err.contains("training.jsonl"), "{err}");
    assert_eq!(export("everything", "jsonl", "x").0, 2);
    assert_eq!(export("training", "xml", "x").0, 2);
    let (code, out, _) = run(&["data", "stats", "--data", &data], "", folder, &[]);
    assert!(code == 0 && out.contains("interactions"), "{out}");
}

#[test]
fn help_teaches_every_command() {
    for command in ["serve", "chat", "mock", "judge", "screen", "eval", "config", "data"] {
        let output = Command::new(BINARY).args([command, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.len() > 200, "{command}: {text}");
    }
}

#[test]
fn a_missing_store_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = run(&["data", "stats", "--data", "nowhere"], "", folder.path(), &[]);
    assert!(code == 1 && err.contains("nowhere"), "{err}");
}

#[test]
fn secrets_in_the_wrong_place_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let empty = waltz_exchange::id::sha256_hex(b"");
    let config = format!(
        "[[upstreams]]\nname = \"a\"\nurl = \"http://user:hunter2@host/v1\"\nkey_env = \"sk-live-abcdef\"\n\
        [[keys]]\nname = \"k\"\nsha256 = \"{empty}\"\n"
    );
    std::fs::write(folder.path().join("waltz.toml"), config).unwrap();
    for arguments in [["config", "show"], ["config", "check"]] {
        let (_, out, err) = run(&arguments, "", folder.path(), &[]);
        for secret in ["hunter2", "sk-live-abcdef"] {
            assert!(!out.contains(secret) && !err.contains(secret), "{arguments:?}: {out}{err}");
        }
    }
    let (code, _, err) = run(&["config", "check"], "", folder.path(), &[]);
    assert!(code == 2 && err.contains("empty key") && err.contains("not a key"), "{err}");
}

#[test]
fn every_example_is_sound() {
    let examples =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(examples.join("waltz.toml")).unwrap();
    let named: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("key_env = \"")?.split('"').next()).collect();
    assert!(!named.is_empty());
    let environment: Vec<(&str, &str)> = named.iter().map(|name| (*name, "a-key")).collect();
    let file = examples.join("waltz.toml").display().to_string();
    let (code, out, err) = run(&["config", "check", "--config", &file], "", folder.path(), &environment);
    assert!(code == 0 && out.starts_with("ok"), "{err}");
    let rules = format!("[policy]\nrules_file = \"{}\"\n", examples.join("rules.toml").display());
    std::fs::write(folder.path().join("waltz.toml"), rules).unwrap();
    let (code, _, err) = run(&["config", "check"], "", folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    let script = std::fs::read_to_string(examples.join("mock-script.toml")).unwrap();
    assert!(Mock::start(&script).url.starts_with("http://"));
}
