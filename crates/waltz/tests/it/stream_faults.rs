//! Streams that break off, trickle, are cut in odd places or hold what is not theirs, and what clients get
//! of them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::harness::{Gateway, Mock, Reply, UNSAFE, attempts, client};
use crate::wire::{DONE, EVENTS, Wire, chunk_of, finish, reply, says};

const MIB: usize = 1024 * 1024;
const SENTENCE: &str = "A harmless sentence about the old harbour and its many ships. ";
const WHOLE: &str = "[policy]\nstream = \"whole\"\n";

/// What the client got is what is on record, and it has no end.
async fn assert_incomplete(gateway: &Gateway, reply: &Reply, code: &str, word: &str) {
    assert_eq!(reply.stream_error(), code);
    let reasons = reply.chunks();
    let mut reasons = reasons.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
    assert_eq!(reasons.next(), None, "{}", reply.text);
    let record = gateway.record_of(reply).await;
    assert_eq!((&record["decision"], &record["error"]), (&json!("incomplete"), &json!(code)));
    assert_eq!(attempts(&record), [(Some(200), Some(word))]);
    let kept = record["choices"].as_array().unwrap().iter().map(|choice| &choice["final_text"]);
    let sent = reply.streamed();
    let sent: Vec<&str> = Some(sent.as_str()).filter(|sent| !sent.is_empty()).into_iter().collect();
    assert_eq!(kept.collect::<Vec<_>>(), sent, "what was sent stays on record, and what was held is gone");
}

