//! A scripted OpenAI-compatible upstream for trying things out and for tests: it can stream, stall, cut,
//! fail, be slow, malformed, echo, refuse or write unsafe text. It is no model.

pub(crate) mod script;
mod wire;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use script::{Asked, Reply, Script};

/// How many requests are remembered for `GET /_mock/requests`.
const REMEMBERED: usize = 10_000;

/// How long a connection that is to be cut has for what was said before.
const BEFORE_CUT: Duration = Duration::from_millis(20);

#[derive(Clone)]
struct Mock {
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<VecDeque<Value>>>,
}

/// Serves a script until the process ends.
pub(crate) async fn serve(listener: TcpListener, script: Script) -> std::io::Result<()> {
    let mock = Mock { script: Arc::new(Mutex::new(script)), seen: Arc::default() };
    let router = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(models))
        .route("/_mock/requests", get(requests))
        .with_state(mock);
    axum::serve(listener, router).await
}

async fn models() -> Response {
    json_response(
        &json!({"object": "list", "data": [{"id": "mock", "object": "model", "created": 0, "owned_by": "mock"}]}),
    )
}

/// What was asked so far, for tests: path, headers and body of each request.
async fn requests(State(mock): State<Mock>) -> Response {
    let seen = mock.seen.lock().unwrap_or_else(PoisonError::into_inner);
    json_response(&Value::Array(seen.iter().cloned().collect()))
}

async fn embeddings(State(mock): State<Mock>, request: Request) -> Response {
    let body = mock.note("/v1/embeddings", request).await;
    json_response(&wire::embeddings(&body))
}

async fn count_tokens(State(mock): State<Mock>, request: Request) -> Response {
    let body = mock.note("/v1/messages/count_tokens", request).await;
    json_response(&json!({"input_tokens": wire::words(&body["system"]) + wire::words(&body["messages"])}))
}

async fn chat(State(mock): State<Mock>, request: Request) -> Response {
    let body = mock.note("/v1/chat/completions", request).await;
    let asked = Asked::new(&body);
    let reply = mock.script.lock().unwrap_or_else(PoisonError::into_inner).next(&asked);
    if reply.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    }
    let mut response = if let Some(raw) = &reply.raw {
        pieces(vec![raw.clone()], &reply)
    } else if reply.status != 200 {
        let error = json!({"error": {"message": "scripted failure", "type": "mock_error", "param": null, "code": "scripted"}});
        json_response(&error)
    } else if asked.stream {
        let mut response = pieces(wire::frames(&reply, &asked, &body), &reply);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        response
    } else {
        let text = wire::completion(&reply, &asked, &body).to_string();
        match reply.cut_after {
            None => json_response_text(text),
            Some(_) => {
                let middle =
                    (text.len() / 2..).find(|position| text.is_char_boundary(*position)).unwrap_or(0);
                pieces(
                    vec![text[..middle].to_owned(), text[middle..].to_owned()],
                    &Reply { cut_after: Some(1), ..reply.clone() },
                )
            }
        }
    };
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

impl Mock {
    async fn note(&self, path: &str, request: Request) -> Value {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let headers: serde_json::Map<String, Value> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
            .collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() == REMEMBERED {
            seen.pop_front();
        }
        seen.push_back(json!({"path": path, "headers": headers, "body": body.clone()}));
        body
    }
}

/// A body of pieces: paced, cut off or stalled as the reply says.
fn pieces(pieces: Vec<String>, reply: &Reply) -> Response {
    let pace = Duration::from_millis(reply.chunk_delay_ms);
    let (cut, stall) = (reply.cut_after, reply.stall_after);
    let body = stream::unfold((VecDeque::from(pieces), 0_u32), move |(mut left, sent)| async move {
        if stall == Some(sent) {
            std::future::pending::<()>().await;
        }
        if cut == Some(sent) {
            // An error takes what was not yet written along with it.
            tokio::time::sleep(BEFORE_CUT).await;
            let broken = std::io::Error::other("scripted cut");
            return Some((Err(broken), (VecDeque::new(), u32::MAX)));
        }
        let piece = left.pop_front()?;
        if sent > 0 && !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        Some((Ok::<_, std::io::Error>(Bytes::from(piece)), (left, sent + 1)))
    });
    Response::new(Body::from_stream(body))
}

fn json_response(value: &Value) -> Response {
    json_response_text(value.to_string())
}

fn json_response_text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Starts the mock on a free loopback port inside this process and returns its address.
pub(crate) async fn start_inside() -> std::io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        if let Err(error) = serve(listener, Script::builtin()).await {
            tracing::error!(error = %error, "the built-in mock upstream stopped");
        }
    });
    Ok(format!("http://{address}/v1"))
}
