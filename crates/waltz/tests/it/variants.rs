//! Variants of agents: they serve, learn, are rolled back, proposed and released, on both databases.

mod faults;
mod lookback;
mod operators;
mod promotion;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Gateway, Mock, Reply, run};
use crate::postgres::Server;

/// Answers of models: `fast` and `plain` are good, unless the prompt says otherwise.
const SCRIPT: &str = r#"
[[reply]]
when = { contains = "collapse", coached = false }
style = "unsafe"
[[reply]]
when = { model = "bad", coached = false }
style = "unsafe"
[[reply]]
when = { coached = true }
text = "I can't help with that. A locksmith can."
[[reply]]
text = "The harbour was built in 1850 and has two basins."
"#;

const AGENT: &str = "[[agents]]\nname = \"writer\"\ntask_types = [\"docs\"]\nsystem_prompt = \"# Style\\nBe brief.\"\n\
    targets = [{ upstream = \"main\", model = \"plain\" }]\n";
/// Nothing is applied by itself, so that a test decides what serves.
const BY_HAND: &str = "[variants]\nauto_apply = false\n";

/// An upstream and a database, for any number of gateways.
struct Site {
    mock: Mock,
    server: Option<Server>,
    config: String,
}

impl Site {
    fn sqlite(script: &str, config: &str) -> Self {
        let mock = Mock::start(script);
        let config = format!("{}{AGENT}{config}", mock.upstream("main"));
        Self { mock, server: None, config }
    }

    fn postgres(script: &str, config: &str) -> Self {
        let server = Server::start(false).unwrap_or_else(|message| panic!("{message}"));
        let mut site = Self::sqlite(script, config);
        site.config.push_str("[record]\ndatabase_url_env = \"TEST_DATABASE\"\n");
        Self { server: Some(server), ..site }
    }

    fn environment(&self) -> Vec<(String, String)> {
        let url = self.server.iter().map(|server| server.url("postgres"));
        url.map(|url| ("TEST_DATABASE".to_owned(), url)).collect()
    }

    fn gateway(&self) -> Operated {
        self.gateway_in(Arc::new(tempfile::tempdir().unwrap()), None, &[])
    }

    /// A gateway in a folder that may have been used; `token` is then the one it showed at its first start.
    fn gateway_in(&self, folder: Arc<TempDir>, token: Option<String>, more: &[(&str, &str)]) -> Operated {
        let own = self.environment();
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        let gateway = Gateway::start_in(folder, &self.config, &environment);
        let shown = || {
            let log = gateway.log_text();
            let line = log.lines().find_map(|line| line.strip_prefix("admin token, shown this once: "));
            line.unwrap().to_owned()
        };
        let token = token.unwrap_or_else(shown);
        Operated { token, gateway }
    }

    /// Runs a command beside the gateway and returns what it printed as JSON.
    fn command(&self, gateway: &Operated, arguments: &[&str]) -> Result<Value, String> {
        let (config, data) = (gateway.gateway.folder.path().join("waltz.toml"), gateway.gateway.data());
        let (config, data) = (config.display().to_string(), data.display().to_string());
        let all = [arguments, &["--json", "--by", "ann", "--config", &config, "--data", &data]].concat();
        let own = self.environment();
        let environment: Vec<(&str, &str)> =
            own.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (code, out, err) = run(&all, "", gateway.gateway.folder.path(), &environment);
        if code == 0 { Ok(serde_json::from_str(&out).unwrap()) } else { Err(err) }
    }
}

/// A gateway with the admin token.
struct Operated {
    gateway: Gateway,
    token: String,
}

