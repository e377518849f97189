//! The same request twice: one exchange, one answer.

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply, client};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn body(path: &str, stream: bool, prompt: &str) -> String {
    let mut body =
        json!({"model": "mock", "stream": stream, "messages": [{"role": "user", "content": prompt}]});
    if path == MESSAGES {
        body["max_tokens"] = json!(100);
    }
    body.to_string()
}

/// Exchanges on record.
async fn exchanges(gateway: &Gateway) -> u64 {
    gateway.drain().await;
    let list = gateway.get("/waltz/v1/sessions?limit=100", &[]).await.json();
    let sessions = list["data"].as_array().unwrap();
    sessions.iter().map(|session| session["exchanges"].as_u64().unwrap()).sum()
}

fn assert_same(first: &Reply, other: &Reply) {
    assert_eq!((first.status, &first.text), (other.status, &other.text));
    for name in ["x-request-id", "x-waltz-session-id", "content-type", "x-waltz-decision"] {
        assert_eq!(first.header(name), other.header(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F26_idempotency() {
    for path in [CHAT, MESSAGES] {
        for stream in [false, true] {
            // Slow enough that all requests are there before the answer is.
            let mock = Mock::start(
                "[[reply]]\ndelay_ms = 500\nchunk_delay_ms = 5\ntext = \"One answer. For all of them.\"\n",
            );
            let gateway = Gateway::over(&mock, "");
            let request = body(path, stream, "hello");
            let key = [("idempotency-key", "order-66")];
            let calls = (0..8).map(|_| gateway.post(path, request.clone(), &key));
            let mut replies = futures_util::future::join_all(calls).await;
            replies.push(gateway.post(path, request.clone(), &key).await);
            for reply in &replies {
                assert_eq!(reply.status, 200, "{}", reply.text);
                assert!(
                    reply.text.contains(if stream { "answer" } else { "One answer. For all of them." }),
                    "{}",
                    reply.text
                );
                assert_same(&replies[0], reply);
            }
            let replayed =
                replies.iter().filter(|reply| reply.header("idempotent-replayed") == "true").count();
            assert_eq!(replayed, 8, "all but the first say so");
            assert_eq!(mock.requests().await.len(), 1, "{path} stream {stream}: one draft");
            assert_eq!(exchanges(&gateway).await, 1, "{path} stream {stream}: one record");

            // Another request under the same key is a mistake of the client.
            let other = gateway.post(path, body(path, stream, "something else"), &key).await;
            assert_eq!(other.status, 422, "{}", other.text);
            if path == CHAT {
                assert_eq!(other.error_code(), "idempotency_key_reused");
            } else {
                assert_eq!(other.json()["type"], "error");
                assert_eq!(other.json()["error"]["type"], "invalid_request_error");
            }
            assert_eq!(mock.requests().await.len(), 1);
            // No key and another key are requests of their own.
            assert_eq!(gateway.post(path, request.clone(), &[]).await.header("idempotent-replayed"), "");
            assert_eq!(gateway.post(path, request, &[("idempotency-key", "order-67")]).await.status, 200);
            assert_eq!(mock.requests().await.len(), 3);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hung_up_gets_its_answer_when_it_comes_again() {
    let mock = Mock::start("[[reply]]\ndelay_ms = 300\nchunk_delay_ms = 5\ntext = \"Worth waiting for.\"\n");
    let gateway = Gateway::over(&mock, "");
    for (count, stream) in [(1, false), (2, true)] {
        let key = format!("retry-{count}");
        let call = client()
            .post(format!("{}{CHAT}", gateway.url))
            .header("idempotency-key", &key)
            .body(body(CHAT, stream, "hello"))
            .send();
        let call = tokio::spawn(call);
        while mock.requests().await.len() < count {
            tokio::task::yield_now().await;
        }
        call.abort();
        assert!(call.await.is_err(), "it hung up before the answer");
        let again = gateway.post(CHAT, body(CHAT, stream, "hello"), &[("idempotency-key", &key)]).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
        let text = if stream { again.streamed() } else { again.content() };
        assert_eq!(text, "Worth waiting for.");
        assert_eq!(mock.requests().await.len(), count);
        assert_eq!(exchanges(&gateway).await, count as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_failed_and_answers_of_others_are_not_given_again() {
    let script = "[[reply]]\ntimes = 1\nstatus = 500\n[[reply]]\ntimes = 1\nstatus = 429\n\
                  [[reply]]\ntimes = 1\ncut_after = 2\n[[reply]]\ntext = \"Fine.\"\n";
    let mock = Mock::start(script);
    let digest = |key: &str| waltz_exchange::id::sha256_hex(key.as_bytes());
    let keys = format!(
        "[retry]\nmax_retries = 0\n[[keys]]\nname = \"one\"\nsha256 = \"{}\"\n[[keys]]\nname = \"two\"\nsha256 = \"{}\"\n",
        digest("key-1"),
        digest("key-2")
    );
    let gateway = Gateway::over(&mock, &keys);
    let one = [("authorization", "Bearer key-1"), ("idempotency-key", "same")];
    let two = [("authorization", "Bearer key-2"), ("idempotency-key", "same")];
    assert_eq!(gateway.post(CHAT, body(CHAT, false, "hi"), &one).await.status, 502);
    assert_eq!(gateway.post(CHAT, body(CHAT, false, "hi"), &one).await.status, 429);
    let cut = gateway.post(CHAT, body(CHAT, true, "hi"), &[one[0], ("idempotency-key", "cut")]).await;
    assert!(!cut.text.contains("[DONE]"), "{}", cut.text);
    let whole = gateway.post(CHAT, body(CHAT, true, "hi"), &[one[0], ("idempotency-key", "cut")]).await;
    assert!(whole.text.ends_with("data: [DONE]\n\n"), "{}", whole.text);
    let first = gateway.post(CHAT, body(CHAT, false, "hi"), &one).await;
    assert_eq!((first.status, first.content().as_str()), (200, "Fine."));
    assert_eq!(mock.requests().await.len(), 5);
    // Another tenant's key of the same name is another key.
    let other = gateway.post(CHAT, body(CHAT, false, "hi"), &two).await;
    assert_eq!((other.status, other.header("idempotent-replayed")), (200, ""));
    assert_ne!(first.header("x-request-id"), other.header("x-request-id"));
    assert_eq!(mock.requests().await.len(), 6);
    assert_same(&first, &gateway.post(CHAT, body(CHAT, false, "hi"), &one).await);
    // What the request itself is to blame for stays as it is.
    let bad: Value = json!({"model": "mock", "messages": "hi"});
    let invalid = [one[0], ("idempotency-key", "bad")];
    let refused = gateway.post(CHAT, bad.to_string(), &invalid).await;
    assert_eq!(refused.status, 400);
    assert_same(&refused, &gateway.post(CHAT, bad.to_string(), &invalid).await);
    let long = "k".repeat(256);
    let reply = gateway.post(CHAT, body(CHAT, false, "hi"), &[one[0], ("idempotency-key", &long)]).await;
    assert_eq!((reply.status, reply.error_code().as_str()), (400, "invalid_idempotency_key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_let_go_after_their_time() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "[idempotency]\nkeep_ms = 1\n");
    let key = [("idempotency-key", "soon-gone")];
    let first = gateway.post(CHAT, body(CHAT, false, "hi"), &key).await;
    let mut again = gateway.post(CHAT, body(CHAT, false, "hi"), &key).await;
    while again.header("x-request-id") == first.header("x-request-id") {
        again = gateway.post(CHAT, body(CHAT, false, "hi"), &key).await;
    }
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, ""));
}
