//! Upstreams whose every byte a test decides, for faults that the mock cannot have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A listener that hands each call to a test. It ends with the test.
pub struct Wire {
    /// Its address with `/v1`.
    pub url: String,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// One call of the gateway, with the connection to answer it on.
pub struct Call {
    pub body: Value,
    /// The model that is asked for; tests name their cases by it.
    pub model: String,
    stream: TcpStream,
}

pub const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

impl Wire {
    /// Answers calls with `answer`, which is told how many came before.
    pub async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(usize, Call) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let call = Call::read(stream).await;
                tokio::spawn(answer(number, call));
            }
        });
        Self { url, calls, task }
    }

    /// Answers with the bytes of the model that is asked for, and closes.
    pub async fn models(cases: Vec<(String, Vec<u8>)>) -> Self {
        let cases: Arc<HashMap<String, Vec<u8>>> = Arc::new(cases.into_iter().collect());
        Self::start(move |_, mut call| {
            let cases = Arc::clone(&cases);
            async move {
                call.send(&cases[&call.model]).await;
            }
        })
        .await
    }

    /// Answers the harness's usual model with the same bytes every time, and closes.
    pub async fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        Self::models(vec![("mock".to_owned(), bytes.into())]).await
    }

    /// How many connections were made.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// An upstream table for a configuration.
    pub fn upstream(&self, name: &str) -> String {
        format!("[[upstreams]]\nname = \"{name}\"\nurl = \"{}\"\n", self.url)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Call {
    async fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            let mut block = [0; 16 * 1024];
            let count = stream.read(&mut block).await.unwrap();
            assert_ne!(count, 0, "the gateway hung up before it had asked");
            bytes.extend_from_slice(&block[..count]);
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().trim().parse().unwrap();
        let mut body = bytes[end..].to_vec();
        let read = body.len();
        body.resize(length, 0);
        stream.read_exact(&mut body[read..]).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let model = body["model"].as_str().unwrap().to_owned();
        Self { body, model, stream }
    }

    /// Sends bytes; whether the gateway still takes them.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Sends a block again and again, and counts the bytes in `sent`, until so many went or the gateway hangs up.
    pub async fn flood(&mut self, block: &[u8], most: usize, sent: &AtomicUsize) {
        let mut total = 0;
        while total < most && self.send(block).await {
            total += block.len();
            sent.fetch_add(block.len(), Ordering::SeqCst);
        }
    }

    /// Sends bytes one by one, with a pause after each, until the gateway hangs up.
    pub async fn trickle(&mut self, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            if !self.send([*byte]).await {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until the gateway hangs up.
    pub async fn hung_up(&mut self) {
        while self.stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    }

    /// Ends the connection with a reset rather than an orderly close.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

/// A whole HTTP answer.
pub fn reply(content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A JSON answer with a text.
pub fn completion(text: &str) -> Vec<u8> {
    let message = json!({"role": "assistant", "content": text});
    let body = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    reply("application/json", body.to_string())
}

/// A favourable opinion, if `call` asks for one.
pub fn opinion(call: &Call) -> Vec<u8> {
    let material: Value =
        serde_json::from_str(call.body["messages"][1]["content"].as_str().unwrap()).unwrap();
    let opinion = json!({"nonce": material["nonce"], "reasoning": "fine", "unsafe": false, "overrefuse": false, "feedback": ""});
    completion(&opinion.to_string())
}

/// A chunk of a stream with an id.
pub fn chunk_of(id: &str, choice: &Value) -> String {
    let chunk =
        json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

/// A chunk that adds a text.
pub fn says(text: &str) -> String {
    chunk_of("x", &json!({"index": 0, "delta": {"content": text}, "finish_reason": null}))
}

/// The chunk that finishes a stream.
pub fn finish() -> String {
    chunk_of("x", &json!({"index": 0, "delta": {}, "finish_reason": "stop"}))
}

pub const DONE: &str = "data: [DONE]\n\n";
