//! What upstreams put into answers and streams: read wherever it stands, and passed on unchanged where it may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, attempts};
use crate::wire::{self, Call, EVENTS, Wire, reply, says};

const MIB: usize = 1024 * 1024;

/// A script that answers with a body as it is.
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

/// Sends a body of a gigabyte, or as much of it as the gateway takes.
async fn gigabyte(mut call: Call, head: &str, block: &str, sent: &AtomicUsize) {
    call.send(head).await;
    call.flood(block.repeat(MIB / block.len()).as_bytes(), 1024 * MIB, sent).await;
}

#[tokio::test]
async fn fault_F07_upstream_garbage() {
    let answer = String::from_utf8(wire::completion("fine")).unwrap();
    let fine = &answer[answer.find('{').unwrap()..];
    let mut latin = fine.replace("fine", "f\u{1}ne").into_bytes();
    latin.iter_mut().filter(|byte| **byte == 1).for_each(|byte| *byte = 0xff);
    let json = "application/json";
    let cases = [
        ("html", reply("text/html", "<html><body>Bad gateway</body></html>")),
        ("html-as-json", reply(json, "<html>")),
        ("plain", reply("text/plain", fine)),
        ("image", reply("image/png", fine)),
        ("utf8", reply(json, latin.clone())),
        ("utf8-stream", reply("text/event-stream", [b"data: ", latin.as_slice(), b"\n\n"].concat())),
        ("nan", reply(json, fine.replace(":1,", ":NaN,"))),
        ("twice", reply(json, fine.replace("\"id\":\"x\"", "\"id\":\"x\",\"id\":\"y\""))),
        ("gzip", reply("application/json\r\ncontent-encoding: gzip", [0x1f, 0x8b, 8, 0, 0, 0])),
    ];
    let names = cases.each_ref().map(|(name, _)| *name);
    let wire = Wire::models(cases.map(|(name, bytes)| (name.to_owned(), bytes)).into()).await;
    let gateway = Gateway::start(&wire.upstream("main"), &[]);
    for name in names {
        let body = json!({"model": name, "messages": [{"role": "user", "content": "hi"}]});
        let reply = gateway.chat(body).await;
        assert_eq!(reply.error(), (502, "upstream_invalid_answer".to_owned()), "{name}");
        assert!(!reply.text.contains("fine") && !reply.text.contains("<html"), "{name}: {}", reply.text);
        let record = gateway.record_of(&reply).await;
        assert_eq!(attempts(&record).len(), 1, "{name}: the same answer would come again");
        assert_eq!(attempts(&record)[0].1, Some("unusable"), "{name}");
    }
    // A content type in other letters and with parameters is not wrong.
    let wire = Wire::saying(reply("Application/JSON; charset=utf-8", fine)).await;
    assert_eq!(Gateway::start(&wire.upstream("main"), &[]).ask("hi").await.content(), "fine");
}

#[tokio::test]
async fn fault_F07_a_body_of_a_gigabyte() {
    let sent = Arc::new(AtomicUsize::new(0));
    let length =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n{\"a\":\"";
    let words = "words without end, and no line among them ";
    let cases = [
        ("length", length.to_owned(), words.to_owned(), 502),
        ("unbounded", length.replace("content-length", "x-length"), words.to_owned(), 502),
        ("stream", EVENTS.to_owned(), says(words), 502),
        ("error", length.replace("200 OK", "500 Oh"), words.to_owned(), 502),
        ("limit", length.replace("200 OK", "429 Oh"), words.to_owned(), 429),
    ];
    let (served, count) = (cases.clone(), Arc::clone(&sent));
    let wire = Wire::start(move |_, call| {
        let (_, head, block, _) = served.iter().find(|(name, ..)| *name == call.model).unwrap().clone();
        let count = Arc::clone(&count);
        async move { gigabyte(call, &head, &block, &count).await }
    })
    .await;
    let config = format!("{}max_answer_bytes = {MIB}\n[retry]\nmax_retries = 0\n", wire.upstream("main"));
    let gateway = Gateway::start(&config, &[]);
    gateway.chat(json!({"model": "error", "messages": [{"role": "user", "content": "hi"}]})).await;
    let before = gateway.peak_memory();
    for (name, _, _, status) in cases {
        sent.store(0, Ordering::SeqCst);
        let reply =
            gateway.chat(json!({"model": name, "messages": [{"role": "user", "content": "hi"}]})).await;
        assert_eq!(reply.error().0, status, "{name}");
        let taken = sent.load(Ordering::SeqCst);
        // What the two kernels buffer is taken too; it is a few megabytes at most.
        assert!(taken < 64 * MIB, "{name}: {taken} bytes were taken");
    }
    let grown = gateway.peak_memory() - before;
    assert!(grown < 32 * MIB, "memory grew by {grown} bytes");
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
        (with(HARM, json!(1)), json!({})),
        (with("content", json!("Fine.")), json!({"system_fingerprint": HARM})),
        (with("content", json!("Fine.")), json!({"service_tier": HARM})),
        (with("content", json!("Fine.")), json!({"id": HARM})),
        (with("content", json!("Fine.")), json!({"model": HARM})),
        (
            with("content", json!("Fine.")),
            json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1, "note": HARM}}),
        ),
        (with("content", json!("Fine.")), json!({"usage": {HARM: 1}})),
        (with("content", json!("Fine.")), json!({"extra": [{HARM: 1}]})),
        (
            json!({"index": 0, "message": plain, "logprobs": {"content": tokens(HARM)}, "finish_reason": "stop"}),
            json!({}),
        ),
    ];
    for (choice, head) in cases {
        let gateway = Gateway::over(&Mock::start(&completion(choice.clone(), head.clone())), "");
        let reply = gateway.ask("Tell me something").await;
        assert!(matches!(reply.status, 200 | 502), "{}", reply.text);
        assert!(!reply.text.contains("bomb"), "{choice} {head}: {}", reply.text);
        assert!(!gateway.log_text().contains("assemble the bomb"), "{choice}");
        let asked = json!({"model": "mock", "max_tokens": 100, "messages": [{"role": "user", "content": "Tell me something"}]});
        let reply = gateway.post("/v1/messages", asked.to_string(), &[]).await;
        assert!(!reply.text.contains("bomb"), "{choice} {head}: {}", reply.text);
    }
    // The same text in many fields: what replaces it leaves none behind.
    let everywhere = json!({"index": 0, "message": {"role": "assistant", "content": HARM, "thinking": HARM, "x": [HARM], HARM: 1},
        "finish_reason": "stop", "logprobs": {"content": tokens(HARM)}});
    let usage =
        json!({"prompt_tokens": 3, "completion_tokens": 4, "details": {"note": HARM, "cached": 1}, HARM: 1});
    let head =
        json!({"head": HARM, "system_fingerprint": HARM, "service_tier": "default", "usage": usage, HARM: 1});
    for (revised, decision) in [(HARM, "refused"), ("A safe way.", "coached")] {
        let script = completion(everywhere.clone(), head.clone()).replace("A safe way.", revised);
        let reply = Gateway::over(&Mock::start(&script), "").ask("Tell me something").await;
        assert_eq!(reply.header("x-waltz-decision"), decision);
        assert!(!reply.text.contains("bomb"), "{}", reply.text);
        let body = reply.json();
        assert_eq!(
            (&body["service_tier"], &body["usage"]["details"]),
            (&json!("default"), &json!({"cached": 1}))
        );
    }
}

