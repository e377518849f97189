//! The listener: accepts connections with explicit limits, and drains them when asked to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::live::Gateway;
use crate::peers::Peers;
use crate::{connection, router};

/// How long open exchanges have to say that they end.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What a peer is told that holds too many connections.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// Serves until `gateway.draining` fires, then finishes what is under way for at most `drain` and ends the
/// rest with an error. Returns whether every exchange came to its end.
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, drain: Duration) -> bool {
    let router = router::router(Arc::clone(&gateway));
    let peers = Arc::new(Peers::default());
    loop {
        let accepted = tokio::select! {
            () = gateway.draining.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually too many open files; a short pause lets some close.
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let most = gateway.live.load().settings.max_connections_per_peer;
        let Some(place) = peers.admit(peer.ip(), most) else {
            refuse(&stream);
            continue;
        };
        let connection = connection::serve(stream, router.clone(), Arc::clone(&gateway));
        gateway.tasks.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    gateway.tasks.close();
    let finished = gateway.tasks.wait();
    tokio::pin!(finished);
    if tokio::time::timeout(drain, &mut finished).await.is_ok() {
        return true;
    }
    // Whatever is still open is told so and recorded, which takes no time worth mentioning.
    gateway.stopping.cancel();
    tokio::time::timeout(LAST_WORDS, finished).await.is_ok()
}

/// Says why, as far as that goes without waiting for the peer, and hangs up.
fn refuse(stream: &TcpStream) {
    stream.try_write(TOO_MANY).ok();
}
