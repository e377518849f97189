//! The listener: accepts connections with explicit limits, and drains them when asked to stop.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::live::Gateway;
use crate::router;

/// Room for 64 KiB of request headers and the request line, as clients of this interface expect.
const MAX_HEADER_BYTES: usize = 72 * 1024;

/// How long open exchanges have to say that they end.
const LAST_WORDS: Duration = Duration::from_secs(3);

const HEADER_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves until `gateway.draining` fires, then finishes what is under way for at most `drain` and ends the
/// rest with an error. Returns whether every exchange came to its end.
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, drain: Duration) -> bool {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(64 * 1024)
        .max_concurrent_streams(256)
        .max_pending_accept_reset_streams(32)
        .keep_alive_interval(Duration::from_secs(30));
    let graceful = GracefulShutdown::new();
    let router = router::router(Arc::clone(&gateway));
    loop {
        let accepted = tokio::select! {
            () = gateway.draining.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Usually too many open files; a short pause lets some close.
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        stream.set_nodelay(true).ok();
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        gateway.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %error, "connection ended");
            }
        });
    }
    drop(listener);
    gateway.tasks.close();
    let finished = async {
        graceful.shutdown().await;
        gateway.tasks.wait().await;
    };
    tokio::pin!(finished);
    if tokio::time::timeout(drain, &mut finished).await.is_ok() {
        return true;
    }
    // Whatever is still open is told so and recorded, which takes no time worth mentioning.
    gateway.stopping.cancel();
    tokio::time::timeout(LAST_WORDS, finished).await.is_ok()
}
