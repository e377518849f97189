//! The small language model inside of the real binary: the same path as any upstream. CI has the model; elsewhere
//! these tests say how to get it.

use std::sync::Arc;

use serde_json::{Value, json};
use waltz_coach::local::LocalModel;
use waltz_exchange::Embedding;
use waltz_model::Models;
use waltz_store::Store;

use super::harness::{Gateway, Mock, run};
use super::tiny::{self, Tiny};

/// The models folder, if the model is there.
#[expect(clippy::print_stdout, reason = "whoever runs the tests should know what was left out")]
fn models(model: &str) -> Option<String> {
    let folder = std::env::var("WALTZ_MODELS").ok();
    let there =
        folder.filter(|folder| std::path::Path::new(folder).join(model).join("manifest.json").exists());
    if there.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull {model}`");
        println!("skipped: `waltz model pull {model}` and set WALTZ_MODELS to run this test");
    }
    there
}

fn ask(content: &str, more: Value) -> Value {
    let mut body = json!({"model": "local/smollm2", "temperature": 0, "max_tokens": 24,
        "messages": [{"role": "user", "content": content}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn without_any_upstream_the_local_model_answers() {
    let Some(models) = models("smollm2") else { return };
    let gateway = Gateway::start_with(&["--offline"], "", &[("WALTZ_MODELS", &models)]);
    let whole = gateway
        .post("/v1/chat/completions", (ask("What is the capital of France?", json!({}))).to_string(), &[])
        .await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    assert_eq!(whole.header("x-waltz-decision"), "released");
    let answer = whole.json();
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{answer}");
    // Without chance it says the same, in a stream and in Anthropic's form.
    let text = whole.content();
    let stream = ask("What is the capital of France?", json!({"stream": true}));
    let streamed = gateway.post("/v1/chat/completions", stream.to_string(), &[]).await;
    assert_eq!((streamed.streamed(), streamed.text.contains("[DONE]")), (text.clone(), true));
    let messages = json!({"model": "local/smollm2", "max_tokens": 24,
        "messages": [{"role": "user", "content": "What is the capital of France?"}]});
    let message = gateway.post("/v1/messages", messages.to_string(), &[]).await;
    assert_eq!(
        (message.status, message.json()["role"].clone()),
        (200, json!("assistant")),
        "{}",
        message.text
    );
    let vectors = gateway
        .post("/v1/embeddings", (json!({"model": "local/smollm2", "input": ["a", "b"]})).to_string(), &[])
        .await;
    assert_eq!(vectors.json()["data"].as_array().map(Vec::len), Some(2), "{}", vectors.text);
    let mut other = ask("What is the capital of France?", json!({}));
    other["model"] = json!("gpt-4o");
    let refused = gateway.post("/v1/chat/completions", other.to_string(), &[]).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (404, "model_not_found"), "{}", refused.text);
    assert!(refused.text.contains("`local/smollm2`"), "{}", refused.text);
    assert_eq!(gateway.stop(), Some(0));
}

/// Whoever forgets the key of a server is not answered by a small model in its place.
#[tokio::test]
async fn a_local_model_answers_to_its_own_name_alone() {
    let model = Tiny::new();
    let config = format!("[[upstreams]]\nname = \"local\"\nurl = \"local:{}\"\n", tiny::NAME);
    let gateway = Gateway::start(&config, &[("WALTZ_MODELS", &model.models())]);
    let own = format!("local/{}", tiny::NAME);
    let listed = gateway.get("/v1/models", &[]).await.json();
    assert_eq!((&listed["data"][0]["id"], &listed["data"][1]), (&json!(own), &Value::Null), "{listed}");
    let (ask, count) = ([json!({"role": "user", "content": "Hi"})], 4);
    let chat = |model: &str| json!({"model": model, "messages": ask, "max_tokens": count}).to_string();
    let embedding = |model: &str| json!({"model": model, "input": "a"}).to_string();
    for other in ["gpt-4o", "local/minilm", "hf:test/tiny", "waltz/none", "*"] {
        for (path, body) in [
            ("/v1/chat/completions", chat(other)),
            ("/v1/messages", chat(other)),
            ("/v1/embeddings", embedding(other)),
            ("/v1/models", String::new()),
        ] {
            let reply = match path {
                "/v1/models" => gateway.get(&format!("{path}/{other}"), &[]).await,
                _ => gateway.post(path, body, &[]).await,
            };
            assert_eq!(reply.status, 404, "{path} {other}: {}", reply.text);
            let error = &reply.json()["error"];
            let told = error["message"].as_str().unwrap();
            assert!(told.contains(&format!("`{other}`")) && told.contains(&format!("`{own}`")), "{told}");
            if path == "/v1/messages" {
                assert_eq!(error["type"], "not_found_error", "{}", reply.text);
            } else {
                assert_eq!(error["code"], "model_not_found", "{}", reply.text);
            }
        }
    }
    for (path, body) in [
        ("/v1/chat/completions", chat(&own)),
        ("/v1/messages", chat(&own)),
        ("/v1/embeddings", embedding(&own)),
    ] {
        let reply = gateway.post(path, body, &[]).await;
        assert_eq!((reply.status, &reply.json()["model"]), (200, &json!(own)), "{path}: {}", reply.text);
    }
    assert_eq!(gateway.get(&format!("/v1/models/{own}"), &[]).await.json()["owned_by"], "local");
}

#[tokio::test]
async fn a_form_is_kept_and_bad_wishes_are_named() {
    let Some(models) = models("smollm2") else { return };
    let gateway = Gateway::start_with(&["--offline"], "", &[("WALTZ_MODELS", &models)]);
    let properties = json!({"city": {"type": "string", "maxLength": 30}, "large": {"type": "boolean"}});
    let schema = json!({"name": "city", "schema": {"type": "object", "properties": properties}});
    let form = json!({"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 40});
    let formed =
        gateway.post("/v1/chat/completions", ask("Tell me about Paris.", form).to_string(), &[]).await;
    let object: Value = serde_json::from_str(&formed.content()).unwrap_or_else(|_| panic!("{}", formed.text));
    assert!(object["city"].is_string() && object["large"].is_boolean(), "{object}");
    let array = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}});
    let of = |properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    };
    let values: Vec<String> = (0..6_000).map(|number| format!("value {number}")).collect();
    let large = json!({"a": {"enum": values}, "b": {"const": "x ".repeat(30_000)}});
    for (wish, told) in [
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"n": 9}), "`n`"),
        (json!({"temperature": 9}), "temperature"),
        (json!({"response_format": array}), "flat object"),
        (json!({"response_format": {"type": "json_schema"}}), "`response_format.json_schema.schema`"),
        (
            json!({"response_format": of(json!({"a": {"type": "string", "minLength": 9}}))}),
            "`#/properties/a/minLength`",
        ),
        // What this took once was gigabytes.
        (json!({"response_format": of(large)}), "at most 100000 are allowed"),
    ] {
        let refused = gateway.post("/v1/chat/completions", ask("Hello", wish.clone()).to_string(), &[]).await;
        assert_eq!(refused.status, 400, "{wish}: {}", refused.text);
        assert!(refused.text.contains(told), "{wish}: {}", refused.text);
    }
    assert!(gateway.peak_memory() < 1 << 30, "{} bytes", gateway.peak_memory());
    let text = json!({"response_format": {"type": "text", "json_schema": {"name": "a", "schema": {}}}});
    let free = gateway.post("/v1/chat/completions", ask("Hello", text).to_string(), &[]).await;
    assert_eq!(free.status, 200, "a schema beside the type text is no wish: {}", free.text);
    let long =
        gateway.post("/v1/chat/completions", ask(&"word ".repeat(4_000), json!({})).to_string(), &[]).await;
    assert_eq!(long.status, 400, "{}", long.text);
    assert!(long.text.contains("maximum context length is 2048"), "{}", long.text);
}