/// Log-probabilities that spell a text.
fn tokens(text: &str) -> Vec<Value> {
    text.split_inclusive(' ')
        .map(|token| json!({"token": token, "logprob": -0.1, "bytes": null, "top_logprobs": []}))
        .collect()
}

/// What stands around the choices is read in streams too, in every event, and after good sentences were released.
#[tokio::test]
async fn no_field_around_the_choices_of_a_stream_hides_from_the_judge() {
    let sentence = "A harmless sentence about the old harbour and its many ships. ";
    let chunk = |choices: Value, more: Value| {
        let mut chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices});
        chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("data: {chunk}\n\n")
    };
    let says = |text: &str, more: Value| {
        chunk(json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]), more)
    };
    let end = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), json!({}));
    let spelt =
        HARM.split(' ').map(|word| says(sentence, json!({"system_fingerprint": word}))).collect::<String>();
    let good = says(&sentence.repeat(3), json!({}));
    let mut cases = vec![format!("{good}{spelt}{end}"), format!("{spelt}{end}")];
    for more in [
        json!({"system_fingerprint": HARM}),
        json!({"service_tier": HARM}),
        json!({"provider": {HARM: 1}}),
        json!({"usage": {"note": HARM}}),
        json!({"citations": [HARM]}),
        json!({HARM: true}),
    ] {
        cases.push(format!("{good}{}{end}", says(sentence, more.clone())));
        cases.push(format!("{}{good}{end}", says(sentence, more.clone())));
        cases.push(format!("{good}{end}{}", chunk(json!([]), more)));
    }
    for body in cases {
        let script = format!(
            "[[reply]]\nwhen = {{ coached = false }}\nraw = '''{body}data: [DONE]\n\n'''\nheaders = {{ content-type = \"text/event-stream\" }}\n[[reply]]\ntext = \"A safe way.\"\n"
        );
        let gateway = Gateway::over(&Mock::start(&script), "");
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let asked = json!({"model": "mock", "stream": true, "max_tokens": 100, "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": "Tell me something"}]});
            let mut asked = asked.clone();
            if path == "/v1/messages" {
                asked.as_object_mut().unwrap().remove("stream_options");
            }
            let reply = gateway.post(path, asked.to_string(), &[]).await;
            assert!(!reply.text.contains("bomb"), "{body}: {}", reply.text);
        }
    }
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
async fn nothing_personal_is_kept_in_a_name_that_somebody_else_chose() {
    let refusal = raw(r#"{"error": {"message": "m", "code": "ann@harbour.com"}}"#) + "status = 400\n";
    let mock = Mock::start(&refusal);
    for policy in ["masked", "none"] {
        let gateway = Gateway::over(&mock, &format!("[record]\ntext = \"{policy}\"\n"));
        let body = json!({"model": "bob@harbour.com", "messages": [{"role": "user", "content": "hi"}]});
        let parent = format!("01-{}-{}-01-carol@harbour.com", "a".repeat(32), "b".repeat(16));
        let headers = [("traceparent", parent.as_str())];
        let reply = gateway.post("/v1/chat/completions", body.to_string(), &headers).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        let record = gateway.record_of(&reply).await;
        assert!(!record.to_string().contains("harbour.com"), "{policy}: {record}");
        assert_eq!(record["model"], "[EMAIL]");
        assert_eq!(record["traceparent"], parent[..55]);
        assert!(!gateway.log_text().contains("harbour.com"), "{}", gateway.log_text());
    }
}
