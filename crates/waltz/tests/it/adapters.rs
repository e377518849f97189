//! Trained adapters in the real binary: they serve at stage 2, and weights that cannot be used never claim to.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use waltz_coach::local::LocalModel;
use waltz_coach::upstream::{Call, Protocol, Upstream, UpstreamSettings};
use waltz_model::{Agent, Models};

use crate::harness::{Gateway, Reply, client, run};
use crate::synthetic::Sizes;
use crate::tiny::{self, Tiny, chat, upstream};

const QUESTION: &str = "How are you?";
const LONG: &str = "Say very much.";
const FILE: &str = "taught.safetensors";

/// A configuration at a stage with an adapter of the conversation agent.
fn config(stage: u8, file: &str) -> String {
    format!(
        "[waltz]\nstage = {stage}\nsafety_benchmarks = false\n{}",
        upstream(&format!("conversation = \"{file}\""))
    )
}

/// Does what an operator does who lets every step of a release go on, until the candidate has all traffic.
pub(crate) async fn release_to_all(gateway: &Gateway) {
    release_to_all_in(gateway, &[]).await;
}

/// The same with an environment for its commands.
async fn release_to_all_in(gateway: &Gateway, environment: &[(&str, &str)]) {
    let act = |arguments: &[&str]| {
        let all = [&["release"], arguments, &["--json", "--config", "waltz.toml", "--data", "data"]].concat();
        let (code, out, told) = run(&all, "", gateway.folder.path(), environment);
        assert_eq!(code, 0, "{told}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let mut release = Value::Null;
    until(|| {
        let releases = act(&["list"]);
        let running = releases.as_array().unwrap().iter().find(|release| release["status"] == "running");
        release = running.cloned().unwrap_or_default();
        release.is_object()
    })
    .await;
    let id = release["id"].as_str().unwrap().to_owned();
    while release["status"] != "completed" {
        release = act(&["promote", &id]);
    }
    serves(gateway, 2).await;
}

async fn until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not come to be");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A gateway in a folder, over the model.
fn start(folder: &Arc<TempDir>, model: &Tiny, config: &str) -> Gateway {
    Gateway::start_in(Arc::clone(folder), config, &[("WALTZ_MODELS", &model.models())])
}

/// What the gateway answers, after a look at every place that could claim a stage.
async fn answer_at(gateway: &Gateway, stage: u8) -> String {
    let reply = gateway.chat(chat(QUESTION, 20)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("x-waltz-stage"), stage.to_string());
    assert_eq!(reply.json()["waltz"]["stage"], stage, "{}", reply.text);
    assert_eq!(gateway.record_of(&reply).await["stage"], stage);
    let ready = gateway.get("/readyz", &[]).await;
    assert_eq!(ready.status, 200);
    assert!(!gateway.get("/metrics", &[]).await.text.contains("stage=\"2\""));
    reply.content()
}

async fn degraded(gateway: &Gateway) -> bool {
    let ready = gateway.get("/readyz", &[]).await.json();
    let told = ready["degraded"].to_string().contains("stage 2 was asked for");
    assert_eq!(ready["status"] == "degraded", told, "{ready}");
    told
}

/// What `config show` says about the stage: value and origin.
fn shown(folder: &Path, model: &Tiny) -> (Value, String) {
    let (code, out, told) = run(
        &["config", "show", "--json", "--config", "waltz.toml"],
        "",
        folder,
        &[("WALTZ_MODELS", &model.models())],
    );
    assert_eq!(code, 0, "{told}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    let row = rows.as_array().unwrap().iter().find(|row| row["key"] == "waltz.stage").unwrap();
    (row["value"].clone(), row["origin"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_taught_adapter_serves_at_stage_2_and_stage_1_goes_back_to_the_base() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let gateway = start(&folder, &model, &config(1, FILE));
    let base = answer_at(&gateway, 1).await;
    assert_ne!(base, "Fine, thanks.");
    assert!(!degraded(&gateway).await);
    std::fs::write(folder.path().join("waltz.toml"), config(2, FILE)).unwrap();
    gateway.says("configuration reloaded").await;
    assert_eq!(answer_at(&gateway, 1).await, base, "a release begins in shadow");
    release_to_all(&gateway).await;
    assert_eq!(answer_at(&gateway, 2).await, "Fine, thanks.");
    assert!(!degraded(&gateway).await);
    assert_eq!(shown(folder.path(), &model).0, 2);
    std::fs::write(folder.path().join("waltz.toml"), config(1, FILE)).unwrap();
    gateway.says("configuration reloaded").await;
    assert_eq!(answer_at(&gateway, 1).await, base);
    assert_eq!(gateway.stop(), Some(0));
}

#[tokio::test]
async fn the_kill_switch_takes_trained_weights_out_of_service() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let gateway = start(&folder, &model, &config(2, FILE));
    release_to_all(&gateway).await;
    assert_eq!(answer_at(&gateway, 2).await, "Fine, thanks.");
    for (action, stage) in [("pause", 1), ("resume", 2)] {
        let arguments = ["release", action, "--all", "--config", "waltz.toml", "--data", "data"];
        let (code, _, told) = run(&arguments, "", folder.path(), &[("WALTZ_MODELS", &model.models())]);
        assert_eq!(code, 0, "{told}");
        serves(&gateway, stage).await;
        assert_eq!(answer_at(&gateway, stage).await == "Fine, thanks.", stage == 2);
    }
    // After a restart it is as it was left.
    let arguments = ["release", "pause", "--all", "--config", "waltz.toml", "--data", "data"];
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(run(&arguments, "", folder.path(), &[("WALTZ_MODELS", &model.models())]).0, 0);
    let gateway = start(&folder, &model, &config(2, FILE));
    assert_ne!(answer_at(&gateway, 1).await, "Fine, thanks.", "from the first answer on");
}

/// Waits until a stage serves.
async fn serves(gateway: &Gateway, stage: u8) {
    let began = Instant::now();
    while gateway.get("/readyz", &[]).await.json()["stage"] != stage {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "stage {stage} never serves: {}",
            gateway.log_text()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_kill_switch_needs_no_sound_configuration() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let gateway = start(&folder, &model, &config(2, FILE));
    release_to_all(&gateway).await;
    let write = |text: &str| std::fs::write(folder.path().join("waltz.toml"), text).unwrap();
    let broken = format!("{}[policy]\ninput = \"blok\"\n[variants]\nepsilon = \"none\"\n", config(2, FILE));
    write(&broken);
    gateway.says("not reloaded, the old one stays").await;
    for (action, stage) in [("pause", 1), ("resume", 2)] {
        let arguments = ["release", action, "--all", "--config", "waltz.toml", "--data", "data"];
        let (code, _, told) = run(&arguments, "", folder.path(), &[("WALTZ_MODELS", &model.models())]);
        assert_eq!(code, 0, "{told}");
        serves(&gateway, stage).await;
        assert_eq!(answer_at(&gateway, stage).await == "Fine, thanks.", stage == 2);
    }
    // The file itself is the switch too, whatever else it says.
    write(&broken.replace("stage = 2", "stage = 1"));
    serves(&gateway, 1).await;
    assert_ne!(answer_at(&gateway, 1).await, "Fine, thanks.");
    write(&config(2, FILE));
    gateway.says("the pause has ended").await;
    assert_eq!(answer_at(&gateway, 2).await, "Fine, thanks.");
}

/// Two gateways on one database. The best of a few tries, so that a machine that pauses for a moment is not taken for a
/// slow product.
#[tokio::test(flavor = "multi_thread")]
async fn fault_F82_the_kill_switch_takes_two_gateways_back_to_stage_1() {
    let model = Tiny::new();
    let server = crate::postgres::Server::start(false).unwrap_or_else(|message| panic!("{message}"));
    let (url, models) = (server.url("postgres"), model.models());
    let environment = [("WALTZ_MODELS", models.as_str()), ("TEST_DATABASE", url.as_str())];
    let gateways = [(); 2].map(|()| {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
        let config = format!("{}[record]\ndatabase_url_env = \"TEST_DATABASE\"\n", config(2, FILE));
        Gateway::start_in(folder, &config, &environment)
    });
    release_to_all_in(&gateways[0], &environment).await;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        for (action, stage) in [("pause", 1), ("resume", 2)] {
            let arguments = ["release", action, "--all", "--config", "waltz.toml", "--data", "data"];
            let (code, _, told) = run(&arguments, "", gateways[0].folder.path(), &environment);
            assert_eq!(code, 0, "{told}");
            let began = std::time::Instant::now();
            tokio::join!(serves(&gateways[0], stage), serves(&gateways[1], stage));
            if stage == 1 {
                best = best.min(began.elapsed());
            }
        }
    }
    assert!(best < Duration::from_secs(1), "{best:?}");
    for gateway in &gateways {
        assert_eq!(answer_at(gateway, 2).await, "Fine, thanks.");
    }
}

#[tokio::test]
async fn stage_1_in_the_reloaded_file_outranks_the_environment() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    model.teach(folder.path(), FILE, QUESTION, "Fine, thanks.");
    let models = model.models();
    let environment = [("WALTZ_MODELS", models.as_str()), ("WALTZRL_STAGE", "2")];
    let silent =
        format!("[waltz]\nsafety_benchmarks = false\n{}", upstream(&format!("conversation = \"{FILE}\"")));
    let gateway = Gateway::start_in(Arc::clone(&folder), &silent, &environment);
    release_to_all(&gateway).await;
    assert_eq!(answer_at(&gateway, 2).await, "Fine, thanks.");
    std::fs::write(folder.path().join("waltz.toml"), config(1, FILE)).unwrap();
    gateway.says("everything is paused").await;
    assert_ne!(answer_at(&gateway, 1).await, "Fine, thanks.");
}

#[tokio::test]
async fn each_agent_speaks_with_its_own_adapter() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let one = model.teach(folder.path(), "one.safetensors", QUESTION, "I answer.");
    let two = model.teach_agent(folder.path(), "two.safetensors", QUESTION, "I read.", Agent::Feedback);
    let models = Models::new(model.folder.path());
    let local = LocalModel::find(&models, &tiny::NAME.parse().unwrap()).unwrap();
    let adapters = local.adapters(Some(&one), Some(&two)).unwrap();
    assert!(local.adapters(Some(&two), None).is_err(), "the conversation agent was given the other's");
    let patience = Duration::from_secs(600);
    let settings = UpstreamSettings {
        name: "local".to_owned(),
        url: String::new(),
        protocol: Protocol::OpenAi,
        key: None,
        models: vec!["*".to_owned()],
        connect_timeout: patience,
        first_byte_timeout: patience,
        chunk_timeout: patience,
        total_timeout: patience,
        max_concurrent: 1,
        max_answer_bytes: 1 << 20,
        allow_metadata: false,
    };
    let upstream = Upstream::local(settings, Arc::new(local), adapters);
    for (call, expected) in [(Call::Chat, "I answer."), (Call::Feedback, "I read.")] {
        let body = chat(QUESTION, 20).to_string();
        let slot = upstream.slot(false).await.unwrap();
        let answered = upstream.post(slot, call, body.into(), upstream.deadline()).await.unwrap();
        let answer = answered.answer().await.unwrap();
        assert_eq!(answer.choices[0].text(), expected, "{call:?}");
    }
}

#[tokio::test]
async fn fault_F70_weights_that_cannot_be_used_serve_stage_1_and_say_why() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let sound = std::fs::read(model.teach(folder.path(), FILE, QUESTION, "Fine.")).unwrap();
    let base = {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        answer_at(&start(&folder, &model, &upstream("")), 1).await
    };
    let mut other = tiny::sized(tiny::SIZES);
    other.tensors[0].3[0] ^= 1;
    let other_tokens = tiny::file(|tokens| tokens.swap(3, 4));
    let changed = |bytes: [u8; 4]| {
        let mut changed = sound.clone();
        let at = changed.len() - 4;
        changed[at..].copy_from_slice(&bytes);
        changed
    };
    let cases = [
        ("a missing file", None, &model, "No such file"),
        ("a cut file", Some(sound[..sound.len() / 2].to_vec()), &model, "no sound safetensors file"),
        ("another hash", Some(changed(0.125_f32.to_le_bytes())), &model, "SHA-256"),
        ("no number", Some(changed(f32::NAN.to_le_bytes())), &model, "not finite"),
        ("another base", Some(sound.clone()), &Tiny::with(&other), "expected SHA-256"),
        ("another tokenizer", Some(sound.clone()), &Tiny::with(&other_tokens), "expected SHA-256"),
    ];
    for (name, bytes, model, reason) in cases {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        if let Some(bytes) = bytes {
            std::fs::write(folder.path().join(FILE), bytes).unwrap();
        }
        let gateway = start(&folder, model, &config(2, FILE));
        let log = gateway.log_text();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("stage 2")).collect();
        assert_eq!(told.len(), 1, "{name}: {log}");
        assert!(told[0].contains("stage 1 serves") && told[0].contains(FILE), "{name}: {log}");
        assert!(told[0].contains(reason), "{name}: {log}");
        assert!(degraded(&gateway).await, "{name}");
        let answer = answer_at(&gateway, 1).await;
        assert_ne!(answer, "Fine.", "{name}");
        assert!(answer == base || name.starts_with("another"), "{name}");
        let (stage, origin) = shown(folder.path(), model);
        assert!(stage == 1 && origin.contains("asks for 2") && origin.contains(reason), "{name}: {origin}");
    }
}

