//! Tells others of something: a signed message to an address that the operator has named. The same rules hold as for
//! upstreams: no redirects, no proxies, no metadata addresses. A name must not lead to a private network either, unless
//! the operator says so; one who writes down a private address has said so.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;
use waltz_exchange::id::hmac_sha256_hex;

use super::address::{Guard, metadata_literal};
use super::{Mailbox, SetupError, seconds_now};

const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// An address that is told of things.
#[derive(Debug)]
pub struct Hook {
    mailbox: Mailbox,
    secret: SecretString,
}

impl Hook {
    /// Makes the client. Nothing is connected yet.
    pub fn new(
        url: &str,
        secret: SecretString,
        timeout: Duration,
        allow_private: bool,
    ) -> Result<Self, SetupError> {
        let guard = if allow_private { Guard::system() } else { Guard::system().without_private() };
        Self::guarded(url, secret, timeout, guard)
    }

    fn guarded(url: &str, secret: SecretString, timeout: Duration, guard: Guard) -> Result<Self, SetupError> {
        let url = Url::parse(url).map_err(|error| SetupError::Url(error.to_string()))?;
        if let Some(address) = metadata_literal(&url) {
            return Err(SetupError::Metadata(address));
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { mailbox: Mailbox::guarded(&url, headers, timeout, guard)?, secret })
    }

    /// Sends a message, a few times if need be. The error says why the last attempt failed.
    pub async fn deliver(&self, body: &str) -> Result<(), &'static str> {
        let mut attempt = 1;
        loop {
            let sent = self.send(body, seconds_now()).await;
            if sent.is_ok() || attempt == ATTEMPTS {
                return sent;
            }
            tokio::time::sleep(FIRST_PAUSE * attempt).await;
            attempt += 1;
        }
    }

    /// Sends a message once. `seconds` is the time of sending: it is signed with the body, so that an old message
    /// cannot be sent again by others.
    async fn send(&self, body: &str, seconds: i64) -> Result<(), &'static str> {
        let signed = format!("{seconds}.{body}");
        let signature = hmac_sha256_hex(self.secret.expose_secret().as_bytes(), signed.as_bytes());
        let signature = HeaderValue::try_from(format!("sha256={signature}")).map_err(|_| "unreachable")?;
        let headers = [
            (HeaderName::from_static("x-waltz-timestamp"), HeaderValue::from(seconds)),
            (HeaderName::from_static("x-waltz-signature"), signature),
        ];
        self.mailbox.send(headers, Bytes::copy_from_slice(body.as_bytes())).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A name that leads to a private network is connected to only where the operator allows it.
    #[tokio::test]
    async fn fault_F80_webhook_abuse() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let here = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
            }
        });
        let named = format!("http://alerts.example:{}/hook", here.port());
        let written = format!("http://{here}/hook");
        let guard = || Guard::new(Arc::new(move |_| Box::pin(async move { Ok(vec![here]) })));
        for (url, guard, expected) in [
            (&named, guard().without_private(), Err("unreachable")),
            (&named, guard(), Ok(())),
            (&written, guard().without_private(), Ok(())),
        ] {
            let secret = SecretString::from("a secret of some length");
            let hook = Hook::guarded(url, secret, Duration::from_secs(60), guard).unwrap();
            assert_eq!(hook.send("{}", 0).await, expected, "{url}");
        }
        served.await.unwrap();
    }
}
