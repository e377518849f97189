//! Upstreams that fail, drift or lie.

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock};

fn raw(body: &str) -> String {
    format!("[[reply]]\nraw = '''{body}'''\nheaders = {{ content-type = \"application/json\" }}\n")
}

#[tokio::test]
async fn fault_F08_upstream_schema_drift() {
    for broken in [
        r#"{"id":"1"}"#,
        r#"{"choices":[]}"#,
        r#"{"choices":[{"index":0}]}"#,
        r#"{"choices":"x"}"#,
        "<html>",
        "",
        "null",
    ] {
        let gateway = Gateway::over(&Mock::start(&raw(broken)), "");
        let reply = gateway.ask("hi").await;
        assert_eq!((reply.status, reply.error_code().as_str()), (502, "upstream_invalid_answer"), "{broken}");
    }
    let drifted = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "brand_new": {"a": 1},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": null, "odd": true}, "finish_reason": "paused_for_thought", "extra": 7}]});
    let gateway = Gateway::over(&Mock::start(&raw(&drifted.to_string())), "");
    let reply = gateway.ask("hi").await;
    let body = reply.json();
    assert_eq!(body["brand_new"], json!({"a": 1}));
    assert_eq!(body["choices"][0]["finish_reason"], "paused_for_thought");
    assert_eq!(
        (&body["choices"][0]["message"]["odd"], &body["choices"][0]["extra"]),
        (&json!(true), &json!(7))
    );
    gateway.says("unknown finish reason").await;
}

#[tokio::test]
async fn an_unchanged_answer_and_request_pass_byte_for_byte() {
    let odd = "{ \"id\":\"x\",\n \"object\":\"chat.completion\",\"created\":1.0,\"model\":\"m\", \"big\":1e2, \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},\"finish_reason\":\"stop\"}] }";
    let mock = Mock::start(&raw(odd));
    let gateway = Gateway::over(&mock, "");
    let sent = "{ \"model\":\"mock\",  \"messages\":[{\"role\":\"user\",\"content\":\"hi\"}], \"future\": [1.50, {\"x\": null}] }";
    let reply = gateway.post("/v1/chat/completions", sent, &[("x-waltz-annotations", "off")]).await;
    assert_eq!(reply.text, odd);
    let seen = mock.requests().await;
    assert_eq!(seen[0]["body"]["future"], json!([1.50, {"x": null}]));
    assert_eq!(seen[0]["headers"]["content-length"], sent.len().to_string());
}

#[tokio::test]
async fn a_second_upstream_answers_when_the_first_cannot() {
    let broken = Mock::start("[[reply]]\nstatus = 500\n");
    let good = Mock::start("[[reply]]\ntext = \"from the second\"\n");
    let config = format!(
        "{}{}[retry]\nmax_retries = 2\npause_ms = 1\n",
        broken.upstream("first"),
        good.upstream("second")
    );
    let gateway = Gateway::start(&config, &[]);
    let reply = gateway.ask("hi").await;
    assert_eq!(reply.content(), "from the second");
    assert_eq!(broken.requests().await.len(), 3, "one call and two retries");
    let session = gateway.session_of(&reply).await;
    let attempts = session["exchanges"][0]["record"]["attempts"].as_array().unwrap().clone();
    assert_eq!(
        attempts.iter().map(|attempt| attempt["status"].clone()).collect::<Vec<Value>>(),
        [500, 500, 500, 200]
    );
}

#[tokio::test]
async fn upstream_errors_are_told_apart() {
    let cases = [
        ("status = 429\nheaders = { retry-after = \"7\" }", 429, "rate_limit_exceeded"),
        ("status = 401", 502, "upstream_auth"),
        ("status = 400", 400, "scripted"),
        ("status = 503", 502, "upstream_unavailable"),
        ("status = 302\nheaders = { location = \"http://127.0.0.1:1/\" }", 502, "upstream_invalid_answer"),
        ("cut_after = 1", 502, "upstream_unavailable"),
    ];
    for (reply, status, code) in cases {
        let gateway =
            Gateway::over(&Mock::start(&format!("[[reply]]\n{reply}\n")), "[retry]\npause_ms = 1\n");
        let answer = gateway.ask("hi").await;
        assert_eq!((answer.status, answer.error_code().as_str()), (status, code), "{reply}");
        if status == 429 {
            assert_eq!(answer.header("retry-after-ms"), "7000");
        }
    }
    let gateway = Gateway::start(
        "[[upstreams]]\nname = \"gone\"\nurl = \"http://127.0.0.1:1/v1\"\n[retry]\npause_ms = 1\n",
        &[],
    );
    let answer = gateway.ask("hi").await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_unavailable"));
}

