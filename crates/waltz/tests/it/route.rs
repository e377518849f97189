//! Agents, rules, plans and runs: who does a task, why, and what comes of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply, UNSAFE_FRAGMENT, WITHOUT_LEVEL_2, run};

const PLAN: &str = "/waltz/v1/plan";
const RUN: &str = "/waltz/v1/run";
const SAFE: &str = "The design keeps more about members than it needs; drop the birthdays.";

/// Far more than anything here needs, so that a slow machine fails no test.
const LONG: Duration = Duration::from_secs(60);

fn example(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(file).unwrap()
}

/// The example's team, answered by a mock.
fn team(mock: &Mock) -> String {
    let config = example("halo.toml");
    let config = config.replace("https://api.openai.com/v1", &mock.url);
    config.replace("key_env = \"OPENAI_API_KEY\"\n", "") + WITHOUT_LEVEL_2
}

/// The review comes out harmful at first; everything else is fine.
fn harmful_review() -> Mock {
    Mock::start(&format!(
        "[[reply]]\nwhen = {{ contains = \"review the design\", coached = false }}\nstyle = \"unsafe\"\n\
        [[reply]]\nwhen = {{ coached = true }}\ntext = \"{SAFE}\"\n[[reply]]\ntext = \"Well done.\"\n"
    ))
}

fn streamed(graph: &str) -> String {
    let mut graph: Value = serde_json::from_str(graph).unwrap();
    graph["stream"] = json!(true);
    graph.to_string()
}

fn by_task(results: &Value) -> BTreeMap<String, Value> {
    let results = results.as_array().unwrap().iter();
    results.map(|result| (result["task"].as_str().unwrap().to_owned(), result.clone())).collect()
}

/// What an agent was asked and handed, by the words of the task; revisions left out.
async fn prompt_with(mock: &Mock, words: &str) -> String {
    let requests = mock.requests().await;
    let mut texts = requests.iter().filter_map(|request| {
        let messages = request["body"]["messages"].as_array()?;
        messages.last()?["content"].as_str().filter(|text| text.contains(words))?;
        let texts: Vec<&str> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        Some(texts.join("\n"))
    });
    texts.next_back().unwrap_or_else(|| panic!("nobody was asked to {words}"))
}

#[test]
fn the_example_team_of_sixteen_loads_and_plans_its_tasks() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["halo.toml", "halo-tasks.json"] {
        std::fs::write(folder.path().join(name), example(name)).unwrap();
    }
    let key = [("OPENAI_API_KEY", "unused")];
    let config = ["--config", "halo.toml"];
    let call = |arguments: &[&str], input: &str, key: &[(&str, &str)]| {
        run(&[arguments, &config].concat(), input, folder.path(), key)
    };
    assert_eq!(call(&["config", "check"], "", &key), (0, "ok: halo.toml\n".to_owned(), String::new()));
    let (_, shown, _) = call(&["config", "show"], "", &key);
    assert!(shown.contains("agents[15].name") && !shown.contains("agents[16].name"), "{shown}");
    assert!(shown.contains("rules[25].id") && !shown.contains("rules[26].id"), "{shown}");

    // Planning needs no key.
    let (code, table, told) = call(&["route", "halo-tasks.json"], "", &[]);
    assert_eq!((code, told.as_str()), (0, ""));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 13, "{table}");
    assert!(lines[0].starts_with("level  task"));
    let review = lines.iter().find(|line| line.contains(" review ")).unwrap();
    assert!(
        review.starts_with("    3  review") && review.contains("rule `security` (priority 10): "),
        "{review}"
    );
    assert!(table.contains("does `customer_support`: success rate 0.82"), "{table}");
    let (_, json, _) = call(&["route", "-", "--json"], &example("halo-tasks.json"), &[]);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&plan["complete"], plan["assignments"].as_array().unwrap().len()), (&json!(true), 12));

    let cyclic = r#"{"tasks":[{"id":"a","task_type":"code","depends_on":["b"]},{"id":"b","task_type":"code","depends_on":["a"]}]}"#;
    let (code, out, told) = call(&["route", "-"], cyclic, &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(told.contains("the tasks wait for each other: a -> b -> a"), "{told}");
    let odd = r#"{"tasks":[{"id":"a","task_type":"finance"},{"id":"b","task_type":"art"}]}"#;
    let (code, out, told) = call(&["route", "-"], odd, &[]);
    assert!(code == 0 && out.contains("-        no agent does `art`"), "{out}");
    assert!(told.contains("task `a` is of type `finance`, so that the team needs"), "{told}");
    assert!(told.contains("tasks without an agent: 1"), "{told}");
}

