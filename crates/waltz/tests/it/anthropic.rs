//! Upstreams that speak Anthropic's form, and clients of `/v1/messages`.

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply, attempts};
use crate::wire::{DONE, EVENTS, Wire, completion, finish, says};

const SENTENCE: &str = "A harmless sentence about the old harbour and its many ships. ";
const ONCE: &str = "[retry]\nmax_retries = 0\n";

/// An upstream table for a wire that speaks Anthropic's form.
fn claude(wire: &Wire, name: &str) -> String {
    format!("{}protocol = \"anthropic\"\n", wire.upstream(name))
}

/// An event of Anthropic's form.
fn event(name: &str, mut data: Value) -> String {
    data["type"] = json!(name);
    format!("event: {name}\ndata: {data}\n\n")
}

fn start() -> String {
    let usage = json!({"input_tokens": 30, "output_tokens": 1});
    event(
        "message_start",
        json!({"message": {"id": "m1", "type": "message", "role": "assistant",
        "model": "c", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}}),
    )
}

/// A block whose words come as one delta.
fn block(index: usize, begin: Value, delta: Value) -> String {
    event("content_block_start", json!({"index": index, "content_block": begin}))
        + &event("content_block_delta", json!({"index": index, "delta": delta}))
        + &event("content_block_stop", json!({"index": index}))
}