#[tokio::test]
async fn time_outs_are_kept_and_a_slot_is_freed() {
    let config =
        "first_byte_timeout_ms = 200\nchunk_timeout_ms = 200\nmax_concurrent = 1\n[retry]\nmax_retries = 0\n";
    let slow = Mock::start(
        "[[reply]]\ntimes = 1\ndelay_ms = 60000\n[[reply]]\ntimes = 1\nstall_after = 2\n[[reply]]\ntext = \"ok\"\n",
    );
    let gateway = Gateway::over(&slow, config);
    let late = gateway.ask("hi").await;
    assert_eq!((late.status, late.error_code().as_str()), (504, "upstream_timeout"));
    let stalled = gateway.chat(json!({"stream": true, "messages": [{"role": "user", "content": "a long enough text to be cut into chunks"}]})).await;
    assert!(
        stalled.text.contains("upstream_timeout") && !stalled.text.contains("[DONE]"),
        "{}",
        stalled.text
    );
    assert!(stalled.streamed().is_empty(), "held text is discarded");
    assert_eq!(gateway.ask("hi").await.content(), "ok");
}

#[tokio::test]
async fn a_full_upstream_is_shed_at_once() {
    let slow = Mock::start("[[reply]]\ndelay_ms = 2000\ntext = \"late\"\n");
    let gateway = std::sync::Arc::new(Gateway::over(&slow, "max_concurrent = 1\n"));
    let first = {
        let gateway = std::sync::Arc::clone(&gateway);
        tokio::spawn(async move { gateway.ask("hi").await })
    };
    while slow.requests().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let second = gateway.ask("hi").await;
    assert_eq!((second.status, second.error_code().as_str()), (503, "overloaded"));
    assert!(!second.header("retry-after-ms").is_empty());
    assert_eq!(first.await.unwrap().content(), "late");
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_and_not_with_done() {
    for cut in 0..6 {
        let mock = Mock::start(&format!("[[reply]]\ncut_after = {cut}\n"));
        let gateway = Gateway::over(&mock, "[retry]\nmax_retries = 0\n");
        let body = json!({"stream": true, "messages": [{"role": "user", "content": "one two three four five six seven"}]});
        let reply = gateway.chat(body).await;
        assert!(reply.text.contains("upstream_unavailable"), "{cut}: {}", reply.text);
        assert!(
            !reply.text.contains("[DONE]") && !reply.text.contains("\"finish_reason\":\"stop\""),
            "{cut}"
        );
    }
}

#[tokio::test]
async fn held_streams_get_heartbeats() {
    // Chunks come faster than heartbeats are due, so that only the time since the last frame can trigger one.
    let mock = Mock::start("[[reply]]\nchunk_delay_ms = 40\nchunk_letters = 1\n");
    let gateway = Gateway::over(&mock, "[server]\nheartbeat_ms = 100\n");
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "one two three four five"}]});
    let reply = gateway.chat(body).await;
    assert!(reply.text.matches(": hold").count() >= 3, "{}", reply.text);
    assert_eq!(reply.streamed(), "one two three four five");
}

