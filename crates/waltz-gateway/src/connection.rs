//! One connection: it is given up when its peer sends no whole header in time, takes nothing of what is
//! written, or leaves an HTTP/2 window shut, so that nobody can hold memory for ever. Each runs on its own
//! tracked task, started by the listener.

mod paced;
mod patient;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::HOST;
use http::{HeaderValue, Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;

use crate::live::Gateway;
use crate::router::answer;
use paced::{Paced, Untaken};
use patient::Patient;

/// Room for 64 KiB of request headers and the request line, as clients of this interface expect.
const MAX_HEADER_BYTES: usize = 72 * 1024;

/// How long a connection that is given up has to tell its peer so.
const GOODBYE: Duration = Duration::from_secs(1);

/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A request whose `Host` is what it really asks for: HTTP/2 and whole addresses name the host in the address, and that
/// one counts.
fn named(mut request: Request<Body>) -> Request<Body> {
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(host)) = authority {
        request.headers_mut().insert(HOST, host);
    }
    request
}

/// Serves a connection to its end. A gateway that drains finishes what is under way on it.
pub async fn serve(stream: TcpStream, router: Router, gateway: Arc<Gateway>) {
    let (header_timeout, patience) = {
        let live = gateway.live.load();
        (live.settings.header_timeout, live.settings.patience)
    };
    // The library waits without end for the bytes that tell the version.
    let begun = tokio::select! {
        begun = tokio::time::timeout(header_timeout, version_is_known(&stream)) => begun.is_ok(),
        () = gateway.draining.cancelled() => false,
    };
    if !begun {
        return;
    }
    stream.set_nodelay(true).ok();
    let untaken = Arc::new(Untaken::default());
    let others = TowerToHyperService::new(router);
    let serving = Arc::clone(&gateway);
    let answers = Arc::clone(&untaken);
    let service = service_fn(move |request: Request<Incoming>| {
        let shares_connection = request.version() == Version::HTTP_2;
        let answered = answer(Arc::clone(&serving), others.clone(), named(request.map(Body::new)));
        let answers = Arc::clone(&answers);
        async move {
            let response = answered.await;
            // On HTTP/1.1 an answer that is not taken stops the connection's writes, which are timed.
            let paced = |body| Body::new(Paced::new(body, answers));
            Ok::<_, Infallible>(if shares_connection { response.map(paced) } else { response })
        }
    });
    let builder = builder(header_timeout);
    let connection = builder.serve_connection(TokioIo::new(Patient::new(stream, patience)), service);
    tokio::pin!(connection);
    let mut check = tokio::time::interval(patience.div_f32(4.0).max(Duration::from_millis(1)));
    let mut leaving = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = %error, "connection ended");
                }
                return;
            }
            () = gateway.draining.cancelled(), if !leaving => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = check.tick() => if untaken.longest() > patience {
                break;
            }
        }
    }
    tracing::debug!("a peer takes nothing of its answers; its connection is closed");
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(GOODBYE, connection).await.ok();
}

fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(64 * 1024)
        .max_concurrent_streams(256)
        .max_pending_accept_reset_streams(32)
        .keep_alive_interval(Duration::from_secs(30));
    builder
}

/// Returns when the first bytes are there that tell one version from the other. They are left in place.
async fn version_is_known(stream: &TcpStream) {
    let mut seen = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut seen).await {
            // Only the beginning of a preface. The rest of it cannot be waited for without taking this
            // part, and no honest client cuts these bytes in two, so that looking again now and then will do.
            Ok(count) if count > 0 && count < PREFACE.len() && PREFACE.starts_with(&seen[..count]) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // An error shows again when the connection is read.
            _ => return,
        }
    }
}