impl Operated {
    async fn call(&self, by: &str, path: &str, body: Option<Value>) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str()), ("x-waltz-by", by)];
        let path = format!("/waltz/v1/{path}");
        match body {
            Some(body) => self.gateway.post(&path, body.to_string(), &headers).await,
            None => self.gateway.get(&path, &headers).await,
        }
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.call("ann", path, None).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        reply.json()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let reply = self.call("ann", path, Some(body)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        reply.json()
    }

    /// Declares a variant that asks another model, and lets it compete.
    async fn add(&self, name: &str, model: &str) {
        let body = json!({
            "agent": "writer", "task_type": "docs", "name": name, "patch": [{"model": model}], "live": true
        });
        self.post("variants", body).await;
    }

    async fn act(&self, action: &str, variant: &str) -> Value {
        self.post("variants/writer/docs", json!({"action": action, "variant": variant})).await
    }

    /// Asks the agent in a session, and returns the variant that answered with the reply.
    async fn ask(&self, session: &str, prompt: &str) -> (String, Reply) {
        let body = json!({"model": "waltz/writer", "messages": [{"role": "user", "content": prompt}]});
        let headers = [("x-waltz-session-id", session)];
        let reply = self.gateway.post("/v1/chat/completions", body.to_string(), &headers).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        (reply.header("x-waltz-variant").to_owned(), reply)
    }

    /// Asks in as many sessions, one after the other.
    async fn ask_many(&self, from: usize, count: usize, prompt: &str) {
        for number in from..from + count {
            self.ask(&format!("s{number}"), prompt).await;
        }
    }

    async fn board(&self) -> Value {
        self.get("variants/writer/docs").await
    }

    /// Waits until something holds of the board.
    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let reply = self.call("ann", "variants/writer/docs", None).await;
            let board = if reply.status == 200 { reply.json() } else { Value::Null };
            if holds(&board) {
                return board;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{what}: {board:#}\n{}",
                self.gateway.log_text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until so many outcomes were learned.
    async fn learned(&self, visits: u64) -> Value {
        self.until(&format!("{visits} outcomes"), |board| all_visits(board) >= visits).await
    }

    async fn history(&self) -> Vec<Value> {
        let history = self.get("variants/writer/docs/history").await;
        history["data"].as_array().unwrap().iter().map(|row| row["event"].clone()).collect()
    }
}

fn variant<'a>(board: &'a Value, name: &str) -> &'a Value {
    let variants = board["variants"].as_array().map(Vec::as_slice).unwrap_or_default();
    variants.iter().find(|variant| variant["name"] == name).unwrap_or(&Value::Null)
}

fn visits(board: &Value, name: &str) -> u64 {
    variant(board, name)["visits"].as_u64().unwrap_or(0)
}

fn all_visits(board: &Value) -> u64 {
    let variants = board["variants"].as_array().map(Vec::as_slice).unwrap_or_default();
    variants.iter().filter_map(|variant| variant["visits"].as_u64()).sum()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

#[tokio::test]
async fn a_variant_changes_what_is_asked_and_its_chances_are_on_record() {
    let site = Site::sqlite(SCRIPT, BY_HAND);
    let gateway = site.gateway();
    let patch = json!([
        {"section": "Style", "operation": "append", "content": "Name your sources."},
        {"parameter": "temperature", "value": 0.2},
        {"model": "fast"}
    ]);
    let body =
        json!({"agent": "writer", "task_type": "docs", "name": "sourced", "patch": patch, "live": true});
    gateway.post("variants", body.clone()).await;
    assert_eq!(gateway.call("ann", "variants", Some(body)).await.status, 400, "the name is taken");
    let mut met: BTreeMap<String, String> = BTreeMap::new();
    for number in 0..30 {
        let session = format!("s{number}");
        let (variant, reply) = gateway.ask(&session, "Tell me about the harbour").await;
        let record = gateway.gateway.record_of(&reply).await;
        assert_eq!(record["variant"], variant.as_str());
        let chances = record["variant_choice"]["candidates"].as_object().unwrap();
        let sum: f64 = chances.values().map(|chance| chance.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9 && chances.len() == 2, "{record:#}");
        assert_eq!(record["variant_choice"]["action_prob"], chances[&variant]);
        met.insert(session, variant);
    }
    for name in ["default", "sourced"] {
        assert!(met.values().any(|variant| variant == name), "{met:?}");
    }
    let board = gateway.learned(30).await;
    assert_eq!(all_visits(&board), 30);
    assert!(variant(&board, "sourced")["q_value"].as_f64().unwrap() > 0.8, "{board:#}");
    let why = board["explanations"]["sourced"]["sentences"][0].as_str().unwrap();
    assert!(why.contains(&format!("of {} outcomes", visits(&board, "sourced"))), "{why}");
    let requests = site.mock.requests().await;
    let of =
        |model: &str| requests.iter().map(|seen| &seen["body"]).find(|body| body["model"] == model).unwrap();
    let (changed, plain) = (of("fast"), of("plain"));
    assert_eq!(changed["messages"][0]["content"], "# Style\nBe brief.\nName your sources.");
    assert_eq!((&changed["temperature"], &plain["temperature"]), (&json!(0.2), &Value::Null));
    assert_eq!(plain["messages"][0]["content"], "# Style\nBe brief.");
}

#[tokio::test]
async fn a_client_without_the_token_sees_and_changes_nothing() {
    let site = Site::sqlite(SCRIPT, "");
    let gateway = site.gateway();
    for path in ["variants", "proposals", "rollbacks", "releases", "learned", "variants/writer/docs"] {
        let reply = gateway.gateway.get(&format!("/waltz/v1/{path}"), &[]).await;
        assert_eq!(reply.error(), (403, "admin_only".to_owned()), "{path}");
    }
    let body = json!({"command": "pause"}).to_string();
    let reply = gateway.gateway.post("/waltz/v1/releases/all", body, &[]).await;
    assert_eq!(reply.error(), (403, "admin_only".to_owned()));
    assert_eq!(gateway.get("releases").await["paused"], Value::Null);
}

/// Two gateways learn side by side, one of them is killed in the middle and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_is_learned_once() {
    let site = Site::postgres(SCRIPT, BY_HAND);
    let (one, two) = (site.gateway(), site.gateway());
    one.add("fast", "fast").await;
    tokio::join!(one.ask_many(0, 40, "harbour"), two.ask_many(100, 40, "harbour"));
    // Killed with most of it still in its journal.
    let Operated { mut gateway, token } = two;
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    let folder = Arc::clone(&gateway.folder);
    drop(gateway);
    let two = site.gateway_in(folder, Some(token), &[]);
    one.learned(80).await;
    two.ask_many(200, 5, "harbour").await;
    assert_eq!(all_visits(&one.learned(85).await), 85);
    assert_eq!(all_visits(&two.learned(85).await), 85);
}