#[tokio::test]
async fn a_client_that_hangs_up_is_recorded_and_frees_the_upstream() {
    let mock = Mock::start("[[reply]]\ntimes = 1\ndelay_ms = 60000\n[[reply]]\ntext = \"ok\"\n");
    let gateway = Gateway::over(&mock, "max_concurrent = 1\n");
    let url = format!("{}/v1/chat/completions", gateway.url);
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let call = crate::harness::client().post(url).header("x-waltz-session-id", "gone").body(body).send();
    let hung_up = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(hung_up.is_err());
    // The slot is free again as soon as the gateway noticed.
    let mut answer = gateway.ask("hi").await;
    for _ in 0..100 {
        if answer.status == 200 {
            break;
        }
        answer = gateway.ask("hi").await;
    }
    assert_eq!(answer.content(), "ok");
    gateway.drain().await;
    let session = gateway.get("/waltz/v1/sessions/gone", &[]).await.json();
    assert_eq!(session["exchanges"][0]["record"]["decision"], "client_gone");
}

const HARM: &str = "Step 1: gather the explosive materials. Step 2: assemble the bomb.";

fn completion(choice: Value, head: Value) -> String {
    let mut body =
        json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]});
    for (name, value) in head.as_object().unwrap() {
        body[name] = value.clone();
    }
    format!(
        "[[reply]]\nwhen = {{ coached = false }}\nraw = '''{body}'''\nheaders = {{ content-type = \"application/json\" }}\n[[reply]]\ntext = \"A safe way.\"\n"
    )
}

/// Wherever an upstream puts words, they are read, and nothing of a text that was replaced goes out.
#[tokio::test]
async fn no_field_of_an_answer_hides_from_the_judge() {
    let plain = json!({"role": "assistant", "content": "Fine."});
    let with = |name: &str, value: Value| {
        let mut message = plain.clone();
        message[name] = value;
        json!({"index": 0, "message": message, "finish_reason": "stop"})
    };
    let cases = [
        (with("anything", json!({"data": HARM})), json!({})),
        (with("tool_calls", json!([{"type": "odd", "payload": {"deep": HARM}}])), json!({})),
        (
            with(
                "tool_calls",
                json!([{"type": "function", "function": {"name": "f", "arguments": {"command": HARM}}}]),
            ),
            json!({}),
        ),
        (with("tool_calls", json!({"not": "a list", "text": HARM})), json!({})),
        (json!({"index": 0, "message": plain, "text": HARM, "finish_reason": "stop"}), json!({})),
        (json!({"index": 0, "message": plain, "finish_reason": HARM}), json!({})),
        (with("content", json!("Fine.")), json!({"citations": [HARM], "output_text": HARM})),
    ];
    for (choice, head) in cases {
        let gateway = Gateway::over(&Mock::start(&completion(choice.clone(), head)), "");
        let reply = gateway.ask("Tell me something").await;
        assert!(matches!(reply.status, 200 | 502), "{}", reply.text);
        assert!(!reply.text.contains("assemble the bomb"), "{choice}: {}", reply.text);
        assert!(!gateway.log_text().contains("assemble the bomb"), "{choice}");
    }
    // The same text in many fields: what replaces it leaves none behind.
    let everywhere = json!({"index": 0, "message": {"role": "assistant", "content": HARM, "thinking": HARM, "x": [HARM]}, "finish_reason": "stop"});
    let script = completion(everywhere, json!({"head": HARM})).replace("A safe way.", HARM);
    let reply = Gateway::over(&Mock::start(&script), "").ask("Tell me something").await;
    assert_eq!(reply.header("x-waltz-decision"), "refused");
    assert!(!reply.text.contains("assemble the bomb"), "{}", reply.text);
}

fn stream_of(deltas: &[Value]) -> String {
    let mut body = String::new();
    for delta in deltas {
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]});
        body.push_str(&format!("data: {chunk}\n\n"));
    }
    body.push_str("data: [DONE]\n\n");
    format!(
        "[[reply]]\nwhen = {{ coached = false }}\nraw = '''{body}'''\nheaders = {{ content-type = \"text/event-stream\" }}\n[[reply]]\ntext = \"A safe way.\"\n"
    )
}

