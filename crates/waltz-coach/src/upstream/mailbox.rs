//! An address that takes messages, such as a webhook or a collector of telemetry: only whether it took one is looked at.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::SetupError;
use super::address::Guard;
use super::client::{Client, Failure, Head};

/// An address that takes messages.
#[derive(Debug)]
pub struct Mailbox {
    client: Client,
    head: Head,
    timeout: Duration,
}

impl Mailbox {
    /// Makes the client, for any address that a URL leads to. Nothing is connected yet.
    pub fn new(url: &Url, headers: HeaderMap, timeout: Duration) -> Result<Self, SetupError> {
        Self::guarded(url, headers, timeout, Guard::system().open())
    }

    pub(super) fn guarded(
        url: &Url,
        headers: HeaderMap,
        timeout: Duration,
        guard: Guard,
    ) -> Result<Self, SetupError> {
        Ok(Self { client: Client::new(url, guard, timeout)?, head: Head::post(url, headers)?, timeout })
    }

    /// Sends a message once, with headers of its own. The error is a word that says why it was not taken: an address
    /// may hold a password, and errors may name it.
    pub async fn send<const N: usize>(
        &self,
        headers: [(HeaderName, HeaderValue); N],
        body: Bytes,
    ) -> Result<(), &'static str> {
        let head = headers.into_iter().fold(self.head.clone(), |head, (name, value)| head.and(name, value));
        let sent = tokio::time::timeout(self.timeout, self.client.send(&head, body)).await;
        match sent {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(_)) => Err("status"),
            Ok(Err(Failure::Timeout)) | Err(_) => Err("timeout"),
            Ok(Err(Failure::Broken(_))) => Err("unreachable"),
        }
    }
}
