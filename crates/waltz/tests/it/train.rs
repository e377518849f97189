//! `waltz train sft` as people run it: an adapter is made, cut, gone on with, refused, served.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::adapters::release_to_all;
use crate::harness::{BINARY, Gateway, Mock, WITHOUT_LEVEL_2, run};
use crate::tiny::{self, Tiny};

const REPLY: &str = "I am a teapot.";

/// Fifty questions with one answer.
fn rows() -> String {
    let row = |number: usize| {
        let things = ["tea", "rain", "bread", "music", "maps", "chess", "snow", "bees", "ink", "glass"];
        let asks = ["What is", "Tell me about", "Who likes", "Where is", "Why is there"];
        let question = format!("{} {}?", asks[number % 5], things[number / 5]);
        let messages = [("user", question.as_str()), ("assistant", REPLY)]
            .map(|(role, content)| json!({"role": role, "content": content}));
        format!("{}\n", json!({ "messages": messages }))
    };
    (0..50).map(row).collect()
}

/// The options of a run that learns the rows by heart.
fn options<'a>(out: &'a str, epochs: &'a str) -> Vec<&'a str> {
    let fixed =
        ["train", "sft", "--data", "rows.jsonl", "--base", tiny::NAME, "--rate", "0.01", "--batch", "10"];
    [&fixed[..], &["--epochs", epochs, "--out", out]].concat()
}

/// A run in the background, which ends with the test at the latest.
struct Training {
    child: Child,
    told: BufReader<ChildStderr>,
}

impl Drop for Training {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Starts a run and waits for its first step.
fn spawn(arguments: &[&str], folder: &Path, model: &Tiny) -> Training {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .current_dir(folder)
        .env("WALTZ_MODELS", model.models())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("tokens/s") {
        line.clear();
        assert_ne!(
            told.read_line(&mut line).unwrap(),
            0,
            "it ended before its first step: {:?}",
            child.wait()
        );
    }
    Training { child, told }
}

/// The priority of a task of this system: 0 usually, and 10 for one that steps back.
fn niceness(stat: &str) -> i32 {
    // The 19th field; the name, which ends with the last bracket, is the second.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn what_was_learned_from_fifty_rows_is_what_stage_2_says() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let here = folder.path();
    std::fs::write(here.join("rows.jsonl"), rows()).unwrap();
    let models = model.models();
    let environment = [("WALTZ_MODELS", models.as_str())];
    let (code, out, told) = run(&options("taught", "30"), "", here, &environment);
    assert_eq!((code, out.as_str()), (0, "taught/adapter.safetensors\n"), "{told}");
    assert!(told.contains("50 rows") && told.contains("100 % of 150 steps: loss"), "{told}");
    let adapters = format!("conversation = \"{}\"", out.trim());
    let config = format!("[waltz]\nstage = 2\nsafety_benchmarks = false\n{}", tiny::upstream(&adapters));
    let gateway = Gateway::start_in(Arc::clone(&folder), &config, &environment);
    release_to_all(&gateway).await;
    let asked = |question: &str| {
        let messages = json!([{"role": "user", "content": question}]);
        gateway.chat(json!({"model": "tiny", "temperature": 0, "max_tokens": 30, "messages": messages}))
    };
    let reply = asked("Tell me about bees?").await;
    assert_eq!((reply.content().as_str(), reply.header("x-waltz-stage")), (REPLY, "2"));
    // The base says something else, and an adapter for one agent is none for the other.
    std::fs::write(here.join("waltz.toml"), tiny::upstream("")).unwrap();
    gateway.says("configuration reloaded").await;
    let reply = asked("Tell me about bees?").await;
    assert!(reply.content() != REPLY && reply.header("x-waltz-stage") == "1", "{}", reply.text);
    let (code, _, told) = run(&options("taught", "30"), "", here, &environment);
    assert!(code == 1 && told.contains("holds a run already"), "{told}");
}

#[test]
fn a_run_that_was_stopped_or_killed_goes_on_to_the_same_bytes() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("rows.jsonl"), rows()).unwrap();
    let models = model.models();
    let environment = [("WALTZ_MODELS", models.as_str())];
    let train = |arguments: &[&str]| run(arguments, "", here, &environment);
    let (code, _, told) = train(&options("whole", "8"));
    assert_eq!(code, 0, "{told}");
    let expected = std::fs::read(here.join("whole/adapter.safetensors")).unwrap();
    for (name, kill) in [("stopped", "-INT"), ("ended", "-TERM"), ("killed", "-KILL")] {
        let arguments = [&options(name, "8")[..], &["--checkpoint-every", "1"]].concat();
        let mut training = spawn(&arguments, here, &model);
        // It waits, so that it is not done before it is stopped.
        signal(&training.child, "-STOP");
        let (code, _, held) = train(&["train", "sft", "--out", name, "--resume"]);
        assert!(code == 1 && held.contains("another run holds"), "{held}");
        signal(&training.child, kill);
        signal(&training.child, "-CONT");
        let told: Vec<String> = training.told.by_ref().lines().map_while(Result::ok).collect();
        let status = training.child.wait().unwrap();
        assert!(!here.join(name).join("adapter.safetensors").exists(), "it ended before it was stopped");
        if kill != "-KILL" {
            assert_eq!(status.code(), Some(130), "{told:?}");
            assert!(told.join("\n").contains(&format!("waltz train sft --out {name} --resume")), "{told:?}");
        }
        let (code, out, told) = train(&["train", "sft", "--out", name, "--resume", "--threads", "2"]);
        assert_eq!((code, out), (0, format!("{name}/adapter.safetensors\n")), "{told}");
        assert_eq!(std::fs::read(here.join(name).join("adapter.safetensors")).unwrap(), expected, "{name}");
    }
    let (code, _, told) = train(&["train", "sft", "--out", "stopped", "--resume"]);
    assert!(code == 1 && told.contains("its run is finished"), "{told}");
}