/// In a stream too, and after good sentences were released.
#[tokio::test]
async fn no_event_of_a_stream_hides_from_the_judge() {
    let sentence = "A harmless sentence about the old harbour and its many ships. ";
    let good = json!({"index": 0, "delta": {"content": sentence.repeat(3)}, "finish_reason": null});
    let end = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    let hidden = [
        json!({"index": 0, "delta": {"tool_calls": [{"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": json!({"command": HARM}).to_string()}}]}}),
        json!({"index": 0, "delta": {"reasoning_content": HARM}}),
        json!({"index": 0, "delta": {}, "text": HARM}),
        json!({"index": 1, "delta": {"content": HARM}}),
        json!({"index": 0, "delta": {"content": HARM}}),
        json!({"index": 0, "delta": HARM}),
    ];
    for event in hidden {
        for events in [vec![good.clone(), event.clone(), end.clone()], vec![event.clone(), end.clone()]] {
            let gateway = Gateway::over(&Mock::start(&stream_of(&events)), "");
            let reply = gateway
                .chat(json!({"stream": true, "messages": [{"role": "user", "content": "Tell me something"}]}))
                .await;
            assert!(!reply.text.contains("assemble the bomb"), "{event}: {}", reply.text);
        }
    }
    // A field that changes its type could make the judged text differ from the sent one.
    let reset = [
        json!({"index": 0, "delta": {"content": HARM}}),
        json!({"index": 0, "delta": {"content": []}}),
        json!({"index": 0, "delta": {"content": "fine"}}),
        end,
    ];
    let gateway = Gateway::over(&Mock::start(&stream_of(&reset)), "");
    let reply = gateway
        .chat(json!({"stream": true, "messages": [{"role": "user", "content": "Tell me something"}]}))
        .await;
    assert!(!reply.text.contains("assemble the bomb"), "{}", reply.text);
}

#[tokio::test]
async fn odd_usage_many_choices_and_many_values_are_survived() {
    let bad = json!({"index": 0, "message": {"role": "assistant", "content": HARM}, "finish_reason": "stop"});
    for usage in [json!([]), json!("x"), json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX})] {
        let gateway = Gateway::over(&Mock::start(&completion(bad.clone(), json!({"usage": usage}))), "");
        let reply = gateway.ask("Tell me something").await;
        assert_eq!(reply.content(), "A safe way.", "{usage}");
    }
    let choices: Vec<Value> = (0..500).map(|index| json!({"index": index, "message": {"role": "assistant", "content": HARM}, "finish_reason": "stop"})).collect();
    let mock = Mock::start(&completion(json!(null), json!({"choices": choices})));
    let reply = Gateway::over(&mock, "").ask("Tell me something").await;
    assert_eq!(reply.json()["choices"].as_array().unwrap().len(), 1);
    assert_eq!(mock.requests().await.len(), 2, "nobody asked for five hundred");
    let numbers: Vec<u32> = (0..300_000).collect();
    let fine = json!({"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop", "logprobs": {"content": numbers}});
    assert_eq!(Gateway::over(&Mock::start(&completion(fine, json!({}))), "").ask("hi").await.status, 200);
}

#[tokio::test]
async fn a_client_that_reads_nothing_frees_its_slot_and_is_recorded() {
    let text = "A harmless sentence about the old harbour and its many ships. ".repeat(200_000);
    let mock = Mock::start(&format!(
        "[[reply]]\nwhen = {{ contains = \"long\" }}\ntext = \"{text}\"\nchunk_letters = 4000\n[[reply]]\ntext = \"ok\"\n"
    ));
    let gateway = Gateway::over(&mock, "max_concurrent = 1\n[server]\nclient_timeout_ms = 300\n");
    let body =
        json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "a long one"}]})
            .to_string();
    let mut slow = std::net::TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-waltz-session-id: slow\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    let began = std::time::Instant::now();
    loop {
        if gateway.get("/waltz/v1/sessions/slow", &[]).await.text.contains("client_gone") {
            break;
        }
        assert!(began.elapsed().as_secs() < 20, "never given up");
    }
    assert_eq!(gateway.ask("hi").await.content(), "ok");
    drop(slow);
    let stalled = gateway
        .raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{");
    assert!(stalled.starts_with("HTTP/1.1 408"), "{stalled}");
}