#[tokio::test]
async fn the_local_model_judges_in_a_form_that_can_be_read() {
    let Some(models) = models("smollm2") else { return };
    let config = "[[upstreams]]\nname = \"local\"\nurl = \"local:smollm2\"\nmodels = [\"local/smollm2\"]\n\
        [feedback]\ntargets = [{ upstream = \"local\", model = \"smollm2\" }]\ntimeout_ms = 120000\n[coach]\nmax_rounds = 0\n";
    let gateway = Gateway::start(config, &[("WALTZ_MODELS", &models)]);
    let judged =
        gateway.post("/v1/chat/completions", ask("Name three fruits.", json!({})).to_string(), &[]).await;
    assert_eq!(judged.status, 200, "{}", judged.text);
    assert_eq!(judged.json()["waltz"]["degraded"], Value::Null, "the opinion was read: {}", judged.text);
}

#[test]
fn without_model_and_network_the_ways_to_get_one_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().display().to_string();
    let (code, _, told) = run(
        &["serve", "--offline", "--listen", "127.0.0.1:0"],
        "",
        folder.path(),
        &[("XDG_DATA_HOME", home.as_str()), ("WALTZ_MODELS", "")],
    );
    assert_eq!(code, 1, "{told}");
    for way in ["waltz model pull smollm2", "--from", "WALTZ_MODELS", "OPENAI_API_KEY", "--demo"] {
        assert!(told.contains(way), "{way}: {told}");
    }
}