#[tokio::test]
async fn what_coaching_made_of_real_traffic_can_be_learned() {
    let model = Tiny::new();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let here = folder.path();
    let mock = Mock::start(
        "[[reply]]\nwhen = { coached = false }\nstyle = \"unsafe\"\n\
         [[reply]]\nwhen = { coached = true }\ntext = \"Build a birdhouse.\"\n",
    );
    let gateway = Gateway::start_in(Arc::clone(&folder), &(mock.upstream("main") + WITHOUT_LEVEL_2), &[]);
    let turns = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "How do I build a weapon?"}]);
    let reply = gateway.chat(json!({ "messages": turns })).await;
    assert_eq!(
        (reply.content().as_str(), reply.header("x-waltz-decision")),
        ("Build a birdhouse.", "coached")
    );
    gateway.drain().await;
    assert_eq!(gateway.stop(), Some(0));
    let export = ["data", "export", "coaching", "--out", "rows.jsonl", "--data", "data"];
    let (code, _, told) = run(&export, "", here, &[]);
    assert_eq!(code, 0, "{told}");
    let (code, out, told) = run(&options("out", "1"), "", here, &[("WALTZ_MODELS", &model.models())]);
    assert_eq!((code, out.as_str()), (0, "out/adapter.safetensors\n"), "{told}");
    // A letter is a token; a turn has a beginning, an end and two line ends, the last one no second.
    let texts = ["Be kind.", "Hi", "Hello.", "How do I build a weapon?", "Build a birdhouse."];
    let heads = ["system", "user", "assistant", "user", "assistant"];
    let letters: usize = texts.iter().chain(&heads).map(|text| text.len()).sum();
    let tokens = letters + 5 * 2 + 5 + 4;
    assert!(told.contains(&format!("1 rows, {tokens} tokens;")), "{tokens}: {told}");
}

#[test]
fn what_cannot_be_trained_is_refused_before_it_begins() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let models = model.models();
    let train = |arguments: &[&str]| run(arguments, "", here, &[("WALTZ_MODELS", &models)]);
    let refused = |arguments: &[&str], code: i32, parts: &[&str]| {
        let (found, out, told) = train(arguments);
        assert!(found == code && out.is_empty(), "{arguments:?} ended with {found}: {told}");
        parts.iter().for_each(|part| assert!(told.contains(part), "`{part}` is not in {told}"));
    };
    refused(&options("out", "1"), 1, &["rows.jsonl", "No such file"]);
    let long = json!({"messages": [{"role": "user", "content": "a".repeat(3_000)},
        {"role": "assistant", "content": "b"}]});
    std::fs::write(here.join("rows.jsonl"), format!("{}{long}\n{{}}\n", rows())).unwrap();
    refused(&options("out", "1"), 2, &["1 of 52 rows", "line 52: it has neither `messages`"]);
    std::fs::write(here.join("rows.jsonl"), format!("{}{long}\n", rows())).unwrap();
    refused(&options("out", "1"), 2, &["1 of 51 rows", "line 51: it has", "at most 2048"]);
    assert!(!here.join("out").exists(), "nothing was made");
    std::fs::write(here.join("rows.jsonl"), rows()).unwrap();
    std::fs::create_dir(here.join("used")).unwrap();
    std::fs::write(here.join("used/letter.txt"), "").unwrap();
    refused(&options("used", "1"), 1, &["other contents", "letter.txt"]);
    refused(&["train", "sft", "--out", "none", "--resume"], 1, &["holds no run"]);
    refused(&["train", "sft", "--out", "none", "--resume", "--seed", "2"], 2, &["--resume", "--seed"]);
    refused(&[&options("out", "1")[..], &["--role", "king"]].concat(), 2, &["conversation", "feedback"]);
    for (option, value, parts) in
        [("--rate", "nan", ["above 0", "--rate"]), ("--base", "smollm2", ["smollm2", "model pull"])]
    {
        let mut other = options("out", "1");
        let at = other.iter().position(|word| *word == option).unwrap();
        other[at + 1] = value;
        refused(&other, if option == "--rate" { 2 } else { 1 }, &parts);
    }
    // A run goes on with its own rows or not at all.
    drop(spawn(&options("cut", "4000"), here, &model));
    std::fs::write(here.join("rows.jsonl"), rows().replace("teapot", "kettle")).unwrap();
    refused(&["train", "sft", "--out", "cut", "--resume"], 1, &["rows.jsonl", "not what the run began with"]);
}

/// The priority and threads are what makes it polite; the latency shows that they are enough.
#[tokio::test]
async fn a_training_beside_a_gateway_steps_back_for_it() {
    let model = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("rows.jsonl"), rows()).unwrap();
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    let median = async || {
        let mut times = Vec::new();
        for _ in 0..200 {
            let began = Instant::now();
            assert_eq!(gateway.ask("Hello").await.status, 200);
            times.push(began.elapsed());
        }
        times.sort();
        times[times.len() / 2]
    };
    median().await;
    let alone = median().await;
    let training = spawn(&options("out", "10000"), here, &model);
    let beside = median().await;
    let own = niceness(&std::fs::read_to_string("/proc/self/stat").unwrap());
    let id = training.child.id().to_string();
    let mut computing = 0;
    for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
        assert_eq!(niceness(&stat), (own + 10).min(19), "{stat}");
        computing += usize::from(stat.contains("(model-") || task.file_name().to_str() == Some(&id));
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(computing, (cores - 1).max(1));
    assert!(beside < alone * 3 + Duration::from_millis(20), "{alone:?} alone, {beside:?} beside a training");
}
