//! The small language model inside of the real binary: the same path as any upstream. CI has the model; elsewhere
//! these tests say how to get it.

use serde_json::{Value, json};

use super::harness::{Gateway, run};

/// The models folder, if the model is there.
#[expect(clippy::print_stdout, reason = "whoever runs the tests should know what was left out")]
fn models() -> Option<String> {
    let folder = std::env::var("WALTZ_MODELS").ok();
    let there = folder.filter(|folder| std::path::Path::new(folder).join("smollm2/manifest.json").exists());
    if there.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
        println!("skipped: `waltz model pull smollm2` and set WALTZ_MODELS to run this test");
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
    let Some(models) = models() else { return };
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
    assert_eq!(gateway.stop(), Some(0));
}

#[tokio::test]
async fn a_form_is_kept_and_bad_wishes_are_named() {
    let Some(models) = models() else { return };
    let gateway = Gateway::start_with(&["--offline"], "", &[("WALTZ_MODELS", &models)]);
    let properties = json!({"city": {"type": "string", "maxLength": 30}, "large": {"type": "boolean"}});
    let schema = json!({"name": "city", "schema": {"type": "object", "properties": properties}});
    let form = json!({"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 40});
    let formed =
        gateway.post("/v1/chat/completions", ask("Tell me about Paris.", form).to_string(), &[]).await;
    let object: Value = serde_json::from_str(&formed.content()).unwrap_or_else(|_| panic!("{}", formed.text));
    assert!(object["city"].is_string() && object["large"].is_boolean(), "{object}");
    let array = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}});
    for (wish, told) in [
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"n": 9}), "`n`"),
        (json!({"temperature": 9}), "temperature"),
        (json!({"response_format": array}), "flat object"),
    ] {
        let refused = gateway.post("/v1/chat/completions", ask("Hello", wish.clone()).to_string(), &[]).await;
        assert_eq!(refused.status, 400, "{wish}: {}", refused.text);
        assert!(refused.text.contains(told), "{wish}: {}", refused.text);
    }
    let long =
        gateway.post("/v1/chat/completions", ask(&"word ".repeat(4_000), json!({})).to_string(), &[]).await;
    assert_eq!(long.status, 400, "{}", long.text);
    assert!(long.text.contains("maximum context length is 2048"), "{}", long.text);
}

#[tokio::test]
async fn the_local_model_judges_in_a_form_that_can_be_read() {
    let Some(models) = models() else { return };
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