#[tokio::test]
async fn fault_F70_stage_2_without_any_weights_is_not_claimed() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let models = model.models();
    let environment = [("WALTZ_MODELS", models.as_str()), ("WALTZRL_STAGE", "2")];
    let gateway = Gateway::start_in(Arc::clone(&folder), &upstream(""), &environment);
    assert!(gateway.log_text().contains("no upstream names an adapter"), "{}", gateway.log_text());
    assert!(degraded(&gateway).await);
    answer_at(&gateway, 1).await;
    // What can never serve is a mistake at any stage.
    let server =
        "[[upstreams]]\nname = \"a\"\nurl = \"http://localhost\"\nadapters = { conversation = \"a\" }\n";
    let unasked = upstream("feedback = \"a\"");
    for (config, key) in [(server, "upstreams[0].adapters.conversation"), (&unasked, "feedback.targets")] {
        std::fs::write(folder.path().join("bad.toml"), config).unwrap();
        let check = ["config", "check", "--config", "bad.toml"];
        let (code, _, told) = run(&check, "", folder.path(), &[("WALTZ_MODELS", &models)]);
        assert!(code == 2 && told.contains(key), "{told}");
    }
}

/// Streams an answer of the adapter `one`, swaps to `two` while it is written, and reads it to its end.
#[tokio::test]
async fn fault_F70_an_answer_ends_with_the_adapter_that_it_began_with() {
    // Large enough that an answer takes longer than a reload.
    let model = Tiny::with(&tiny::sized(Sizes { layers: 12, width: 256, hidden: 1024, ..tiny::SIZES }));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let here = folder.path();
    model.teach_to_talk(&here.join("one.safetensors"), LONG, &"one ".repeat(30));
    model.teach_to_talk(&here.join("two.safetensors"), LONG, &"two ".repeat(30));
    let gateway = start(&folder, &model, &config(2, "one.safetensors"));
    release_to_all(&gateway).await;
    let one = answer_at(&gateway, 2).await;
    let mut long = chat(LONG, 900);
    let expected = gateway.chat(long.clone()).await.content();
    long["stream"] = Value::from(true);
    let request = client().post(format!("{}/v1/chat/completions", gateway.url)).body(long.to_string());
    let mut stream = request.header("content-type", "application/json").send().await.unwrap();
    let began = stream.chunk().await.unwrap().unwrap();
    std::fs::write(here.join("waltz.toml"), config(2, "two.safetensors")).unwrap();
    gateway.says("configuration reloaded").await;
    assert_ne!(answer_at(&gateway, 1).await, one);
    let headers = stream.headers().clone();
    let session = headers["x-waltz-session-id"].to_str().unwrap();
    let recorded = gateway.get(&format!("/waltz/v1/sessions/{session}"), &[]).await;
    assert_eq!(recorded.status, 404, "the stream was over before the swap, so that this shows nothing");
    let mut bytes = began.to_vec();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        bytes.extend(chunk);
    }
    let reply = Reply { status: 200, headers, text: String::from_utf8(bytes).unwrap() };
    assert!(reply.text.contains("[DONE]"));
    assert_eq!(reply.streamed(), expected);
}