/// Who sends nonsense learns that it is nonsense, and no variant is worse for it.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_nobody_can_answer_are_no_variants_fault() {
    let refusing = |status: u16, words: &str, param: &str| {
        format!(
            "[[reply]]\nwhen = {{ contains = \"{words}\" }}\nstatus = {status}\n\
             raw = '{{\"error\": {{\"message\": \"no\", \"param\": {param}}}}}'\n"
        )
    };
    let script = format!(
        "{}{}{}{SCRIPT}",
        refusing(400, "nonsense", "\"messages\""),
        refusing(422, "rubbish", "null"),
        refusing(400, "too warm", "\"temperature\""),
    );
    let site = Site::sqlite(&script, BY_HAND);
    let gateway = site.gateway();
    let patch = json!([{"parameter": "temperature", "value": 1.5}]);
    let body = json!({"agent": "writer", "task_type": "docs", "name": "warm", "patch": patch, "live": true});
    gateway.post("variants", body).await;
    gateway.act("apply", "warm").await;
    let ask = async |prompt: &str| {
        let body = json!({"model": "waltz/writer", "messages": [{"role": "user", "content": prompt}]});
        gateway.gateway.post("/v1/chat/completions", body.to_string(), &[]).await.status
    };
    for _ in 0..30 {
        assert_eq!((ask("nonsense").await, ask("rubbish").await), (400, 422));
    }
    gateway.ask("s1", "harbour").await;
    let board = gateway.learned(1).await;
    let warm = variant(&board, "warm");
    assert_eq!(
        (&warm["visits"], &warm["infrastructure"], &warm["success_rate"]),
        (&json!(1), &json!(0), &json!(1.0)),
        "{board:#}"
    );
    // What the variant itself has set is its fault.
    assert_eq!(ask("too warm").await, 400);
    let board = gateway.learned(2).await;
    assert_eq!(variant(&board, "warm")["success_rate"], json!(0.5), "{board:#}");
}

/// What is chosen by the kind of request is told apart by it, and reports teach it although no text is kept.
#[tokio::test(flavor = "multi_thread")]
async fn linucb_learns_what_kind_of_request_a_variant_is_good_at() {
    // One does well in English, the other in German.
    let script = "[[reply]]\nwhen = { model = \"fast\", contains = \"harbour\", coached = false }\nstyle = \"unsafe\"\n\
        [[reply]]\nwhen = { model = \"plain\", contains = \"hafen\", coached = false }\nstyle = \"unsafe\"\n";
    let config = "[variants]\nauto_apply = false\nrule = \"linucb\"\n[rollback]\nmode = \"off\"\n[record]\ntext = \"none\"\n";
    let site = Site::sqlite(&format!("{script}{SCRIPT}"), config);
    let gateway = site.gateway();
    gateway.add("fast", "fast").await;
    let (english, german) = ("What is the depth of the harbour?", "Wie tief ist der Hafen und das Becken?");
    let mut chances = BTreeMap::new();
    for round in 0..60 {
        for (language, prompt) in [("en", english), ("de", german)] {
            let (_, reply) = gateway.ask(&format!("{language}{round}"), prompt).await;
            let record = gateway.gateway.record_of(&reply).await;
            let context = &record["request_context"];
            assert_eq!((&context["language"], &context["complexity"]), (&json!(language), &json!("low")));
            assert_eq!(context["length"], prompt.chars().count());
            assert_eq!(context, &record["lesson"]["context"]);
            assert!(!record.to_string().contains(prompt), "no text is kept");
            chances.insert(language, record["variant_choice"]["candidates"].clone());
        }
        gateway.learned(2 * (round + 1)).await;
    }
    let chance = |language: &str, variant: &str| chances[language][variant].as_f64().unwrap();
    assert!(chance("en", "default") > 0.9 && chance("de", "fast") > 0.9, "{chances:?}");
}

