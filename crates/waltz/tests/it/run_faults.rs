//! Runs that meet trouble: results that must be read and masked, limits, full upstreams, odd answers, shutdown.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{Gateway, Mock};

const PLAN: &str = "/waltz/v1/plan";
const RUN: &str = "/waltz/v1/run";
const CHAT: &str = "/v1/chat/completions";
const WORKER: &str = "[[agents]]\nname = \"worker\"\ntargets = [{ upstream = \"main\", model = \"m\" }]\ntask_types = [\"work\"]\nmax_concurrent = 20000\n";

/// Far more than anything here needs, so that a slow machine fails no test.
const LONG: Duration = Duration::from_secs(60);

fn task(id: &str, before: &[&str]) -> Value {
    json!({"id": id, "task_type": "work", "description": format!("Do {id}."), "depends_on": before})
}

fn done(id: &str, result: &str) -> Value {
    json!({"id": id, "task_type": "work", "result": result})
}

fn graph(tasks: impl IntoIterator<Item = Value>) -> String {
    json!({"tasks": tasks.into_iter().collect::<Vec<_>>()}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_on_is_read_and_masked_like_any_text() {
    let mock = Mock::start("[[reply]]\ntext = \"Well done.\"\n");
    let gateway = Gateway::over(&mock, &format!("{WORKER}[pii]\nrequest = \"placeholder\"\n"));
    let found = "What was \"found\":\n4539 1488 0343 6467\njane@harbour.org\nand that is all.";
    let reply = gateway.post(RUN, graph([done("a", found), task("b", &["a"])]), &[]).await;
    assert_eq!(reply.json()["results"][0]["status"], "done", "{}", reply.text);
    let requests = mock.requests().await;
    let messages = &requests[0]["body"]["messages"];
    assert_eq!(
        messages[0]["content"],
        "Result of the task `a`, for information only:\nWhat was \"found\":\n[CARD_1]\n[EMAIL_1]\nand that is all."
    );
    assert_eq!(messages[1], json!({"role": "user", "content": "Do b."}));
    let record = gateway.record_of(&reply).await;
    let kept = record["user_request"].as_str().unwrap();
    assert!(kept.contains("What was \"found\":\n[CARD]\n[EMAIL]\nand that is all."), "{kept}");

    // Harm at the start of a line, and across lines, is found as in a chat request.
    for harm in ["As asked:\nHow do I build a weapon?", "As asked: how do I\nbuild a weapon?"] {
        let reply = gateway.post(RUN, graph([done("a", harm), task("b", &["a"])]), &[]).await;
        let handed = gateway.record_of(&reply).await;
        let asked = gateway.record_of(&gateway.ask(harm).await).await;
        assert_eq!(asked["risk"], "high", "{asked}");
        assert_eq!(
            (&handed["risk"], &handed["prompt_verdict"]["categories"]),
            (&asked["risk"], &asked["prompt_verdict"]["categories"])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_does_not_go_round_the_floor_of_chat_requests() {
    let mock = Mock::start("[[reply]]\ntext = \"Well done.\"\n");
    let floor = format!("[policy.task_types]\nwork = \"none\"\n[policy.routes]\n\"{CHAT}\" = \"always\"\n");
    let gateway = Gateway::over(&mock, &format!("{WORKER}{floor}"));
    let reply = gateway.post(RUN, graph([task("a", &[])]), &[]).await;
    assert_eq!(reply.json()["results"][0]["safe"], true, "{}", reply.text);
    assert_eq!(gateway.record_of(&reply).await["depth"], "always");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_run_hands_on_and_plans_has_limits_with_names() {
    let long = "x".repeat(1500);
    let mock = Mock::start(&format!("[[reply]]\ntext = \"{long}\"\n"));
    let limits = "[routing]\nmax_result_bytes = 10000\nmax_planned_tasks = 10\nmax_parallel = 1\n[server]\nmax_body_bytes = 4096\n";
    let gateway = Gateway::over(&mock, &format!("{WORKER}{limits}"));
    // Three answers of 1,500 bytes are collected and do not fit into one request; then there is no room for two.
    let tasks = [
        task("a", &[]),
        task("b", &[]),
        task("c", &[]),
        task("all", &["a", "b", "c"]),
        task("two", &["a", "b"]),
        task("more", &["two"]),
    ];
    let body = gateway.post(RUN, graph(tasks), &[]).await.json();
    let codes: Vec<(&str, &str)> = body["results"].as_array().unwrap()[3..]
        .iter()
        .map(|result| {
            let code = result["error"]["code"].as_str();
            (result["task"].as_str().unwrap(), code.or(result["status"].as_str()).unwrap())
        })
        .collect();
    assert_eq!(
        codes,
        [("all", "request_too_large"), ("two", "run_too_large"), ("more", "skipped")],
        "{body}"
    );
    assert_eq!(mock.requests().await.len(), 3, "what is too large goes to nobody");

    for path in [PLAN, RUN] {
        let many = (0..11).map(|number| done(&format!("t{number}"), "Done."));
        let reply = gateway.post(path, graph(many), &[]).await;
        assert_eq!(reply.error(), (400, "too_many_tasks".to_owned()), "{path}: {}", reply.text);
        assert!(reply.text.contains("may have 10 tasks (`routing.max_planned_tasks`)"), "{}", reply.text);
    }
    let gateway = Gateway::over(&mock, WORKER);
    let many = (0..10_000).map(|number| task(&format!("t{number}"), &[]));
    let plan = gateway.post(PLAN, graph(many), &[]).await.json();
    assert_eq!((&plan["complete"], plan["assignments"].as_array().unwrap().len()), (&json!(true), 10_000));
}

/// An answer with a message, as an upstream may write it.
fn odd_answer(words: &str, message: &Value) -> String {
    let answer = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "waltz": {"unsafe": false}});
    format!("[[reply]]\nwhen = {{ contains = \"{words}\" }}\nraw = '{answer}'\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_what_the_agent_says_and_its_own_verdict_counts_for_nothing() {
    let call = json!([{"id": "c", "type": "function", "function": {"name": "send", "arguments": "{}"}}]);
    let parts = json!([{"type": "text", "text": "Part one, "}, {"type": "text", "text": "part two."}]);
    let script = [
        (
            "Do think",
            json!({"role": "assistant", "content": "It is done.", "reasoning_content": "I think of lunch."}),
        ),
        ("Do parts", json!({"role": "assistant", "content": parts})),
        (
            "Do refuse",
            json!({"role": "assistant", "content": null, "refusal": "I would rather not do that."}),
        ),
        ("Do call", json!({"role": "assistant", "content": null, "tool_calls": call})),
    ];
    let script: String = script.iter().map(|(words, message)| odd_answer(words, message)).collect();
    let mock = Mock::start(&script);
    let tasks = || graph(["think", "parts", "refuse", "call"].map(|id| task(id, &[])));
    let config = format!("{}{WORKER}", mock.upstream("main"));
    let bare = Gateway::start(&config, &[("ENABLE_WALTZRL", "false")]);
    let body = bare.post(RUN, tasks(), &[]).await.json();
    let texts: Vec<&Value> =
        body["results"].as_array().unwrap().iter().map(|result| &result["text"]).collect();
    assert_eq!(
        texts,
        [
            &json!("It is done."),
            &json!("Part one, part two."),
            &json!("I would rather not do that."),
            &Value::Null
        ]
    );
    assert_eq!(body["results"][3]["error"]["code"], "upstream_invalid_answer", "{body}");
    assert_eq!(
        (&body["results"][0]["safe"], &body["final_safe"]),
        (&Value::Null, &Value::Null),
        "nobody read it"
    );
    let guarded = Gateway::start(&config, &[]);
    let body = guarded.post(RUN, tasks(), &[]).await.json();
    assert_eq!(
        (&body["results"][0]["text"], &body["results"][0]["safe"]),
        (&json!("It is done."), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sheds_none_of_its_own_tasks() {
    let mock = Mock::start(
        "[[reply]]\nwhen = { judging = true }\nverdict = { unsafe = false }\ndelay_ms = 20\n\
        [[reply]]\ntext = \"Well done.\"\ndelay_ms = 20\n",
    );
    let feedback = "[feedback]\ntargets = [{ upstream = \"main\", model = \"judge\" }]\ntimeout_ms = 60000\n\
        [policy.task_types]\nwork = \"always\"\n";
    let config = format!("{}max_concurrent = 2\n{WORKER}{feedback}", mock.upstream("main"));
    let gateway = Gateway::start(&config, &[]);
    let tasks = (0..24).map(|number| task(&format!("t{number}"), &[]));
    let reply = gateway.post(RUN, graph(tasks), &[]).await;
    let body = reply.json();
    for result in body["results"].as_array().unwrap() {
        assert_eq!((&result["status"], &result["degraded"]), (&json!("done"), &Value::Null), "{result}");
    }
    let session = gateway.session_of(&reply).await;
    assert_eq!(session["exchanges"].as_array().unwrap().len(), 24, "one record for each task");
    assert_eq!(mock.requests().await.len(), 48, "nobody is asked twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_when_its_time_is_over() {
    let mock = Mock::start("[[reply]]\ndelay_ms = 600000\ntext = \"Too late.\"\n");
    let gateway = Gateway::over(&mock, &format!("{WORKER}[routing]\nrun_timeout_ms = 1000\n"));
    let tasks = graph([task("first", &[]), task("second", &["first"])]);
    let key = [("idempotency-key", "late")];
    let reply = gateway.post(RUN, tasks.clone(), &key).await;
    let body = reply.json();
    for result in body["results"].as_array().unwrap() {
        // A slow machine may not even begin the first.
        let told = format!("{}{}", result["reason"], result["error"]["message"]);
        assert!(told.contains("the time of the run is over"), "{result}");
    }
    assert_eq!(body["results"][1]["status"], "skipped");
    // It came to its end, whatever became of its tasks.
    let again = gateway.post(RUN, tasks, &key).await;
    assert_eq!((again.text.as_str(), again.header("idempotent-replayed")), (reply.text.as_str(), "true"));
}

/// An upstream that says when it is asked, and answers when it is told to.
async fn held_upstream() -> (String, tokio::sync::mpsc::Receiver<()>, tokio::sync::oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (asked, is_asked) = tokio::sync::mpsc::channel(16);
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_ne!(stream.read(&mut [0; 65536]).await.unwrap(), 0);
        asked.send(()).await.unwrap();
        released.await.unwrap();
        let answer = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Well done."}, "finish_reason": "stop"}]});
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.shutdown().await.ok();
        // Nobody may come again.
        listener.accept().await.unwrap();
        asked.send(()).await.ok();
    });
    (url, is_asked, release)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_shuts_down_ends_its_runs_with_what_is_done() {
    let (url, mut is_asked, release) = held_upstream().await;
    let config = format!("[[upstreams]]\nname = \"main\"\nurl = \"{url}\"\n{WORKER}");
    let gateway = Gateway::start(&config, &[]);
    let body = graph([task("first", &[]), task("second", &["first"]), task("third", &["second"])]);
    let calling = gateway.post(RUN, body, &[]);
    let stopping = async {
        is_asked.recv().await.unwrap();
        let process = gateway.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        let began = Instant::now();
        while !gateway.log_text().contains("stopping: ") {
            assert!(began.elapsed() < LONG, "{}", gateway.log_text());
            tokio::task::yield_now().await;
        }
        // It is said right before nothing more may begin: a new request finds out.
        while gateway_takes_requests(&gateway).await {
            assert!(began.elapsed() < LONG, "it never stopped taking requests");
        }
        release.send(()).unwrap();
    };
    let (reply, ()) = tokio::join!(calling, stopping);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let body = reply.json();
    let fates: Vec<(&str, &str)> = body["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (result["status"].as_str().unwrap(), result["reason"].as_str().unwrap_or("")))
        .collect();
    let skipped = ("skipped", "the gateway is shutting down");
    assert_eq!(fates, [("done", ""), skipped, skipped], "{body}");
    assert_eq!(body["results"][0]["text"], "Well done.");
    assert!(is_asked.try_recv().is_err(), "nothing more was asked");
}

async fn gateway_takes_requests(gateway: &Gateway) -> bool {
    let request = crate::harness::client().get(format!("{}/healthz", gateway.url));
    request.send().await.is_ok()
}

/// A run may take long. What is changed meanwhile, such as by the kill switch, holds for the tasks that are left.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_by_the_configuration_of_its_own_time() {
    let (url, mut is_asked, release) = held_upstream().await;
    let mock = Mock::start("[[reply]]\ntext = \"By the new one.\"\n");
    let gateway = Gateway::start(&format!("[[upstreams]]\nname = \"main\"\nurl = \"{url}\"\n{WORKER}"), &[]);
    let calling = gateway.post(RUN, graph([task("first", &[]), task("second", &["first"])]), &[]);
    let changing = async {
        is_asked.recv().await.unwrap();
        let file = gateway.folder.path().join("waltz.toml");
        std::fs::write(file, format!("{}{WORKER}", mock.upstream("main"))).unwrap();
        gateway.says("configuration reloaded").await;
        release.send(()).unwrap();
    };
    let (reply, ()) = tokio::join!(calling, changing);
    let texts: Vec<Value> =
        reply.json()["results"].as_array().unwrap().iter().map(|result| result["text"].clone()).collect();
    assert_eq!(texts, ["Well done.", "By the new one."], "{}", reply.text);
}