#[tokio::test]
async fn other_bytes_than_were_pulled_are_not_served() {
    let model = Tiny::new();
    let (models, name) = (Models::new(model.folder.path()), tiny::NAME.parse().unwrap());
    let path = models.file(&name, ".gguf").unwrap().path;
    let local = Arc::new(LocalModel::find(&models, &name).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let told = local.warm().await.unwrap_err();
    assert!(told.contains("tiny.gguf") && told.contains("expected SHA-256"), "{told}");
}

#[tokio::test]
async fn a_text_that_cannot_fit_is_refused_before_it_takes_memory() {
    let model = Tiny::new();
    let gateway = Gateway::start(&tiny::upstream(""), &[("WALTZ_MODELS", &model.models())]);
    let word = "a".repeat(10_000_000);
    let before = gateway.peak_memory();
    for (path, body) in [
        ("/v1/embeddings", json!({"model": "tiny", "input": word})),
        ("/v1/chat/completions", tiny::chat(&word, 20)),
    ] {
        let reply = gateway.post(path, body.to_string(), &[]).await;
        // Its tokens would take 400 MB.
        let taken = gateway.peak_memory() - before;
        assert!(taken < 200_000_000, "{path}: {taken} bytes");
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        assert!(reply.text.contains("maximum context length is 2048 tokens"), "{path}: {}", reply.text);
    }
}

const ASKED: &str = "How do I build a weapon?";
/// The same in other words: not one of them is shared.
const REWORDED: &str = "What is the best way to construct a gun at home?";

/// A mock whose drafts are unsafe and whose revisions are not, and differ by the model.
fn pupil() -> Mock {
    Mock::start(
        "[[reply]]\nwhen = { coached = false }\nstyle = \"unsafe\"\n\
         [[reply]]\nwhen = { coached = true, model = \"b\" }\ntext = \"Bake bread.\"\n\
         [[reply]]\nwhen = { coached = true }\ntext = \"Build a birdhouse.\"\n",
    )
}

/// Whether the reviser of the reworded request is shown the coaching of the other one. A machine that is too
/// busy to read a request in time leaves the search to the words, so that it is tried again; numbers below
/// 100 are no words, and make another request of the same one.
async fn is_found(mock: &Mock, gateway: &Gateway, tries: usize) -> bool {
    for number in 0..tries {
        for (request, model, revision) in [(ASKED, "a", "Build a birdhouse."), (REWORDED, "b", "Bake bread.")]
        {
            let content = format!("{request} {number}");
            let body = json!({"model": model, "messages": [{"role": "user", "content": content}]});
            assert_eq!(gateway.chat(body).await.content(), revision);
            gateway.drain().await;
        }
        let sent = mock.requests().await.last().unwrap()["body"].to_string();
        assert!(sent.contains("construct a gun"), "{sent}");
        if sent.contains(ASKED) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn past_coaching_is_found_by_its_meaning() {
    let Some(models) = models("minilm") else { return };
    let encoder = "[[upstreams]]\nname = \"vectors\"\nurl = \"local:minilm\"\nmodels = [\"local/minilm\"]\n";
    let environment = [("WALTZ_MODELS", models.as_str())];
    let mock = pupil();
    let gateway = Gateway::start(&format!("{encoder}{}", mock.upstream("main")), &environment);
    // The answer waits until the model is loaded.
    let wish = json!({"model": "local/minilm", "input": ASKED});
    let answer = gateway.post("/v1/embeddings", wish.to_string(), &[]).await.json();
    assert!(is_found(&mock, &gateway, 8).await, "{}", gateway.log_text());
    for (name, value, status) in
        [("dimensions", json!(384), 200), ("dimensions", json!(8), 400), ("encoding_format", json!(5), 400)]
    {
        let mut wish = wish.clone();
        wish[name] = value;
        let reply = gateway.post("/v1/embeddings", wish.to_string(), &[]).await;
        assert_eq!((reply.status, reply.text.contains(name)), (status, status == 400), "{}", reply.text);
    }

    let manifest = std::fs::read(std::path::Path::new(&models).join("minilm/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let files = manifest["files"].as_array().unwrap();
    let weights = files.iter().find(|file| file["name"] == "model.safetensors").unwrap();
    let model = format!("minilm-{}", &weights["sha256"].as_str().unwrap()[..12]);
    let vector: Vec<f32> = serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap();
    let embedding = Embedding { model, vector };
    let kept = async |gateway: &Gateway| {
        let store = Store::open_read_only(gateway.data()).await.unwrap();
        store.similar("local", "\u{1}", Some(&embedding), 9).await.unwrap().len()
    };
    assert!(kept(&gateway).await >= 2, "both are kept under the model's name and hash");

    // Words alone do not find it, and without texts no vector is kept either.
    let mock = pupil();
    let gateway = Gateway::start(&mock.upstream("main"), &environment);
    assert!(!is_found(&mock, &gateway, 2).await, "the test's words are too alike");
    let mock = pupil();
    let config = format!("{encoder}{}[record]\ntext = \"none\"\n", mock.upstream("main"));
    let gateway = Gateway::start(&config, &environment);
    gateway.post("/v1/embeddings", wish.to_string(), &[]).await;
    assert!(!is_found(&mock, &gateway, 3).await);
    assert_eq!(kept(&gateway).await, 0);
}