#[tokio::test]
async fn fault_F70_a_reload_with_a_broken_adapter_keeps_the_one_that_serves() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let here = folder.path();
    let one = std::fs::read(model.teach(here, "one.safetensors", QUESTION, "I am one.")).unwrap();
    let two = std::fs::read(model.teach(here, "two.safetensors", QUESTION, "I am two.")).unwrap();
    let gateway = start(&folder, &model, &config(2, "one.safetensors"));
    release_to_all(&gateway).await;
    let write = |name: &str, bytes: &[u8]| std::fs::write(here.join(name), bytes).unwrap();
    write("broken.safetensors", &two[..two.len() - 4]);
    let unnamed = format!("[waltz]\nstage = 2\nsafety_benchmarks = false\n{}", upstream(""));
    for (config, told) in [
        (config(2, "broken.safetensors"), "broken.safetensors"),
        (config(2, "missing.safetensors"), "missing.safetensors"),
        (unnamed, "no upstream names an adapter"),
    ] {
        write("waltz.toml", config.as_bytes());
        gateway.says(told).await;
        assert_eq!(answer_at(&gateway, 2).await, "I am one.", "{told}");
        let ready = gateway.get("/readyz", &[]).await.json();
        assert_eq!((&ready["status"], &ready["stage"]), (&json!("degraded"), &json!(2)), "{ready}");
        assert!(ready["degraded"].to_string().contains("what they said before is in force"), "{ready}");
    }
    write("waltz.toml", config(2, "two.safetensors").as_bytes());
    gateway.says("configuration reloaded").await;
    release_to_all(&gateway).await;
    assert_eq!(answer_at(&gateway, 2).await, "I am two.");
    assert!(!degraded(&gateway).await);
    // The same file with other content is another adapter, if it is sound.
    write("two.safetensors", &two[..100]);
    gateway.says("configuration not reloaded, the old one stays").await;
    assert_eq!(answer_at(&gateway, 2).await, "I am two.");
    write("two.safetensors", &one);
    gateway.says("configuration reloaded").await;
    // It is known, and a person must say that it is to be tried again.
    assert_ne!(answer_at(&gateway, 1).await, "I am two.");
    // Whatever was swapped, one model answers.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.child.id())).unwrap().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    assert_eq!(names.filter(|name| name == "model\n").count(), 1);
}
