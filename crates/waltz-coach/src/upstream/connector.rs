//! Opens connections for the [client](super::client): a name is looked up, TCP and TLS are set up, all within one time
//! limit. HTTP/2 is spoken where TLS agrees on it, and HTTP/1.1 elsewhere.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use super::address::Guard;

/// When and how often a silent peer is asked whether it is there still, and when it is given up.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
const UNHEARD: Duration = Duration::from_secs(30);

type BoxError = Box<dyn Error + Send + Sync>;

/// Opens connections. It is cloned for every call, also for those that find a connection open.
#[derive(Clone)]
pub(super) struct Connector(Arc<Layers>);

struct Layers {
    https: HttpsConnector<HttpConnector<Guard>>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(guard: Guard, mut tls: ClientConfig, timeout: Duration) -> Self {
        let mut http = HttpConnector::new_with_resolver(guard);
        // That it is a URL with TLS is the business of the layer above.
        http.enforce_http(false);
        http.set_nodelay(true);
        // Among several addresses of a name, none takes all the time.
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(PROBE));
        http.set_keepalive_interval(Some(PROBE));
        http.set_keepalive_retries(Some(PROBES));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(UNHEARD));
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self(Arc::new(Layers { https: HttpsConnector::from((http, tls)), timeout }))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The layers wait for the guard alone, which is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.0.timeout, self.0.https.clone().call(to));
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected.map(Stream),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

/// A connection. Unlike the one inside, it does not put its addresses into every answer.
pub(super) struct Stream(MaybeHttpsStream<TokioIo<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match &self.0 {
            MaybeHttpsStream::Https(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }
}