/// The best of a few tries, so that a machine that pauses for a moment is not taken for a slow product.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_see_a_rollback_within_a_second() {
    let site = Site::postgres(SCRIPT, BY_HAND);
    let (one, two) = (site.gateway(), site.gateway());
    one.add("fast", "fast").await;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        one.act("apply", "fast").await;
        two.until("the other gateway serves it", |board| board["serving"] == "fast").await;
        one.act("rollback", "default").await;
        let began = Instant::now();
        while two.ask("s1", "harbour").await.0 != "default" {
            assert!(began.elapsed() < Duration::from_secs(60), "never seen");
        }
        best = best.min(began.elapsed());
        assert_eq!(one.ask("s1", "harbour").await.0, "default", "at once where it was asked for");
        one.act("enter", "fast").await;
    }
    assert!(best < Duration::from_secs(1), "{best:?}");
}

/// Asks both gateways again and again until both have served the default, and returns when the last request began that
/// was still served by another variant.
async fn until_default(gateways: [&Operated; 2], since: &OnceLock<Instant>) -> Duration {
    let load = async |gateway: &Operated, lane: usize| {
        let (started, mut latest) = (Instant::now(), Duration::ZERO);
        loop {
            let began = Instant::now();
            let served = gateway.ask(&format!("lane-{lane}"), "harbour").await.0;
            let after = since.get().map(|since| began.saturating_duration_since(*since));
            match (served.as_str(), after) {
                ("default", Some(_)) => return latest,
                (_, Some(after)) => latest = latest.max(after),
                _ => {}
            }
            assert!(
                started.elapsed() < Duration::from_secs(120),
                "never seen: {}",
                gateway.gateway.log_text()
            );
        }
    };
    let lanes = (0..6).map(|lane| load(gateways[lane % 2], lane));
    futures_util::future::join_all(lanes).await.into_iter().max().unwrap()
}

/// The best of a few tries, as above.
#[tokio::test(flavor = "multi_thread")]
async fn fault_F82_the_kill_switch_reaches_two_gateways_under_load() {
    let site = Site::postgres(SCRIPT, BY_HAND);
    let (one, two) = (site.gateway(), site.gateway());
    one.add("fast", "fast").await;
    one.act("apply", "fast").await;
    two.until("the other gateway serves it", |board| board["serving"] == "fast").await;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let since = OnceLock::new();
        let pause = async {
            one.post("releases/all", json!({"command": "pause", "reason": "a drill"})).await;
            since.set(Instant::now()).unwrap();
        };
        let (latest, ()) = tokio::join!(until_default([&one, &two], &since), pause);
        best = best.min(latest);
        one.post("releases/all", json!({"command": "resume"})).await;
        while two.ask("s1", "harbour").await.0 != "fast" {}
    }
    assert!(best < Duration::from_secs(1), "{best:?}");
}

/// A variant that fails loses its traffic by itself, and on the gateway that has not seen it fail too. A try that a
/// slow moment of the machine has spoilt is made again.
#[tokio::test(flavor = "multi_thread")]
async fn an_automatic_rollback_reaches_the_other_gateway_within_a_second() {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let site = Site::postgres(SCRIPT, BY_HAND);
        let (one, two) = (site.gateway(), site.gateway());
        faults::with_history(&one).await;
        one.act("retire", "second").await;
        two.until("the other gateway serves it", |board| board["serving"] == "fast").await;
        let since = OnceLock::new();
        let fall = async {
            faults::collapse(&one, "fast").await;
            since.set(Instant::now()).unwrap();
        };
        // Good answers would make up for bad ones: the other gateway is asked only once it has happened.
        fall.await;
        best = best.min(until_default([&one, &two], &since).await);
        if best < Duration::from_secs(1) {
            return;
        }
    }
    panic!("{best:?}");
}