#[test]
fn mistakes_in_agents_and_rules_are_named_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[[upstreams]]\nname = \"main\"\nurl = \"http://127.0.0.1:9/v1\"\n\
        [[agents]]\nname = \"a\"\ntargets = [{ upstream = \"main\", model = \"m\" }]\ntask_type = \"code\"\nsuccess_rate = 1.5\n\
        [[agents]]\nname = \"a\"\ntargets = [{ upstream = \"main\", model = \"m\" }]\nmax_concurrent = 0\nskills = [\"two words\"]\n\
        [[rules]]\nid = \"r\"\ntask_type = \"code\"\nagent = \"b\"\n\
        [[rules]]\nid = \"r\"\ntask_type = \"\"\nagent = \"a\"\nexplanation = \"so\"\nconditions = { size = nan }\n\
        [routing]\nmax_parallel = 0\nmax_tasks = 0\nsecurity_skill = \"\"\n\
        max_planned_tasks = 100001\nmax_result_bytes = 1\nrun_timeout_ms = 0\n";
    std::fs::write(folder.path().join("waltz.toml"), config).unwrap();
    let (code, _, told) = run(&["config", "check"], "", folder.path(), &[]);
    assert_eq!(code, 2);
    for mistake in [
        "agents[0].task_type: is now `task_types = [\"code\"]`, a list",
        "agents[0].success_rate: must be a number from 0 to 1",
        "agents[1].name: `a` is taken already",
        "agents[1].max_concurrent: must be at least 1",
        "agents[1].skills[0]: must be 1 to 64 letters",
        "rules[0].agent: must be one of [a, a], not `b`",
        "rules[0].explanation: must say why",
        "rules[1].id: `r` is taken already",
        "rules[1].task_type: must be 1 to 64 letters",
        "rules[1].conditions.size: must be a finite number",
        "routing.max_parallel: must be from 1 to 1000, not 0",
        "routing.max_tasks: must be from 1 to 10000, not 0",
        "routing.max_planned_tasks: must be from 1 to 100000, not 100001",
        "routing.max_result_bytes: must be from 1024 to 1073741824, not 1",
        "routing.run_timeout_ms: must be from 1 to 86400000, not 0",
        "routing.security_skill: must be 1 to 64 letters",
    ] {
        assert!(told.contains(mistake), "{mistake}: {told}");
    }
    assert!(told.contains("has 16 mistakes"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_tasks_run_under_the_guard_and_an_unsafe_result_is_coached_before_anybody_gets_it() {
    let mock = harmful_review();
    let gateway = Gateway::start(&team(&mock), &[]);
    let reply = gateway.post(RUN, example("halo-tasks.json"), &[]).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(!reply.text.contains(UNSAFE_FRAGMENT), "{}", reply.text);
    let body = reply.json();
    let results = by_task(&body["results"]);
    assert_eq!(results.len(), 12);
    assert!(results.values().all(|result| result["status"] == "done" && result["safe"] == true), "{body}");
    let review = &results["review"];
    assert_eq!(
        (&review["decision"], &review["rounds"], &review["text"], &review["safety_critical"]),
        (&json!("coached"), &json!(1), &json!(SAFE), &json!(true))
    );
    assert_eq!(
        (&results["shape"]["safety_critical"], &results["shape"]["rounds"]),
        (&json!(false), &json!(0))
    );
    assert_eq!((&body["final_safe"], &body["avg_coaching_rounds"]), (&json!(true), &json!(1.0 / 12.0)));
    assert_eq!(mock.requests().await.len(), 13, "twelve drafts and one revision");

    // Results go along the edges, and only what was coached does.
    let service = prompt_with(&mock, "interfaces and tables").await;
    assert!(
        service.contains(SAFE)
            && service.contains("Result of the task `shape`")
            && !service.contains("budget"),
        "{service}"
    );
    let system = mock.requests().await[0]["body"]["messages"][0].clone();
    assert_eq!(system["role"], "system", "the agent's own prompt goes first: {system}");

    // Every task is an exchange with a record of its own, like any other.
    let session = gateway.session_of(&reply).await;
    let exchanges = session["exchanges"].as_array().unwrap();
    assert_eq!(exchanges.len(), 12);
    let record = |task: &str| {
        let records = exchanges.iter().map(|exchange| &exchange["record"]);
        records.filter(|record| record["run"]["task"] == task).collect::<Vec<_>>()
    };
    let [review] = record("review")[..] else { panic!("{session}") };
    assert_eq!(
        (&review["agent"], &review["task_type"], &review["endpoint"], &review["decision"]),
        (&json!("security"), &json!("security"), &json!(RUN), &json!("coached"))
    );
    assert_eq!(review["run"]["id"], body["id"]);
    assert_eq!(reply.header("x-request-id"), body["id"].as_str().unwrap());
    assert!(
        review["route_reason"].as_str().unwrap().starts_with("rule `security` (priority 10)"),
        "{review}"
    );
    assert!(review["choices"][0]["draft"]["text"].as_str().unwrap().contains(UNSAFE_FRAGMENT));
    let answer = results["help"]["response_id"].as_str().unwrap();
    let outcome = json!({"response_id": answer, "success": true, "rating": 5}).to_string();
    assert_eq!(gateway.post("/waltz/v1/outcomes", outcome, &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feedback_model_reads_the_safety_critical_tasks_of_a_run() {
    let mock = Mock::start(
        "[[reply]]\nwhen = { judging = true }\nverdict = { unsafe = false }\n[[reply]]\ntext = \"Well done.\"\n",
    );
    let feedback = "[feedback]\ntargets = [{ upstream = \"openai\", model = \"judge\" }]\n";
    let gateway = Gateway::start(&format!("{}{feedback}", team(&mock)), &[]);
    let reply = gateway.post(RUN, example("halo-tasks.json"), &[]).await;
    let results = by_task(&reply.json()["results"]);
    let critical = results.values().filter(|result| result["safety_critical"] == true);
    let critical: Vec<&str> = critical.map(|result| result["task"].as_str().unwrap()).collect();
    assert_eq!(critical, ["help", "review"]);
    let asked = mock.requests().await.iter().filter(|request| request["body"]["model"] == "judge").count();
    assert_eq!(asked, 2);
    let session = gateway.session_of(&reply).await;
    for exchange in session["exchanges"].as_array().unwrap() {
        let (record, task) = (&exchange["record"], exchange["record"]["run"]["task"].as_str().unwrap());
        let deep = if critical.contains(&task) { ("always", 3) } else { ("flagged", 0) };
        let verdict = &record["choices"][0]["draft"]["verdict"];
        assert_eq!((&record["depth"], &verdict["level"]), (&json!(deep.0), &json!(deep.1)), "{task}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_guard_the_plan_is_the_same() {
    let (mock, other) = (harmful_review(), harmful_review());
    let guarded = Gateway::start(&team(&mock), &[]);
    let bare = Gateway::start(&team(&other), &[("ENABLE_WALTZRL", "false")]);
    let tasks = example("halo-tasks.json");
    let planned = guarded.post(PLAN, tasks.clone(), &[]).await;
    assert_eq!(planned.status, 200);
    assert_eq!(bare.post(PLAN, tasks.clone(), &[]).await.text, planned.text);
    let with = guarded.post(RUN, tasks.clone(), &[]).await.json();
    let without = bare.post(RUN, tasks, &[]).await.json();
    assert_eq!((&with["plan"], &without["plan"]), (&planned.json(), &planned.json()));
    let review = &by_task(&without["results"])["review"];
    assert!(review["text"].as_str().unwrap().contains(UNSAFE_FRAGMENT), "nobody reads it: {review}");
    assert_eq!((&review["decision"], &review["safe"]), (&json!("passthrough"), &Value::Null));
    assert_eq!((&without["final_safe"], &without["avg_coaching_rounds"]), (&Value::Null, &json!(0.0)));
    let watched = Gateway::start(&team(&other), &[("WALTZRL_FEEDBACK_ONLY", "true")]);
    let seen = watched.post(RUN, example("halo-tasks.json"), &[]).await.json();
    assert_eq!(
        (&seen["plan"], &seen["final_safe"]),
        (&planned.json(), &json!(false)),
        "read and not changed"
    );
    assert_eq!(by_task(&seen["results"])["review"]["safe"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_of_every_task_and_ends_with_the_whole() {
    let mock = harmful_review();
    let gateway = Gateway::start(&team(&mock), &[]);
    let reply = gateway.post(RUN, streamed(&example("halo-tasks.json")), &[]).await;
    assert!(reply.header("content-type").starts_with("text/event-stream"));
    assert!(
        reply.text.ends_with("data: [DONE]\n\n") && !reply.text.contains(UNSAFE_FRAGMENT),
        "{}",
        reply.text
    );
    let events = reply.chunks();
    assert_eq!((&events[0]["event"], &events[25]["event"]), (&json!("planned"), &json!("finished")));
    assert_eq!(events.len(), 26, "planned, twelve begun, twelve ended, finished");
    let place = |event: &str, task: &str| {
        let wanted = |told: &Value| told["event"] == event && told["task"] == task;
        let places: Vec<usize> = (0..events.len()).filter(|place| wanted(&events[*place])).collect();
        assert_eq!(places.len(), 1, "{event} {task}");
        places[0]
    };
    let graph: Value = serde_json::from_str(&example("halo-tasks.json")).unwrap();
    for task in graph["tasks"].as_array().unwrap() {
        let id = task["id"].as_str().unwrap();
        assert!(place("task_started", id) < place("task_ended", id));
        for before in task["depends_on"].as_array().into_iter().flatten() {
            assert!(place("task_ended", before.as_str().unwrap()) < place("task_started", id), "{id}");
        }
    }
    let finished = &events[25]["run"];
    assert_eq!((&finished["plan"], &finished["final_safe"]), (&events[0]["plan"], &json!(true)));
    let mut told = events[place("task_ended", "review")]["result"].clone();
    assert_eq!(told["text"], SAFE);
    told.as_object_mut().unwrap().remove("text");
    assert_eq!(told, by_task(&finished["results"])["review"], "a text is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_planned_is_refused_by_name_and_nobody_is_asked() {
    let mock = Mock::start("");
    let gateway = Gateway::start(&team(&mock), &[]);
    let task = |id: &str, kind: &str, before: &[&str]| json!({"id": id, "task_type": kind, "description": "Do it.", "depends_on": before});
    let cases = [
        (
            json!([task("a", "code", &["c"]), task("b", "code", &["a"]), task("c", "code", &["b"])]),
            "task_cycle",
            "a -> b -> c -> a",
        ),
        (json!([task("a", "code", &["ghost"])]), "unknown_dependency", "task `a` depends on `ghost`"),
        (json!([task("a", "code", &[]), task("a", "code", &[])]), "duplicate_task", "two tasks `a`"),
        (json!([task("a b", "code", &[])]), "invalid_request", "the id of task 1 must be"),
        (json!("none"), "invalid_request", "the task graph cannot be read"),
    ];
    for (tasks, code, words) in cases {
        for path in [PLAN, RUN] {
            let reply = gateway.post(path, json!({"tasks": tasks}).to_string(), &[]).await;
            assert_eq!(reply.error(), (400, code.to_owned()), "{path}: {}", reply.text);
            assert!(reply.json()["error"]["message"].as_str().unwrap().contains(words), "{}", reply.text);
        }
    }
    let many: Vec<Value> = (0..65).map(|number| task(&format!("t{number}"), "code", &[])).collect();
    let silent = json!([{"id": "a", "task_type": "code"}]);
    for (body, code) in [
        (json!({"tasks": many}), "too_many_tasks"),
        (json!({"tasks": [task("pay", "accounting", &[])], "security": true}), "team_incomplete"),
        (json!({"tasks": [task("a", "code", &[])], "required_skills": ["juggling"]}), "team_incomplete"),
        (json!({"tasks": silent}), "invalid_request"),
        (json!({"tasks": [], "stream": "yes"}), "invalid_request"),
        (json!({"tasks": [], "colour": 1}), "invalid_request"),
    ] {
        assert_eq!(gateway.post(RUN, body.to_string(), &[]).await.error(), (400, code.to_owned()), "{body}");
    }
    let named = gateway.post(RUN, json!({"tasks": []}).to_string(), &[("x-waltz-session-id", "a b")]).await;
    assert_eq!(named.status, 400);
    assert!(mock.requests().await.is_empty());
    let degraded = [("x-waltz-on-degraded", "perhaps")];
    let body = json!({"tasks": [task("a", "code", &[])]}).to_string();
    let refused = gateway.post(RUN, body, &degraded).await;
    assert_eq!(refused.error(), (400, "invalid_request".to_owned()));
    assert!(refused.text.contains("x-waltz-on-degraded"), "{}", refused.text);
    // A run of which nothing began is on record itself; of others the tasks are.
    for (tasks, stream) in [(json!([]), false), (json!([task("a", "art", &[])]), false), (json!([]), true)] {
        let body = json!({"tasks": tasks, "stream": stream}).to_string();
        let reply = gateway.post(RUN, body, &[]).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let record = gateway.record_of(&reply).await;
        assert_eq!(
            (&record["endpoint"], &record["id"], &record["error"], &record["status"]),
            (&json!(RUN), &json!(reply.header("x-request-id")), &json!("no_task_begun"), &json!(200))
        );
        if stream {
            assert!(reply.text.ends_with("data: [DONE]\n\n"), "{}", reply.text);
        } else {
            let body = reply.json();
            assert_eq!(body["results"].as_array().unwrap().len(), tasks.as_array().unwrap().len());
            assert_eq!(body["final_safe"], Value::Null);
        }
    }
    assert!(mock.requests().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_takes_along_only_those_that_wait_for_it() {
    let mock = Mock::start(
        "[[reply]]\nwhen = { contains = \"break down\" }\nstatus = 400\nraw = '{\"error\":{\"message\":\"no\",\"code\":\"bad_luck\"}}'\n\
        [[reply]]\ntext = \"Well done.\"\n",
    );
    let gateway = Gateway::start(&team(&mock), &[]);
    let tasks = json!([
        {"id": "good", "task_type": "code", "description": "Work."},
        {"id": "bad", "task_type": "code", "description": "Break down."},
        {"id": "odd", "task_type": "art", "description": "Paint."},
        {"id": "after", "task_type": "test", "description": "Test it.", "depends_on": ["good", "bad"]},
        {"id": "last", "task_type": "deploy", "description": "Deploy it.", "depends_on": ["after"]},
        {"id": "fine", "task_type": "test", "description": "Test the rest.", "depends_on": ["good", "earlier"]},
        {"id": "earlier", "task_type": "code", "result": "What was found last week."},
    ]);
    let reply = gateway.post(RUN, json!({"tasks": tasks}).to_string(), &[]).await;
    let body = reply.json();
    let results = by_task(&body["results"]);
    let fate = |task: &str| {
        (results[task]["status"].as_str().unwrap(), results[task]["reason"].as_str().unwrap_or(""))
    };
    assert_eq!((fate("good").0, fate("fine").0), ("done", "done"));
    assert_eq!(fate("bad").0, "failed");
    assert_eq!(results["bad"]["error"], json!({"code": "bad_luck", "message": "no"}));
    assert_eq!(fate("after"), ("skipped", "it waits for `bad`, which failed"));
    assert_eq!(fate("last"), ("skipped", "it waits for `after`, which was skipped"));
    assert_eq!(fate("odd"), ("unassigned", "no agent does `art`"));
    assert_eq!(body["plan"]["completed"], json!(["earlier"]));
    assert!(prompt_with(&mock, "Test the rest.").await.contains("What was found last week."));
    assert_eq!(mock.requests().await.len(), 3, "good, bad and fine");
    let session = gateway.session_of(&reply).await;
    let decisions: Vec<&str> = session["exchanges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|exchange| exchange["record"]["decision"].as_str().unwrap())
        .collect();
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert_eq!(decisions.iter().filter(|decision| **decision == "failed").count(), 1, "{decisions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_key_is_run_once() {
    let mock = harmful_review();
    let gateway = Gateway::start(&team(&mock), &[]);
    let key = [("idempotency-key", "tools")];
    for body in [example("halo-tasks.json"), streamed(&example("halo-tasks.json"))] {
        let before = mock.requests().await.len();
        let key = if before == 0 { key } else { [("idempotency-key", "streamed")] };
        let calls = (0..3).map(|_| gateway.post(RUN, body.clone(), &key));
        let mut replies = futures_util::future::join_all(calls).await;
        replies.push(gateway.post(RUN, body, &key).await);
        assert!(replies.iter().all(|reply| reply.status == 200 && reply.text == replies[0].text));
        let replayed = |reply: &&Reply| reply.header("idempotent-replayed") == "true";
        assert_eq!(replies.iter().filter(replayed).count(), 3);
        assert_eq!(mock.requests().await.len() - before, 13);
    }
    let other = gateway.post(RUN, "{\"tasks\":[]}", &key).await;
    assert_eq!(other.error(), (422, "idempotency_key_reused".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_stops_what_has_not_begun() {
    let mock = Mock::start("[[reply]]\ndelay_ms = 600000\ntext = \"Too late.\"\n");
    let gateway = Gateway::start(&team(&mock), &[]);
    let tasks = json!({"tasks": [
        {"id": "first", "task_type": "code", "description": "Begin."},
        {"id": "second", "task_type": "code", "description": "Go on.", "depends_on": ["first"]},
    ]})
    .to_string();
    let mut stream = TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST {RUN} HTTP/1.1\r\nhost: localhost\r\nx-waltz-session-id: ends\r\ncontent-length: {}\r\n\r\n",
        tasks.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(tasks.as_bytes()).unwrap();
    let began = Instant::now();
    while mock.requests().await.is_empty() {
        assert!(began.elapsed() < LONG, "the first task never began");
    }
    drop(stream);
    let records = loop {
        gateway.drain().await;
        let session = gateway.get("/waltz/v1/sessions/ends", &[]).await;
        let exchanges = if session.status == 200 { session.json()["exchanges"].clone() } else { json!([]) };
        if exchanges.as_array().unwrap().len() == 2 {
            break exchanges;
        }
        assert!(began.elapsed() < LONG, "{exchanges}");
    };
    for exchange in records.as_array().unwrap() {
        assert_eq!(exchange["record"]["decision"], "client_gone", "{exchange}");
    }
    let begun: Vec<&Value> =
        records.as_array().unwrap().iter().map(|exchange| &exchange["record"]["run"]["task"]).collect();
    assert!(begun.contains(&&json!("first")) && begun.contains(&&Value::Null), "{begun:?}");
    assert_eq!(mock.requests().await.len(), 1, "the second task never began");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_and_runs_ask_for_a_key_and_belong_to_its_tenant() {
    let mock = Mock::start("[[reply]]\ntext = \"Well done.\"\n");
    let digest = |key: &str| waltz_exchange::id::sha256_hex(key.as_bytes());
    let keys = format!(
        "[[keys]]\nname = \"one\"\nsha256 = \"{}\"\n[[keys]]\nname = \"two\"\nsha256 = \"{}\"\n",
        digest("key-one"),
        digest("key-two")
    );
    let limit = "[server]\nmax_body_bytes = 4096\n";
    let gateway = Gateway::start(&format!("{}{keys}{limit}", team(&mock)), &[]);
    let tasks = json!({"tasks": [{"id": "a", "task_type": "code", "description": "Do it."}]}).to_string();
    for path in [PLAN, RUN] {
        assert_eq!(gateway.post(path, tasks.clone(), &[]).await.error(), (401, "invalid_api_key".to_owned()));
        let large = gateway.post(path, " ".repeat(5000), &[("x-api-key", "key-one")]).await;
        assert_eq!(large.error(), (413, "request_too_large".to_owned()));
        assert_eq!(gateway.post(path, tasks.clone(), &[("x-api-key", "key-one")]).await.status, 200);
    }
    let seen = async |key: &str| {
        gateway.get("/waltz/v1/sessions/nobody", &[("x-api-key", key)]).await;
        gateway.get("/waltz/v1/sessions", &[("x-api-key", key)]).await.json()["data"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((seen("key-one").await, seen("key-two").await), (1, 0));
}

const AGENTS: &str = "[[agents]]\nname = \"coder\"\ntargets = [{ upstream = \"main\", model = \"code-model\" }]\ntask_types = [\"code_generation\", \"review\"]\nsuccess_rate = 0.9\n\
    [[agents]]\nname = \"poet\"\ntargets = [{ upstream = \"main\", model = \"verse-model\" }]\ntask_types = [\"poetry\", \"review\"]\n\
    [[rules]]\nid = \"verse\"\ntask_type = \"user_interaction\"\nconditions = { style = \"verse\" }\nagent = \"poet\"\nexplanation = \"verse is the poet's\"\n\
    [[rules]]\nid = \"urgent\"\ntask_type = \"user_interaction\"\nconditions = { urgent = true, size = 3 }\nagent = \"coder\"\nexplanation = \"the coder is quick\"\n";

/// A request to one of the two protocols.
async fn ask(gateway: &Gateway, path: &str, model: &str, extra: Value, headers: &[(&str, &str)]) -> Reply {
    let mut body =
        json!({"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]});
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    gateway.post(path, body.to_string(), headers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_requests_find_their_agent_on_both_protocols() {
    let mock = Mock::start("[[reply]]\ntext = \"Hello there.\"\n");
    let gateway = Gateway::over(&mock, AGENTS);
    let asked = async || mock.requests().await.last().unwrap()["body"]["model"].as_str().unwrap().to_owned();
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let named = ask(&gateway, path, "waltz/poet", json!({}), &[]).await;
        assert_eq!(
            (named.status, named.header("x-waltz-agent"), asked().await.as_str()),
            (200, "poet", "verse-model")
        );
        let record = gateway.record_of(&named).await;
        assert_eq!(
            (&record["agent"], &record["task_type"], &record["route_reason"]),
            (&json!("poet"), &json!("poetry"), &json!("the model names it"))
        );
        let header = ask(&gateway, path, "any", json!({}), &[("x-waltz-agent", "coder")]).await;
        assert_eq!((header.header("x-waltz-agent"), asked().await.as_str()), ("coder", "code-model"));
        let record = gateway.record_of(&header).await;
        assert_eq!(
            (&record["model"], &record["task_type"], &record["route_reason"]),
            (&json!("any"), &json!("code_generation"), &json!("the header `x-waltz-agent` names it"))
        );
        let typed = ask(&gateway, path, "any", json!({}), &[("x-waltz-task-type", "review")]).await;
        assert_eq!((typed.header("x-waltz-agent"), asked().await.as_str()), ("coder", "code-model"));
        let told = &typed.json()["waltz"];
        assert_eq!(
            (&told["agent"], &told["task_type"], &told["route_reason"]),
            (
                &json!("coder"),
                &json!("review"),
                &json!("does `review`: success rate 0.90, load 0 of 10, best of 2")
            ),
            "{told}"
        );
        // A model that was asked for stays, where no agent does what is asked for.
        let plain = ask(&gateway, path, "any", json!({}), &[("x-waltz-task-type", "cooking")]).await;
        assert_eq!((plain.header("x-waltz-agent"), asked().await.as_str()), ("", "any"));
        let record = gateway.record_of(&plain).await;
        assert_eq!((&record["agent"], record.get("route_reason")), (&json!("any"), None));
        let stream = ask(&gateway, path, "waltz/coder", json!({"stream": true}), &[]).await;
        assert_eq!((stream.status, stream.header("x-waltz-agent")), (200, "coder"));
        let bad = ask(&gateway, path, "any", json!({}), &[("x-waltz-agent", "two words")]).await;
        assert_eq!(bad.status, 400, "{}", bad.text);
        let unknown = [
            ask(&gateway, path, "any", json!({}), &[("x-waltz-agent", "nobody")]).await,
            ask(&gateway, path, "waltz/nobody", json!({}), &[]).await,
        ];
        for (reply, code) in unknown.iter().zip(["agent_not_found", "model_not_found"]) {
            assert!(reply.text.contains("nobody"), "{}", reply.text);
            if path == "/v1/messages" {
                let body = reply.json();
                assert_eq!((reply.status, &body["type"]), (404, &json!("error")), "{body}");
                assert_eq!(body["error"]["type"], "not_found_error", "{body}");
            } else {
                assert_eq!(reply.error(), (404, code.to_owned()));
            }
        }
    }
    let chat = "/v1/chat/completions";
    let ruled = ask(&gateway, chat, "any", json!({"metadata": {"style": "verse"}}), &[]).await;
    assert_eq!((ruled.header("x-waltz-agent"), asked().await.as_str()), ("poet", "verse-model"));
    assert_eq!(ruled.json()["waltz"]["route_reason"], "rule `verse` (priority 10): verse is the poet's");
    let record = gateway.record_of(&ruled).await;
    assert_eq!(
        (&record["task_type"], &record["depth"]),
        (&json!("user_interaction"), &json!("always")),
        "a rule says who answers, and not that it is read less"
    );
    let told = ask(&gateway, chat, "any", json!({"metadata": {"urgent": "true", "size": "3"}}), &[]).await;
    assert_eq!(told.header("x-waltz-agent"), "coder", "metadata of chat requests is text");
    let other = ask(&gateway, chat, "any", json!({"metadata": {"urgent": "yes", "size": "3"}}), &[]).await;
    assert_eq!(other.header("x-waltz-agent"), "");
    let unruled = ask(&gateway, chat, "any", json!({"metadata": {"style": "prose"}}), &[]).await;
    assert_eq!((unruled.header("x-waltz-agent"), asked().await.as_str()), ("", "any"));
    let stated = ask(&gateway, chat, "any", json!({"metadata": {"task_type": "poetry"}}), &[]).await;
    assert_eq!((stated.header("x-waltz-agent"), asked().await.as_str()), ("poet", "verse-model"));
    let both = ask(&gateway, chat, "waltz/poet", json!({}), &[("x-waltz-agent", "coder")]).await;
    assert_eq!(both.header("x-waltz-agent"), "coder", "the header goes first");
    let models = gateway.get("/v1/models", &[]).await.json();
    let ids: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["waltz/coder", "waltz/poet", "mock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_rules_for_the_next_request() {
    let mock = Mock::start("[[reply]]\ntext = \"Hello there.\"\n");
    let gateway = Gateway::over(&mock, AGENTS);
    let verse = json!({"metadata": {"style": "verse"}});
    let chat = "/v1/chat/completions";
    assert_eq!(ask(&gateway, chat, "any", verse.clone(), &[]).await.header("x-waltz-agent"), "poet");
    let file = gateway.folder.path().join("waltz.toml");
    let config = std::fs::read_to_string(&file).unwrap().replace("agent = \"poet\"", "agent = \"coder\"");
    std::fs::write(&file, config).unwrap();
    let began = Instant::now();
    while ask(&gateway, chat, "any", verse.clone(), &[]).await.header("x-waltz-agent") != "coder" {
        assert!(began.elapsed() < LONG, "the rule never changed");
    }
}
