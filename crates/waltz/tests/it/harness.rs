//! Starts mocks and gateways and talks to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub const BINARY: &str = env!("CARGO_BIN_EXE_waltz");

/// How long a process may take to say its address; far more than it needs.
const START: Duration = Duration::from_secs(30);

/// A running mock upstream; it runs as long as any handle to it, a gateway's included.
#[derive(Clone)]
pub struct Mock {
    /// Its address with `/v1`.
    pub url: String,
    _process: Arc<MockProcess>,
}

struct MockProcess {
    child: Child,
    _script: TempDir,
}

/// Levels 0 and 1 alone, for tests of what follows from a verdict and not of the verdict itself.
pub const WITHOUT_LEVEL_2: &str = "[judge]\nencoder = false\nneural = \"off\"\n";

/// A running gateway.
pub struct Gateway {
    pub child: Child,
    /// Its address without a path.
    pub url: String,
    /// What it wrote to standard error.
    pub log: Arc<Mutex<Vec<String>>>,
    pub folder: Arc<TempDir>,
    mock: Option<Mock>,
}

/// A reply of a gateway.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Mock {
    pub fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script.toml");
        std::fs::write(&file, script).unwrap();
        let mut child = Command::new(BINARY)
            .args(["mock", "--listen", "127.0.0.1:0", "--script"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://"), "the mock did not start: {url:?}");
        let process = MockProcess { child, _script: folder };
        Self { url: url.trim().to_owned(), _process: Arc::new(process) }
    }

    /// Every request it got.
    pub async fn requests(&self) -> Vec<Value> {
        let root = self.url.trim_end_matches("/v1");
        let text = client().get(format!("{root}/_mock/requests")).send().await.unwrap().text().await.unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// An upstream table for a configuration.
    pub fn upstream(&self, name: &str) -> String {
        format!("[[upstreams]]\nname = \"{name}\"\nurl = \"{}\"\n", self.url)
    }
}

impl Drop for MockProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What becomes of a gateway's log once it has started.
#[derive(Clone, Copy, PartialEq)]
enum Log {
    Kept,
    Closed,
}

impl Gateway {
    /// A gateway over one mock with further configuration.
    pub fn over(mock: &Mock, config: &str) -> Self {
        let mut gateway = Self::start(&format!("{}{config}", mock.upstream("main")), &[]);
        gateway.mock = Some(mock.clone());
        gateway
    }

    pub fn start(config: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), config, environment)
    }

    /// A gateway in a folder that may hold data already.
    pub fn start_in(folder: Arc<TempDir>, config: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_at("127.0.0.1:0", folder, config, environment)
    }

    pub fn start_at(listen: &str, folder: Arc<TempDir>, config: &str, environment: &[(&str, &str)]) -> Self {
        Self::launch(&["--listen", listen], folder, config, environment, Log::Kept)
    }

    /// A gateway whose log nobody reads any more once it has started: what it writes there fails.
    pub fn start_unheard(config: &str, environment: &[(&str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::launch(&["--listen", "127.0.0.1:0"], folder, config, environment, Log::Closed)
    }

    /// A gateway with further options.
    pub fn start_with(options: &[&str], config: &str, environment: &[(&str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let options = [options, &["--listen", "127.0.0.1:0"]].concat();
        Self::launch(&options, folder, config, environment, Log::Kept)
    }

    fn launch(
        options: &[&str],
        folder: Arc<TempDir>,
        config: &str,
        environment: &[(&str, &str)],
        after_start: Log,
    ) -> Self {
        let file = folder.path().join("waltz.toml");
        std::fs::write(&file, config).unwrap();
        let mut child = Command::new(BINARY)
            .arg("serve")
            .args(options)
            .arg("--config")
            .arg(&file)
            .arg("--data")
            .arg(folder.path().join("data"))
            .env_remove("OPENAI_API_KEY")
            .env_remove("WALTZ_MODELS")
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (sender, address) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(rest) = line.strip_prefix("waltz is listening on ") {
                    let url = rest.split("/v1").next().unwrap_or_default().replace("0.0.0.0", "127.0.0.1");
                    sender.send(url).ok();
                    if after_start == Log::Closed {
                        return;
                    }
                }
                kept.lock().unwrap().push(line);
            }
        });
        let url = match address.recv_timeout(START) {
            Ok(url) => url,
            Err(_) => panic!("the gateway did not start: {:?}", log.lock().unwrap()),
        };
        Self { child, url, log, folder, mock: None }
    }

    pub fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>, headers: &[(&str, &str)]) -> Reply {
        let mut request = client().post(format!("{}{path}", self.url)).body(body);
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = client().get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.send().await.unwrap()).await
    }

    /// A chat request with one user message.
    pub async fn ask(&self, prompt: &str) -> Reply {
        self.chat(json!({"messages": [{"role": "user", "content": prompt}]})).await
    }

    /// A chat request; the model is filled in.
    pub async fn chat(&self, mut body: Value) -> Reply {
        if body.get("model").is_none() {
            body["model"] = json!("mock");
        }
        self.post("/v1/chat/completions", body.to_string(), &[]).await
    }

    /// A streamed chat request with one user message.
    pub async fn ask_stream(&self, prompt: &str) -> Reply {
        self.chat(json!({"stream": true, "messages": [{"role": "user", "content": prompt}]})).await
    }

    /// The session that a reply belongs to, as the store holds it.
    pub async fn session_of(&self, reply: &Reply) -> Value {
        self.drain().await;
        let id = reply.header("x-waltz-session-id");
        let session = self.get(&format!("/waltz/v1/sessions/{id}"), &[]).await;
        assert_eq!(session.status, 200, "{}", session.text);
        session.json()
    }

    /// The record of a reply; there is exactly one.
    pub async fn record_of(&self, reply: &Reply) -> Value {
        let session = self.session_of(reply).await;
        let exchanges = session["exchanges"].as_array().unwrap();
        assert_eq!(exchanges.len(), 1, "{session}");
        exchanges[0]["record"].clone()
    }

    /// The most memory that the process ever had, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Waits until the journal is in the database: a question for an unknown session does that.
    pub async fn drain(&self) {
        assert_eq!(self.get("/waltz/v1/sessions/nobody", &[]).await.status, 404);
    }

    /// Sends bytes as they are and returns what comes back until the connection closes or goes quiet.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        stream.write_all(bytes).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The memory that it holds now.
    pub fn resident_bytes(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Asks it to stop and returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        self.child.wait().unwrap().code()
    }

    /// Waits until it says something, and forgets what it said so far, which is returned.
    pub async fn says(&self, wanted: &str) -> String {
        let began = Instant::now();
        while !self.log_text().contains(wanted) {
            assert!(began.elapsed() < Duration::from_secs(20), "never said {wanted:?}: {}", self.log_text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::mem::take(&mut *self.log.lock().unwrap()).join("\n")
    }

    pub fn log_text(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The id to report an outcome by.
    pub fn response_id(&self) -> String {
        let id = self.header("x-waltz-response-id");
        assert!(id.starts_with("resp_"), "{:?}", self.headers);
        id.to_owned()
    }

    /// The text of the first choice.
    pub fn content(&self) -> String {
        let body = self.json();
        body["choices"][0]["message"]["content"]
            .as_str()
            .unwrap_or_else(|| panic!("no content: {body}"))
            .to_owned()
    }

    /// The texts of a stream, put together.
    pub fn streamed(&self) -> String {
        let chunks = self.chunks();
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
    }

    /// The chunks of a stream.
    pub fn chunks(&self) -> Vec<Value> {
        let mut chunks = Vec::new();
        for event in self.text.split("\n\n") {
            let lines: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            let data = lines.join("\n");
            if !data.is_empty() && data != "[DONE]" {
                chunks.push(serde_json::from_str(&data).unwrap());
            }
        }
        chunks
    }

    /// The code of the error that a stream ended with, in place of `[DONE]`.
    pub fn stream_error(&self) -> String {
        assert!(!self.text.contains("[DONE]"), "{}", self.text);
        let last = self.chunks().pop().unwrap_or_else(|| panic!("no chunks: {}", self.text));
        last["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {}", self.text)).to_owned()
    }

    /// Status and code of an error that tells nothing about the gateway's inside or where its upstreams are.
    pub fn error(&self) -> (u16, String) {
        for word in ["127.0.0.1", "localhost", "os error", "panicked", "backtrace", ".rs:"] {
            assert!(!self.text.contains(word), "{word}: {}", self.text);
        }
        (self.status, self.error_code())
    }

    pub fn error_code(&self) -> String {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error: {body}"));
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"], "{body}");
        assert!(self.header("x-request-id").starts_with("req_"));
        error["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// What came of each call upstream that a record knows: its status, and what went wrong.
pub fn attempts(record: &Value) -> Vec<(Option<u64>, Option<&str>)> {
    let attempts = record["attempts"].as_array().unwrap();
    attempts.iter().map(|attempt| (attempt["status"].as_u64(), attempt["error"].as_str())).collect()
}

/// A client of its own for each call: connections belong to the runtime of one test.
pub fn client() -> reqwest::Client {
    waltz_model::connection::install_tls();
    reqwest::Client::builder().tls_certs_only([]).build().unwrap()
}

async fn read(response: reqwest::Response) -> Reply {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.unwrap_or_default();
    Reply { status, headers, text }
}

/// Runs the program and returns its exit code, standard output and standard error.
pub fn run(
    arguments: &[&str],
    input: &str,
    folder: &Path,
    environment: &[(&str, &str)],
) -> (i32, String, String) {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_DATA_HOME")
        .env_remove("WALTZ_MODELS")
        .env_remove("OPENAI_API_KEY")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// One request as it arrived: headers and body.
pub async fn receive(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if read == 0 || body.len() >= length.parse().unwrap() {
                let (head, body) = (head.to_owned(), body.to_owned());
                let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(reply.as_bytes()).await.unwrap();
                return (head, body);
            }
        }
    }
}

pub const UNSAFE: &str = "[[reply]]\nwhen = { coached = false }\nstyle = \"unsafe\"\n";
pub const REFUSE: &str = "[[reply]]\nwhen = { coached = false }\nstyle = \"refuse\"\n";
/// A fragment of the mock's unsafe text that no reply may hold.
pub const UNSAFE_FRAGMENT: &str = "Step 2";