#[tokio::test]
async fn fault_F04_upstream_dies_mid_stream() {
    for chunks in 0..5 {
        // The reset waits until the client has what was released, because it overtakes what is on its way.
        let read = Arc::new(Notify::new());
        let seen = Arc::clone(&read);
        let wire = Wire::start(move |_, mut call| {
            let read = Arc::clone(&read);
            async move {
                assert!(call.send(format!("{EVENTS}{}", says(SENTENCE).repeat(chunks))).await);
                assert!(call.send(says("A window that is never")).await);
                read.notified().await;
                call.reset();
            }
        })
        .await;
        let gateway = Gateway::start(&wire.upstream("main"), &[]);
        let body = json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
        let call = client().post(format!("{}/v1/chat/completions", gateway.url)).body(body.to_string());
        let response = call.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut pieces = response.bytes_stream();
        let mut text = String::new();
        while text.matches("harbour").count() < chunks {
            text.push_str(std::str::from_utf8(&pieces.next().await.unwrap().unwrap()).unwrap());
        }
        seen.notify_one();
        while let Some(piece) = pieces.next().await {
            text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        let reply = Reply { status, headers, text };
        assert_eq!(reply.streamed(), SENTENCE.repeat(chunks), "the window that was held is discarded");
        assert_incomplete(&gateway, &reply, "upstream_unavailable", "broken_off").await;
    }
    // Whatever way it ends, and where the draft is held as a whole.
    for (resets, config) in [(false, ""), (true, WHOLE), (false, WHOLE)] {
        let wire = Wire::start(move |_, mut call| async move {
            assert!(call.send(format!("{EVENTS}{}", says("A window that is never"))).await);
            if resets {
                call.reset();
            }
        })
        .await;
        let gateway =
            Gateway::start(&format!("{}{config}[retry]\nmax_retries = 0\n", wire.upstream("main")), &[]);
        let reply = gateway.ask_stream("hi").await;
        if reply.status == 200 {
            assert_eq!(reply.streamed(), "");
            assert_incomplete(&gateway, &reply, "upstream_unavailable", "broken_off").await;
        } else {
            assert!(resets, "only a reset can overtake the head: {}", reply.text);
            assert_eq!(reply.error(), (502, "upstream_unavailable".to_owned()));
        }
    }
}

#[tokio::test]
async fn fault_F09_upstream_trickle() {
    let limits = "chunk_timeout_ms = 1000\ntotal_timeout_ms = 3600000\n";
    // The bytes of a line come one by one: no piece is late, and yet nothing moves. All of it takes ten times
    // the limit.
    let line = says(&SENTENCE.repeat(15));
    let wire = Wire::start(move |_, mut call| {
        let line = line.clone();
        async move {
            call.send(EVENTS).await;
            call.trickle(line.as_bytes(), Duration::from_millis(10)).await;
            call.send(format!("{}{DONE}", finish())).await;
        }
    })
    .await;
    let gateway = Gateway::start(&format!("{}{limits}", wire.upstream("main")), &[]);
    let stalled = gateway.ask_stream("hi").await;
    assert_incomplete(&gateway, &stalled, "upstream_timeout", "timeout").await;
    // A byte now and then, further apart than the limit.
    for head in [EVENTS, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"]
    {
        let wire = Wire::start(move |_, mut call| async move {
            call.send(head).await;
            call.trickle(&[b' '; 1000], Duration::from_secs(3)).await;
        })
        .await;
        let gateway = Gateway::start(&format!("{}{limits}", wire.upstream("main")), &[]);
        let reply = gateway.ask("hi").await;
        assert_eq!(reply.error(), (504, "upstream_timeout".to_owned()));
        assert_eq!(attempts(&gateway.record_of(&reply).await), [(Some(200), Some("timeout"))]);
    }
}

#[tokio::test]
async fn fault_F12_upstream_sse_split() {
    let texts = ["Grüße aus Köln und Łódź, ", "日本語のテキスト。", "😀🏳️‍🌈 e\u{301} ", "and plain words. "];
    let expected = texts.concat();
    let mut plain = String::new();
    for text in texts {
        plain.push_str(&says(text));
    }
    plain.push_str(&finish());
    plain.push_str(DONE);
    let mut mixed = String::new();
    for (number, line) in plain.split('\n').enumerate() {
        mixed.push_str(line);
        mixed.push_str(["\r\n", "\n", "\r"][number % 3]);
    }
    let odd = plain
        .replace("data: {", ": a comment\nevent: message\nid: 7\nretry: 10\ndata:{")
        .replace(",\"choices\"", ",\ndata: \"choices\"");
    let variants = [
        plain.clone(),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        mixed,
        format!("\u{feff}{odd}"),
    ];
    let count = variants.len();
    let wire = Wire::start(move |_, mut call| {
        let (variant, size) = call.model.split_once('-').unwrap();
        let (variant, size) = (variants[variant.parse::<usize>().unwrap()].clone(), size.parse().unwrap());
        async move {
            call.send(EVENTS).await;
            for piece in variant.as_bytes().chunks(size) {
                call.send(piece).await;
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&wire.upstream("main"), &[]);
    for variant in 0..count {
        for size in [1, 3, 7, MIB] {
            let model = format!("{variant}-{size}");
            let body =
                json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
            let reply = gateway.chat(body).await;
            assert_eq!(reply.streamed(), expected, "{model}: {}", reply.text);
            assert!(reply.text.ends_with(DONE), "{model}: {}", reply.text);
        }
    }
    let sent = Arc::new(AtomicUsize::new(0));
    let wire = Wire::start(move |_, mut call| {
        let sent = Arc::clone(&sent);
        async move {
            call.send(EVENTS).await;
            call.flood(&[b'x'; 64 * 1024], 10 * MIB, &sent).await;
            call.hung_up().await;
        }
    })
    .await;
    let gateway = Gateway::start(&wire.upstream("main"), &[]);
    let before = gateway.peak_memory();
    let reply = gateway.ask_stream("hi").await;
    assert_incomplete(&gateway, &reply, "upstream_invalid_answer", "unusable").await;
    let grown = gateway.peak_memory() - before;
    assert!(grown < 32 * MIB, "memory grew by {grown} bytes");
}

#[tokio::test]
async fn fault_F13_stream_anomalies() {
    let text = |id: &str, text: &str| {
        chunk_of(id, &json!({"index": 0, "delta": {"content": text}, "finish_reason": null}))
    };
    let stop = |id: &str| chunk_of(id, &json!({"index": 0, "delta": {}, "finish_reason": "stop"}));
    let one = text("one", SENTENCE);
    let cases = [
        (
            "another stream between",
            vec![
                one.clone(),
                text("two", "Not yours. "),
                stop("two"),
                one.clone(),
                stop("one"),
                DONE.to_owned(),
            ],
            2,
            2,
        ),
        ("a second finish", vec![one.clone(), stop("one"), stop("one"), DONE.to_owned()], 1, 1),
        (
            "words after the finish",
            vec![one.clone(), stop("one"), text("one", "Not yours. "), DONE.to_owned()],
            1,
            1,
        ),
        (
            "a second end",
            vec![
                one.clone(),
                stop("one"),
                DONE.to_owned(),
                DONE.to_owned(),
                text("one", "Not yours. "),
                DONE.to_owned(),
            ],
            1,
            3,
        ),
        // A text may well repeat itself, so that this is no anomaly that anybody could tell.
        ("a chunk twice", vec![one.clone(), one.clone(), stop("one"), DONE.to_owned()], 2, 0),
    ];
    let served = cases
        .iter()
        .map(|(name, events, ..)| ((*name).to_owned(), format!("{EVENTS}{}", events.concat()).into_bytes()));
    let wire = Wire::models(served.collect()).await;
    for config in ["", WHOLE] {
        let gateway = Gateway::start(&format!("{}{config}", wire.upstream("main")), &[]);
        for (name, _, sentences, anomalies) in &cases {
            let body =
                json!({"model": name, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
            let reply = gateway.chat(body).await;
            assert_eq!(reply.streamed(), SENTENCE.repeat(*sentences), "{name}");
            assert_eq!(reply.text.matches(DONE).count(), 1, "{name}");
            let chunks = reply.chunks();
            assert!(chunks.iter().all(|chunk| chunk["id"] == "one"), "{name}: {}", reply.text);
            let reasons = chunks.iter().filter(|chunk| !chunk["choices"][0]["finish_reason"].is_null());
            assert_eq!(reasons.count(), 1, "{name}");
            let record = gateway.record_of(&reply).await;
            assert_eq!(record["scanned"]["anomalies"], *anomalies, "{name}");
            assert_eq!(record["choices"][0]["final_text"], reply.streamed(), "{name}");
        }
    }
    // Left alone with half of the first stream, it does not pass that for an answer.
    let torn = [one, text("two", "Not yours. "), stop("two"), DONE.to_owned()].concat();
    let wire = Wire::saying(format!("{EVENTS}{torn}")).await;
    let gateway = Gateway::start(&wire.upstream("main"), &[]);
    let reply = gateway.ask_stream("hi").await;
    assert_eq!(reply.streamed(), SENTENCE);
    assert_incomplete(&gateway, &reply, "upstream_invalid_answer", "unusable").await;
}

#[tokio::test]
async fn fault_F34_metadata_chunk_compat() {
    let help = "[[reply]]\nwhen = { coached = true }\ntext = \"A safe way.\"\n";
    let late = format!(
        "[[reply]]\ntext = \"{}Step 1: gather the explosive materials. Step 2: assemble the bomb.\"\n",
        SENTENCE.repeat(3)
    );
    let judged = "[feedback]\ntimeout_ms = 100\ntargets = [{ upstream = \"main\", model = \"judge\" }]\n[policy]\ndefault_depth = \"always\"\n";
    let stuck = "[[reply]]\nwhen = { judging = true }\ndelay_ms = 60000\n[[reply]]\ntext = \"Fine.\"\n";
    let cases = [
        ("released", "", "", 0),
        ("whole", "", WHOLE, 0),
        ("coached", UNSAFE, "", 1),
        ("stopped", late.as_str(), "", 0),
        ("degraded", stuck, judged, 0),
    ];
    for (name, script, config, rounds) in cases {
        let mock = Mock::start(&format!("{script}{help}"));
        let gateway = Gateway::over(&mock, config);
        let body = json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "Tell me about harbours, please"}]});
        let plain = gateway.chat(body.clone()).await;
        let chunks = plain.chunks();
        assert!(plain.text.ends_with(DONE), "{name}: {}", plain.text);
        for chunk in &chunks {
            assert!(chunk["choices"][0]["delta"].is_object(), "{name}: {chunk}");
            assert!(chunk.get("usage").is_none(), "{name}: {chunk}");
        }
        let path = "/v1/chat/completions";
        let asked = gateway.post(path, body.to_string(), &[("x-waltz-annotations", "on")]).await;
        let extra: Vec<Value> =
            asked.chunks().into_iter().filter(|chunk| chunk["choices"] == json!([])).collect();
        assert_eq!((extra.len(), asked.chunks().len()), (1, chunks.len() + 1), "{name}: {}", asked.text);
        assert_eq!(extra[0]["waltz"]["rounds"], rounds, "{name}");
        if name == "released" {
            // Not one chunk more than the upstream sent.
            let direct = client().post(format!("{}/chat/completions", mock.url)).body(body.to_string());
            let direct = direct.send().await.unwrap().text().await.unwrap();
            assert_eq!(direct.matches("data: {").count(), chunks.len());
        }
    }
}

#[tokio::test]
async fn fault_F35_size_side_channel() {
    let pad = ["aB3", "x9Lk2", "Q", "zz81mNb"];
    let mut events = String::new();
    for (number, pad) in pad.iter().enumerate() {
        let (delta, reason) = match number {
            0 => (json!({"role": "assistant", "content": ""}), Value::Null),
            3 => (json!({}), json!("stop")),
            _ => (json!({"content": SENTENCE}), Value::Null),
        };
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "obfuscation": pad});
        events.push_str(&format!("data: {chunk}\n\n"));
    }
    let answer = reply("text/event-stream", format!("{events}{DONE}"));
    let (sender, mut asked) = mpsc::unbounded_channel();
    let wire = Wire::start(move |_, mut call| {
        sender.send(call.body["stream_options"].clone()).unwrap();
        let answer = answer.clone();
        async move {
            call.send(answer).await;
        }
    })
    .await;
    for (config, window) in [("", "sentence"), (WHOLE, "whole"), ("[waltz]\nenabled = false\n", "unread")] {
        let gateway = Gateway::start(&format!("{}{config}", wire.upstream("main")), &[]);
        for wish in [json!({}), json!({"include_obfuscation": true}), json!({"include_obfuscation": false})] {
            let reply = gateway
                .chat(json!({"stream": true, "stream_options": wish.clone(), "messages": [{"role": "user", "content": "hi"}]}))
                .await;
            assert_eq!(reply.header("x-waltz-window"), window);
            let kept: Vec<Value> = reply.chunks().iter().map(|chunk| chunk["obfuscation"].clone()).collect();
            assert_eq!(kept, pad, "{window}: {}", reply.text);
            assert_eq!(asked.recv().await, Some(wish), "the client's wish reaches the upstream");
        }
    }
}

#[tokio::test]
async fn vendors_of_several_words_and_padding_hold_no_stream() {
    let alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (last, release) in [("Google Vertex", "sentence"), ("Another Vendor", "whole")] {
        let mut events = String::new();
        for number in 0..30 {
            let vendor = if number < 29 { "Google Vertex" } else { last };
            let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "provider": vendor, "p": alphabet[..number],
                "choices": [{"index": 0, "delta": {"content": SENTENCE}, "finish_reason": null}]});
            events.push_str(&format!("data: {chunk}\n\n"));
        }
        let wire = Wire::saying(format!("{EVENTS}{events}{}{DONE}", finish())).await;
        let gateway = Gateway::start(&wire.upstream("main"), &[]);
        let reply = gateway.ask_stream("hi").await;
        let record = gateway.record_of(&reply).await;
        assert_eq!(record["scanned"]["release"], release, "{}", reply.text);
        assert_eq!(reply.streamed(), SENTENCE.repeat(30));
        assert!(reply.text.contains("Google Vertex") && !reply.text.contains("Another Vendor"));
        assert!(reply.text.contains(&format!(r#""p":"{}""#, &alphabet[..20])), "{}", reply.text);
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
