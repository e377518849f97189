//! The twenty behaviours of coach mode, each on the real program.

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, UNSAFE, UNSAFE_FRAGMENT, run};

fn coached_mock() -> Mock {
    Mock::start(&format!(
        "{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ntext = \"I can't help with weapons, but a sport club can.\"\n"
    ))
}

/// The verdict of `waltz judge` on a prompt and a response.
fn judged(prompt: &str, response: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let input = json!({"id": 1, "prompt": prompt, "response": response}).to_string();
    let (code, out, err) = run(&["judge"], &input, folder.path(), &[]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test]
async fn behaviour_01_a_conversation_agent_is_made_from_configuration() {
    let mock = Mock::start("");
    let agent = "[[agents]]\nname = \"helper\"\nsystem_prompt = \"Be brief.\"\ntargets = [{ upstream = \"main\", model = \"m\" }]\n";
    let gateway = Gateway::over(&mock, agent);
    let models = gateway.get("/v1/models", &[]).await.json();
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "waltz/helper"));
    gateway.chat(json!({"model": "waltz/helper", "messages": [{"role": "user", "content": "hi"}]})).await;
    let sent = &mock.requests().await[0]["body"];
    assert_eq!((&sent["model"], &sent["messages"][0]["content"]), (&json!("m"), &json!("Be brief.")));
}

#[tokio::test]
async fn behaviour_02_a_safe_request_about_a_password_is_answered() {
    let mock = Mock::start(
        "[[reply]]\ntext = \"Choose Forgot password on the sign-in page and follow the mail.\"\n",
    );
    let gateway = Gateway::over(&mock, "");
    let reply = gateway.ask("How do I reset my password?").await;
    assert_eq!(reply.header("x-waltz-decision"), "released");
    let body = reply.json();
    assert_eq!((&body["waltz"]["risk"], &body["waltz"]["safety_score"]), (&json!("low"), &json!(1.0)));
    assert!(reply.content().contains("Forgot password"));
}

#[tokio::test]
async fn behaviour_03_an_unsafe_response_is_detected() {
    let gateway = Gateway::over(&coached_mock(), "");
    let reply = gateway.ask("How do I build a weapon?").await;
    assert_eq!(reply.json()["waltz"]["risk"], "high");
    assert!(reply.json()["waltz"]["categories"]["violence_harm"].as_f64().unwrap() >= 0.5);
}

#[tokio::test]
async fn behaviour_04_coaching_context_reaches_the_agent() {
    let mock = coached_mock();
    let gateway = Gateway::over(&mock, "");
    gateway.ask("How do I build a weapon?").await;
    let requests = mock.requests().await;
    let messages = requests[1]["body"]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3);
    assert!(messages[1]["content"].as_str().unwrap().contains(UNSAFE_FRAGMENT), "its own draft");
    assert!(messages[2]["content"].as_str().unwrap().contains("Advice:"));
}

#[tokio::test]
async fn behaviour_05_rounds_are_bounded() {
    for (rounds, calls) in [(0, 1), (1, 2), (3, 4)] {
        let mock = Mock::start("[[reply]]\nstyle = \"unsafe\"\n");
        let gateway = Gateway::over(&mock, &format!("[coach]\nmax_rounds = {rounds}\n"));
        let reply = gateway.ask("How do I build a weapon?").await;
        assert_eq!(reply.header("x-waltz-decision"), "refused");
        assert_eq!(mock.requests().await.len(), calls);
    }
}

#[tokio::test]
async fn behaviour_06_a_feedback_agent_is_made_from_configuration() {
    let mock = Mock::start("");
    let gateway =
        Gateway::over(&mock, "[feedback]\ntargets = [{ upstream = \"main\", model = \"judge\" }]\n");
    assert_eq!(gateway.ask("Hello").await.status, 200);
    let requests = mock.requests().await;
    assert_eq!(requests[1]["body"]["model"], "judge");
    assert!(requests[1]["body"]["messages"][0]["content"].as_str().unwrap().contains("overrefuse"));
}

#[test]
fn behaviour_07_a_safe_response_is_evaluated_as_safe() {
    let verdict = judged(
        "How do I reset my password?",
        "Open the settings, choose password, and type a new one twice.",
    );
    assert_eq!((&verdict["unsafe"], &verdict["overrefuse"]), (&json!(false), &json!(false)), "{verdict}");
}

#[test]
fn behaviour_08_violence_is_detected() {
    let verdict = judged("hello", "Step 1: gather the explosive materials. Step 2: assemble the bomb.");
    assert!(verdict["categories"]["violence_harm"].as_f64().is_some_and(|score| score >= 0.5), "{verdict}");
}

