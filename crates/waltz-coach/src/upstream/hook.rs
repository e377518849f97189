//! Tells others of something: a signed message to an address that the operator has named. The same rules hold as for
//! upstreams: no redirects, no proxies, no metadata addresses.

use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use waltz_exchange::id::hmac_sha256_hex;

use super::address::{Guard, metadata_literal};
use super::{SetupError, install_tls};

/// An address that is told of things.
#[derive(Debug)]
pub struct Hook {
    url: Url,
    secret: SecretString,
    timeout: Duration,
    client: reqwest::Client,
}

impl Hook {
    /// Makes the client. Nothing is connected yet.
    pub fn new(url: &str, secret: SecretString, timeout: Duration) -> Result<Self, SetupError> {
        let url = Url::parse(url).map_err(|error| SetupError::Url(error.to_string()))?;
        if let Some(address) = metadata_literal(&url) {
            return Err(SetupError::Metadata(address));
        }
        install_tls();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("waltz/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Guard::system())
            .build()
            .map_err(|error| SetupError::Client(error.to_string()))?;
        Ok(Self { url, secret, timeout, client })
    }

    /// Sends a message once. `seconds` is the time of sending: it is signed with the body, so that an old message
    /// cannot be sent again by others.
    pub async fn send(&self, body: &str, seconds: i64) -> Result<(), &'static str> {
        let signed = format!("{seconds}.{body}");
        let signature = hmac_sha256_hex(self.secret.expose_secret().as_bytes(), signed.as_bytes());
        let request = self
            .client
            .post(self.url.clone())
            .timeout(self.timeout)
            .header("content-type", "application/json")
            .header("x-waltz-timestamp", seconds)
            .header("x-waltz-signature", format!("sha256={signature}"))
            .body(body.to_owned());
        // Errors of the client name the address, which may hold a password: only a word of them is kept.
        let answer = request
            .send()
            .await
            .map_err(|error| if error.is_timeout() { "timeout" } else { "unreachable" })?;
        if answer.status().is_success() { Ok(()) } else { Err("status") }
    }
}
