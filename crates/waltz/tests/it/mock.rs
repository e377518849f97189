//! The scripted upstream breaks connections as its page says.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::harness::{Gateway, Mock, attempts};

/// Everything that the mock sends before it breaks the connection.
fn sent(mock: &Mock, stream: bool) -> String {
    let address = mock.url.trim_start_matches("http://").trim_end_matches("/v1");
    let messages = [json!({"role": "user", "content": "hi"})];
    let body = json!({"model": "mock", "stream": stream, "messages": messages}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).ok();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn what_comes_before_a_cut_is_sent() {
    let text = "One two three four five.";
    let script = |more: &str| format!("[[reply]]\ntext = \"{text}\"\nchunk_letters = 4\n{more}\n");
    for pace in ["", "chunk_delay_ms = 5"] {
        let mock = Mock::start(&script(&format!("cut_after = 3\n{pace}")));
        let whole = sent(&mock, false);
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{pace}: {whole:?}");
        assert!(whole.contains("{\"id\":") && !whole.contains("completion_tokens"), "{pace}: {whole:?}");
        let streamed = sent(&mock, true);
        assert_eq!(streamed.matches("data: {").count(), 3, "{pace}: {streamed:?}");
        assert!(!streamed.contains("[DONE]") && !streamed.contains("\r\n0\r\n"), "{pace}: {streamed:?}");
    }
    let at_once = sent(&Mock::start(&script("cut_after = 0")), true);
    assert!(at_once.starts_with("HTTP/1.1 200 OK\r\n") && !at_once.contains("data:"), "{at_once:?}");
}

#[tokio::test]
async fn a_gateway_sees_that_the_answer_broke_off() {
    let mock = Mock::start("[[reply]]\ntext = \"One two three.\"\ncut_after = 2\n");
    let gateway = Gateway::over(&mock, "[retry]\nmax_retries = 0\n");
    for stream in [false, true] {
        let reply = if stream { gateway.ask_stream("hi").await } else { gateway.ask("hi").await };
        let code = if stream { reply.stream_error() } else { reply.error_code() };
        assert_eq!(code, "upstream_unavailable", "{}", reply.text);
        let record = gateway.record_of(&reply).await;
        assert_eq!(attempts(&record), [(Some(200), Some("broken_off"))], "stream {stream}");
    }
}