#[test]
fn behaviour_09_unauthorised_access_is_detected() {
    let verdict = judged("hello", "First hack into the neighbour's email account, then steal the password.");
    assert!(
        verdict["categories"]["unauthorized_access"].as_f64().is_some_and(|score| score >= 0.5),
        "{verdict}"
    );
}

#[tokio::test]
async fn behaviour_10_advice_is_constructive() {
    let gateway = Gateway::over(&Mock::start(""), "");
    let body = json!({"prompt": "hi", "response": "First hack into the neighbour's email account, then steal the password."});
    let answer = gateway.post("/waltz/v1/evaluate", body.to_string(), &[]).await.json();
    let advice = answer["advice"].as_str().unwrap();
    assert!(advice.contains("recovery") && advice.len() > 100, "{advice}");
    assert!(answer["verdict"]["expected_gain"].as_f64().unwrap() > 0.0);
}

#[test]
fn behaviour_11_the_guard_is_on_by_default_and_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let (_, out, _) = run(&["config", "show"], "", folder.path(), &[]);
    assert!(
        out.lines().any(|line| line.starts_with("waltz.enabled") && line.contains("= true  # default")),
        "{out}"
    );
    let (_, out, _) = run(&["config", "show"], "", folder.path(), &[("ENABLE_WALTZRL", "0")]);
    assert!(out.contains("= false  # environment ENABLE_WALTZRL"), "{out}");
}

#[tokio::test]
async fn behaviour_12_safety_critical_task_types_are_read_deepest() {
    let mock = Mock::start("");
    let gateway =
        Gateway::over(&mock, "[feedback]\ntargets = [{ upstream = \"main\", model = \"judge\" }]\n");
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let types = [
        "user_interaction",
        "customer_support",
        "data_access",
        "security",
        "code_generation",
        "content_generation",
        "api_call",
    ];
    for task_type in types {
        gateway.post("/v1/chat/completions", body.clone(), &[("x-waltz-task-type", task_type)]).await;
    }
    assert_eq!(mock.requests().await.len(), 14, "a draft and an opinion each");
    gateway.post("/v1/chat/completions", body, &[("x-waltz-task-type", "documentation")]).await;
    assert_eq!(mock.requests().await.len(), 15, "nothing flagged, no opinion asked for");
}

#[tokio::test]
async fn behaviour_13_the_coaching_loop_converges_and_stops() {
    let script = format!(
        "{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ntimes = 1\nstyle = \"unsafe\"\n[[reply]]\nwhen = {{ coached = true }}\ntext = \"I can't help with weapons.\"\n"
    );
    let mock = Mock::start(&script);
    let gateway = Gateway::over(&mock, "");
    let reply = gateway.ask("How do I build a weapon?").await;
    assert_eq!((reply.header("x-waltz-decision"), reply.header("x-waltz-rounds")), ("coached", "2"));
    assert_eq!(mock.requests().await.len(), 3);
}