fn text(index: usize, words: &str) -> String {
    block(index, json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": words}))
}

fn delta(reason: &str) -> String {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    event("message_delta", json!({"delta": delta, "usage": {"output_tokens": 9}}))
}

fn stop() -> String {
    event("message_stop", json!({}))
}

fn error(kind: &str) -> String {
    event("error", json!({"error": {"type": kind, "message": "the upstream's own words"}}))
}

fn stream(events: &[String]) -> Vec<u8> {
    format!("{EVENTS}{}", events.concat()).into_bytes()
}

/// A message of one user with further fields.
async fn ask(gateway: &Gateway, more: Value) -> Reply {
    let mut body =
        json!({"model": "mock", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    gateway.post("/v1/messages", body.to_string(), &[]).await
}

#[tokio::test]
async fn an_error_inside_a_stream_is_the_upstreams_failure_while_nothing_was_sent() {
    let first = |kind: &str| stream(&[error(kind)]);
    let openai = |error: Value| format!("{EVENTS}data: {}\n\n", json!({ "error": error })).into_bytes();
    // What the first upstream says, whether it speaks Anthropic's form, and how often it is asked.
    let cases = [
        ("its first event", first("overloaded_error"), true, 3),
        ("after its start", stream(&[start(), error("api_error")]), true, 3),
        ("before a window is whole", stream(&[start(), text(0, "A window"), error("api_error")]), true, 3),
        ("a rate limit", first("rate_limit_error"), true, 1),
        ("a kind that nobody knows", first("news_error"), true, 3),
        ("its first chunk", openai(json!({"message": "busy", "type": "server_error"})), false, 3),
        ("a status as code", openai(json!({"message": "busy", "code": 429})), false, 1),
        ("a word", openai(json!("busy")), false, 3),
    ];
    for (name, bytes, anthropic, calls) in cases {
        let broken = Wire::saying(bytes).await;
        let good = Wire::saying(format!("{EVENTS}{}{}{DONE}", says(SENTENCE), finish())).await;
        let table = if anthropic { claude(&broken, "first") } else { broken.upstream("first") };
        let retry = "max_concurrent = 1\n[retry]\nmax_retries = 2\npause_ms = 1\n";
        let gateway = Gateway::start(&format!("{table}{retry}"), &[]);
        let alone = gateway.ask_stream("hi").await;
        let code = if calls == 1 { "rate_limit_exceeded" } else { "upstream_unavailable" };
        assert_eq!(alone.stream_error(), code, "{name}: {}", alone.text);
        assert_eq!(broken.calls(), calls, "{name}: one call, and retries where they help");
        let record = gateway.record_of(&alone).await;
        assert_eq!((&record["decision"], &record["error"]), (&json!("failed"), &json!(code)), "{name}");
        assert_eq!(attempts(&record), vec![(Some(200), Some("status")); calls], "{name}");

        let gateway = Gateway::start(&format!("{table}{}{retry}", good.upstream("second")), &[]);
        let reply = gateway.ask_stream("hi").await;
        assert_eq!(reply.streamed(), SENTENCE, "{name}: {}", reply.text);
        assert!(reply.text.ends_with(DONE), "{name}: {}", reply.text);
        assert!(!reply.text.contains("A window") && !reply.text.contains("busy"), "{name}: {}", reply.text);
        let record = gateway.record_of(&reply).await;
        assert_eq!(record["decision"], "released", "{name}");
        assert_eq!(attempts(&record).last(), Some(&(Some(200), None)), "{name}");
        assert_eq!((broken.calls(), good.calls()), (2 * calls, 1), "{name}");
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_may_be_the_clients_or_come_too_late() {
    let good = Wire::saying(completion("nobody asks this one")).await;
    let cases = [
        ("invalid_request_error", "upstream_rejected", "the upstream's own words"),
        ("request_too_large", "upstream_rejected", "the upstream's own words"),
        ("authentication_error", "upstream_auth", "tell the operator"),
    ];
    for (kind, code, told) in cases {
        let wire = Wire::saying(stream(&[start(), error(kind)])).await;
        let config = format!("{}{}{ONCE}", claude(&wire, "first"), good.upstream("second"));
        let gateway = Gateway::start(&config, &[]);
        let reply = gateway.ask_stream("hi").await;
        assert_eq!(reply.stream_error(), code);
        assert!(reply.text.contains(told), "{}", reply.text);
    }
    // What was sent stays sent, and nobody can begin anew.
    let events = [start(), text(0, &SENTENCE.repeat(3)), text(1, SENTENCE), error("overloaded_error")];
    let wire = Wire::saying(stream(&events)).await;
    let gateway =
        Gateway::start(&format!("{}{}{ONCE}", claude(&wire, "first"), good.upstream("second")), &[]);
    let reply = gateway.ask_stream("hi").await;
    assert!(reply.streamed().starts_with(SENTENCE), "{}", reply.text);
    assert_eq!(reply.stream_error(), "upstream_unavailable");
    let record = gateway.record_of(&reply).await;
    assert_eq!(record["decision"], "incomplete");
    assert_eq!(record["choices"][0]["final_text"], reply.streamed());
    assert_eq!((wire.calls(), good.calls()), (1, 0));
    // Where nothing is held, the start alone is something that was sent.
    for (events, decision) in [
        (vec![error("overloaded_error")], "passthrough"),
        (vec![start(), error("overloaded_error")], "incomplete"),
    ] {
        let wire = Wire::saying(stream(&events)).await;
        let good = Wire::saying(format!("{EVENTS}{}{}{DONE}", says(SENTENCE), finish())).await;
        let tables = format!("{}{}", claude(&wire, "first"), good.upstream("second"));
        let gateway = Gateway::start(&format!("{tables}{ONCE}[waltz]\nenabled = false\n"), &[]);
        let reply = gateway.ask_stream("hi").await;
        assert_eq!(gateway.record_of(&reply).await["decision"], decision, "{}", reply.text);
        assert_eq!(good.calls(), usize::from(decision == "passthrough"));
    }
}

#[tokio::test]
async fn thinking_comes_before_the_text_and_calls_after_it() {
    let thinking = event(
        "content_block_start",
        json!({"index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
    ) + &event(
        "content_block_delta",
        json!({"index": 0, "delta": {"type": "thinking_delta", "thinking": "I look it up."}}),
    ) + &event(
        "content_block_delta",
        json!({"index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
    ) + &event("content_block_stop", json!({"index": 0}));
    let call = block(
        2,
        json!({"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}),
        json!({"type": "input_json_delta", "partial_json": "{\"place\":\"harbour\"}"}),
    );
    let wire =
        Wire::saying(stream(&[start(), thinking, text(1, SENTENCE), call, delta("tool_use"), stop()])).await;
    let gateway = Gateway::start(&claude(&wire, "main"), &[]);
    let reply = ask(&gateway, json!({"stream": true})).await;
    let begun: Vec<Value> = reply
        .chunks()
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| json!([event["index"], event["content_block"]["type"]]))
        .collect();
    assert_eq!(json!(begun), json!([[0, "thinking"], [1, "text"], [2, "tool_use"]]), "{}", reply.text);
    let reply = gateway.ask_stream("hi").await;
    let places = ["I look it up.", SENTENCE, "look_up"].map(|words| reply.text.find(&format!("\"{words}\"")));
    assert!(places[0].is_some() && places.is_sorted(), "{places:?}: {}", reply.text);
    // Thinking is judged as any text.
    let harm = "Step 1: gather the explosive materials for the bomb. Step 2: put them together. ";
    let begin = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thinking = block(0, begin, json!({"type": "thinking_delta", "thinking": harm}));
    let wire = Wire::saying(stream(&[start(), thinking, text(1, SENTENCE), delta("end_turn"), stop()])).await;
    let gateway = Gateway::start(&claude(&wire, "main"), &[]);
    let reply = ask(&gateway, json!({"stream": true})).await;
    for word in ["explosive", "Step 2", "thinking"] {
        assert!(!reply.text.contains(word), "{}", reply.text);
    }
    assert_eq!(gateway.record_of(&reply).await["decision"], "coached", "{}", reply.text);
}

#[tokio::test]
async fn tools_that_the_provider_runs_reach_no_upstream() {
    let wire = Wire::saying(completion("ok")).await;
    for table in [claude(&wire, "main"), wire.upstream("main")] {
        let gateway = Gateway::start(&table, &[]);
        for kind in ["web_search_20250305", "code_execution_20250825", "mcp_toolset", "news_20270101"] {
            let reply = ask(&gateway, json!({"tools": [{"type": kind, "name": "look"}]})).await;
            assert_eq!(reply.status, 400, "{}", reply.text);
            assert!(reply.text.contains(kind) && reply.text.contains("tools[0].type"), "{}", reply.text);
        }
    }
    assert_eq!(wire.calls(), 0);
    // A client of OpenAI cannot have them from an Anthropic upstream either.
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let wire = Wire::start(move |_, call| {
        sender.send(call.body).unwrap();
        async {}
    })
    .await;
    let gateway = Gateway::start(&format!("{}{ONCE}", claude(&wire, "main")), &[]);
    let tools =
        json!([{"type": "web_search_20250305", "name": "look"}, {"type": "bash_20250124", "name": "bash"}]);
    gateway.chat(json!({"tools": tools, "messages": [{"role": "user", "content": "hi"}]})).await;
    assert_eq!(asked.recv().await.unwrap()["tools"], json!([{"type": "bash_20250124", "name": "bash"}]));
}

#[tokio::test]
async fn what_is_anthropics_alone_reaches_an_anthropic_upstream_and_no_other() {
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let wire = Wire::start(move |_, call| {
        sender.send(call.body).unwrap();
        async {}
    })
    .await;
    let config = format!("{}{}{ONCE}", claude(&wire, "first"), wire.upstream("second"));
    let gateway = Gateway::start(&config, &[]);
    let mark = json!({"type": "ephemeral"});
    let thought = json!({"type": "thinking", "thinking": "I look.", "signature": "c2ln"});
    let call = json!({"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no such place",
        "cache_control": mark});
    let fields = json!({
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]},
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [result]},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low"},
        "tools": [{"name": "look", "input_schema": {"type": "object"}, "cache_control": mark}],
    });
    ask(&gateway, fields.clone()).await;
    let anthropic = asked.recv().await.unwrap();
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(anthropic[name], *value, "{name}");
    }
    let openai = asked.recv().await.unwrap();
    for word in ["thinking", "I look.", "output_config", "is_error", "cache_control", "c2ln"] {
        assert!(!openai.to_string().contains(word), "{word}: {openai}");
    }
    assert_eq!(openai["messages"][2]["content"], "[tool error] no such place");
}

#[tokio::test]
async fn a_stream_without_its_end_is_cut_and_its_tokens_are_counted() {
    let harm = "Step 1: gather the explosive materials. Step 2: assemble the bomb. ";
    let cases = [
        ("stopped", stream(&[start(), text(0, SENTENCE), text(1, harm), text(2, harm)]), (30, 1)),
        ("incomplete", stream(&[start(), text(0, SENTENCE), delta("end_turn")]), (30, 9)),
        ("incomplete", stream(&[start(), text(0, SENTENCE)]), (30, 1)),
        ("released", stream(&[start(), text(0, SENTENCE), delta("end_turn"), stop()]), (30, 9)),
    ];
    for (decision, bytes, (input, output)) in cases {
        let wire = Wire::saying(bytes).await;
        let gateway = Gateway::start(&format!("{}{ONCE}", claude(&wire, "main")), &[]);
        let reply = ask(&gateway, json!({"stream": true})).await;
        let record = gateway.record_of(&reply).await;
        assert_eq!(record["decision"], decision, "{}", reply.text);
        let told = (&record["usage"]["prompt_tokens"], &record["usage"]["completion_tokens"]);
        assert_eq!(told, (&json!(input), &json!(output)), "{decision}");
        let ends = reply.text.contains("message_stop");
        assert_eq!(ends, decision != "incomplete", "{}", reply.text);
        if ends {
            let events = reply.chunks();
            let last = events.iter().find(|event| event["type"] == "message_delta").unwrap();
            assert_eq!(last["usage"]["input_tokens"], input, "{decision}: {last}");
        } else {
            assert!(reply.text.contains("event: error"), "{}", reply.text);
        }
        // Only who asked for the tokens is told.
        for wish in [false, true] {
            let body = json!({"stream": true, "stream_options": {"include_usage": wish}, "messages": [{"role": "user", "content": "hi"}]});
            let reply = gateway.chat(body).await;
            let usages: Vec<Value> =
                reply.chunks().into_iter().filter(|chunk| chunk["usage"].is_object()).collect();
            assert_eq!(usages.len(), usize::from(wish && ends), "{decision}: {}", reply.text);
            assert!(usages.iter().all(|chunk| chunk["choices"] == json!([])), "{decision}: {}", reply.text);
        }
    }
}

#[tokio::test]
async fn a_message_that_says_nothing_is_refused_and_no_stop_sequence_is_lost() {
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let wire = Wire::start(move |_, call| {
        sender.send(call.body).unwrap();
        async {}
    })
    .await;
    let gateway = Gateway::start(&format!("{}{ONCE}", claude(&wire, "main")), &[]);
    for nothing in [json!(""), json!([]), json!(" \n"), json!([{"type": "text", "text": ""}])] {
        let reply = ask(&gateway, json!({"messages": [{"role": "user", "content": nothing}]})).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert!(reply.text.contains("messages[0].content"), "{}", reply.text);
    }
    assert_eq!(wire.calls(), 0);
    ask(&gateway, json!({"stop_sequences": ["\n\n", "END"]})).await;
    assert_eq!(asked.recv().await.unwrap()["stop_sequences"], json!(["\n\n", "END"]));
}

#[tokio::test]
async fn tokens_are_counted_by_an_upstream_of_the_form_and_by_nobody_else() {
    const COUNT: &str = "/v1/messages/count_tokens";
    let mock = Mock::start("");
    let config = format!(
        "{}models = [\"openai\", \"both\"]\n{}models = [\"claude\", \"both\"]\nprotocol = \"anthropic\"\nkey_env = \"CLAUDE_KEY\"\n{}",
        mock.upstream("first"),
        mock.upstream("second"),
        "[pii]\nrequest = \"mask\"\n",
    );
    let gateway = Gateway::start(&config, &[("CLAUDE_KEY", "the-key")]);
    let body = |model: &str| {
        json!({"model": model, "system": "Be very brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Write to ann@harbour.org today"}]}]})
    };
    for model in ["claude", "both"] {
        let reply = gateway.post(COUNT, body(model).to_string(), &[("x-api-key", "the-clients")]).await;
        assert_eq!((reply.status, reply.json()), (200, json!({"input_tokens": 7})), "{}", reply.text);
        assert_eq!(reply.header("x-waltz-decision"), "passthrough");
        let asked = mock.requests().await.pop().unwrap();
        assert_eq!(asked["path"], COUNT);
        assert_eq!(asked["headers"]["x-api-key"], "the-key");
        assert_eq!(asked["headers"]["anthropic-version"], "2023-06-01");
        assert_eq!(asked["body"]["model"], model);
        assert!(!asked["body"].to_string().contains("ann@"), "{asked}");
        let record = gateway.record_of(&reply).await;
        assert_eq!((&record["endpoint"], &record["decision"]), (&json!(COUNT), &json!("passthrough")));
        assert_eq!(record["attempts"][0]["purpose"], "count_tokens");
    }
    let calls = mock.requests().await.len();
    let no_messages = json!({"model": "claude"});
    for (body, status, kind, said) in [
        (body("openai"), 404, "not_found_error", "no upstream that serves it speaks Anthropic's form"),
        (body("nobody"), 404, "not_found_error", "does not exist here"),
        (no_messages, 400, "invalid_request_error", "`messages` must be an array"),
    ] {
        let reply = gateway.post(COUNT, body.to_string(), &[]).await;
        let told = reply.json();
        assert_eq!((reply.status, &told["type"]), (status, &json!("error")), "{told}");
        assert_eq!(told["error"]["type"], kind);
        assert!(told["error"]["message"].as_str().unwrap().contains(said), "{told}");
    }
    assert_eq!(mock.requests().await.len(), calls, "nobody is asked who cannot know");
}

#[tokio::test]
async fn models_and_unknown_paths_are_told_in_the_form_of_the_client() {
    let mock = Mock::start("");
    let digest = waltz_exchange::id::sha256_hex(b"key-1");
    let keys = format!("[[keys]]\nname = \"desk\"\nsha256 = \"{digest}\"\n");
    let gateway =
        Gateway::start(&format!("{}models = [\"one\", \"two\"]\n{keys}", mock.upstream("main")), &[]);
    let (key, version, bearer) =
        (("x-api-key", "key-1"), ("anthropic-version", "2023-06-01"), ("authorization", "Bearer key-1"));
    for headers in [vec![key], vec![key, version], vec![bearer, version]] {
        let listed = gateway.get("/v1/models", &headers).await.json();
        let model = |id: &str| json!({"type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z"});
        let all = json!({"data": [model("one"), model("two")], "has_more": false, "first_id": "one", "last_id": "two"});
        assert_eq!(listed, all, "{headers:?}");
        assert_eq!(gateway.get("/v1/models/two", &headers).await.json(), model("two"));
        for path in ["/v1/models/three", "/v1/complete", "/nowhere"] {
            let reply = gateway.get(path, &headers).await;
            assert_eq!(
                (reply.status, &reply.json()["type"]),
                (404, &json!("error")),
                "{path}: {}",
                reply.text
            );
            assert_eq!(reply.json()["error"]["type"], "not_found_error", "{path}");
        }
        let method = gateway.post("/v1/models", "{}", &headers).await;
        assert_eq!((method.status, &method.json()["type"]), (404, &json!("error")), "{}", method.text);
    }
    let stranger = gateway.get("/v1/models", &[("x-api-key", "wrong")]).await;
    let told = &stranger.json()["error"]["type"];
    assert_eq!((stranger.status, told), (401, &json!("authentication_error")), "{}", stranger.text);
    for headers in [vec![bearer], vec![bearer, key]] {
        let listed = gateway.get("/v1/models", &headers).await.json();
        assert_eq!((&listed["object"], &listed["data"][1]["owned_by"]), (&json!("list"), &json!("main")));
        assert_eq!(gateway.get("/v1/models/three", &headers).await.error_code(), "model_not_found");
        assert_eq!(gateway.get("/nowhere", &headers).await.error_code(), "unknown_url");
    }
    assert_eq!(gateway.get("/v1/models", &[]).await.error(), (401, "invalid_api_key".to_owned()));
}