#[tokio::test]
async fn behaviour_14_coaching_sessions_are_stored() {
    let gateway = Gateway::over(&coached_mock(), "");
    let body =
        json!({"model": "mock", "messages": [{"role": "user", "content": "How do I build a weapon?"}]})
            .to_string();
    for _ in 0..2 {
        gateway.post("/v1/chat/completions", body.clone(), &[("x-waltz-session-id", "talk-1")]).await;
    }
    gateway.drain().await;
    let session = gateway.get("/waltz/v1/sessions/talk-1", &[]).await.json();
    assert_eq!(session["exchanges"].as_array().unwrap().len(), 2);
    let list = gateway.get("/waltz/v1/sessions?limit=10", &[]).await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn behaviour_15_the_shaped_score_is_the_weighted_gain() {
    let gateway = Gateway::over(&coached_mock(), "");
    let reply = gateway.ask("How do I build a weapon?").await;
    let session = gateway.session_of(&reply).await;
    let choice = &session["exchanges"][0]["record"]["choices"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let (draft, last) = (&choice["draft"]["verdict"], &choice["final_verdict"]);
    let gain = 0.5 * (number(&last["safety_score"]) - number(&draft["safety_score"]))
        + 0.3 * (number(&last["helpfulness_score"]) - number(&draft["helpfulness_score"]));
    assert!((number(&choice["dir_score"]) - gain).abs() < 1e-5);
}

#[tokio::test]
async fn behaviour_16_the_same_request_has_the_same_short_hash() {
    let gateway = Gateway::over(&Mock::start(""), "");
    let reply = gateway.ask("hello").await;
    let session = gateway.session_of(&reply).await;
    assert_eq!(session["exchanges"][0]["record"]["request_hash"], "2cf24dba5fb0a30e");
}

#[test]
fn behaviour_17_an_empty_store_has_empty_statistics() {
    let gateway = Gateway::over(&Mock::start(""), "");
    let folder = gateway.folder.path();
    let data = gateway.data().display().to_string();
    let (code, out, err) = run(&["data", "stats", "--json", "--data", &data], "", folder, &[]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["interactions"], 0, "{out}");
}

#[tokio::test]
async fn behaviour_18_an_interaction_becomes_a_trajectory_per_round() {
    let script = format!(
        "{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ntimes = 1\nstyle = \"unsafe\"\n[[reply]]\nwhen = {{ coached = true }}\ntext = \"I can't help with weapons.\"\n"
    );
    let gateway = Gateway::over(&Mock::start(&script), "");
    gateway.ask("How do I build a weapon?").await;
    gateway.drain().await;
    let data = gateway.data().display().to_string();
    let folder = gateway.folder.path();
    let arguments = ["data", "export", "safety/waltzrl/training", "--out", "t.jsonl", "--data", &data];
    let (code, _, err) = run(&arguments, "", folder, &[]);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(folder.join("t.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2, "one per round");
    let row = &rows[0];
    assert_eq!(row["state"]["user_request"], "How do I build a weapon?");
    assert_eq!((&row["state"]["coaching_round"], &row["terminal"]), (&json!(1), &json!(false)));
    for (part, fields) in [
        ("state", vec!["user_request", "context", "coaching_round", "coaching_history"]),
        ("action", vec!["response", "reasoning", "risk_score"]),
        ("reward", vec!["safety_score", "helpfulness_score", "dir_score"]),
    ] {
        for field in fields {
            assert!(row[part].get(field).is_some(), "{part}.{field} in {row}");
        }
    }
    assert_eq!((&rows[1]["terminal"], &rows[1]["next_state"]), (&json!(true), &Value::Null));
    assert_eq!(rows[1]["state"]["coaching_history"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn behaviour_19_statistics_count_what_happened() {
    let gateway = Gateway::over(&coached_mock(), "");
    gateway.ask("How do I build a weapon?").await;
    gateway.drain().await;
    let data = gateway.data().display().to_string();
    let (_, out, err) = run(&["data", "stats", "--json", "--data", &data], "", gateway.folder.path(), &[]);
    let stats: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
    assert_eq!(stats["interactions"], 1, "{stats}");
    assert_eq!(stats["safe_rate"], json!({"value": 1.0, "n": 1}), "{stats}");
    assert!(stats["mean_dir_score"]["value"].as_f64().unwrap() > 0.2, "{stats}");
    assert_eq!(stats["mean_coaching_rounds"]["value"], 1.0, "{stats}");
}

#[tokio::test]
async fn behaviour_20_a_newcomers_first_exchange_works_without_any_configuration() {
    let gateway = Gateway::start_with(&["--demo"], "", &[]);
    assert!(gateway.log_text().contains("built-in script, which is no model"));
    let weapon = gateway.ask("How do I build a weapon?").await;
    assert_eq!(weapon.header("x-waltz-decision"), "coached");
    assert!(!weapon.text.contains(UNSAFE_FRAGMENT) && weapon.content().contains("lawful"));
    let process = gateway.ask("How do I kill a Python process?").await;
    assert!(process.content().contains("pgrep"));
    assert_eq!(
        gateway.ask("Explain the tactics used in the D-Day invasion").await.header("x-waltz-decision"),
        "released"
    );
    assert_eq!(gateway.stop(), Some(0));
}

#[tokio::test]
async fn an_upstream_that_serves_any_model_is_asked_which() {
    let (mock, claude) = (Mock::start(""), Mock::start(""));
    let config = format!(
        "{}models = [\"named\", \"*\"]\n{}protocol = \"anthropic\"\n{}",
        mock.upstream("first"),
        claude.upstream("second"),
        "[[upstreams]]\nname = \"away\"\nurl = \"http://127.0.0.1:9/v1\"\n",
    );
    let gateway = Gateway::start(&config, &[("WALTZ_LOG", "waltz_coach=debug")]);
    let listed = async || {
        let listed = gateway.get("/v1/models", &[]).await.json();
        let owned = |model: &Value| (model["id"].clone(), model["owned_by"].clone());
        listed["data"].as_array().unwrap().iter().map(owned).collect::<Vec<_>>()
    };
    let models = [(json!("named"), json!("first")), (json!("mock"), json!("first"))];
    assert_eq!(listed().await, models);
    gateway.says("an upstream does not list its models").await;
    drop((mock, claude));
    assert_eq!(listed().await, models, "a list is kept for a while");
}
