//! The client of every call: hyper's, with a connector that keeps our rules. It follows no redirects and asks no
//! proxies, and names are looked up by a [`Guard`], anew for each connection. What a call says is made once, as a
//! [`Head`], and cloned for each call.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::Url;
use waltz_model::connection::{credentials, trust};

use super::SetupError;
use super::address::Guard;
use super::connector::Connector;

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(60);

/// How often a call is sent again that a server has handed back untouched.
const HANDED_BACK: u32 = 2;

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Client(legacy::Client<Connector, Full<Bytes>>);

/// What calls to one address say before their body.
#[derive(Clone, Debug)]
pub(super) struct Head(http::request::Parts);

/// Why a call got no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection in time.
    Timeout,
    /// No connection, or it broke.
    Broken(legacy::Error),
}

impl Client {
    /// A client for the server of an address. Nothing is connected yet.
    pub(super) fn new(url: &Url, guard: Guard, connect_timeout: Duration) -> Result<Self, SetupError> {
        let tls = trust(url.scheme() == "https").map_err(|error| SetupError::Client(error.to_string()))?;
        Ok(Self::over(Connector::new(guard, tls, connect_timeout)))
    }

    fn over(connector: Connector) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        Self(builder.build(connector))
    }

    /// Sends a call and returns once the head of its answer is here.
    pub(super) async fn send(&self, head: &Head, body: Bytes) -> Result<Response<Incoming>, Failure> {
        let mut again = 0;
        loop {
            let request = Request::from_parts(head.0.clone(), Full::new(body.clone()));
            match self.0.request(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) if again < HANDED_BACK && is_handed_back(&error) => again += 1,
                Err(error) if is_timeout(&error) => return Err(Failure::Timeout),
                Err(error) => return Err(Failure::Broken(error)),
            }
        }
    }
}

impl Head {
    /// The head of posts to an address.
    pub(super) fn post(url: &Url, headers: HeaderMap) -> Result<Self, SetupError> {
        Self::new(Method::POST, url, headers)
    }

    /// The head of questions without a body.
    pub(super) fn get(url: &Url, mut headers: HeaderMap) -> Result<Self, SetupError> {
        headers.remove(header::CONTENT_TYPE);
        Self::new(Method::GET, url, headers)
    }

    /// A name and a password that stand in the address become a header.
    fn new(method: Method, url: &Url, mut headers: HeaderMap) -> Result<Self, SetupError> {
        let (bare, authorization) = credentials(url);
        if let Some(value) = authorization {
            headers.entry(header::AUTHORIZATION).or_insert(value);
        }
        let agent = HeaderValue::from_static(concat!("waltz/", env!("CARGO_PKG_VERSION")));
        headers.entry(header::USER_AGENT).or_insert(agent);
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        // Without TLS it is HTTP/1.1, which says the host in a header; with TLS it may be HTTP/2, which does not.
        if let ("http", Some(host)) = (bare.scheme(), bare.host_str()) {
            let host = bare.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            let host = HeaderValue::try_from(host).map_err(|error| SetupError::Url(error.to_string()))?;
            headers.entry(header::HOST).or_insert(host);
        }
        let mut parts = Request::new(()).into_parts().0;
        parts.method = method;
        parts.uri = Uri::try_from(bare.as_str()).map_err(|error| SetupError::Url(error.to_string()))?;
        parts.headers = headers;
        Ok(Self(parts))
    }

    /// The same with one header more.
    pub(super) fn and(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }
}

/// Whether a server said that it did not touch a call: it shuts down in good order, or refuses the stream. Then the
/// call may be sent again, whatever it asks for. A connection that was closed before anything was sent is hyper's to
/// replace.
fn is_handed_back(error: &legacy::Error) -> bool {
    let found = causes(error).find_map(|cause| cause.downcast_ref::<h2::Error>());
    found.is_some_and(|error| {
        let shuts_down = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        let refuses = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (shuts_down || refuses)
    })
}

fn is_timeout(error: &legacy::Error) -> bool {
    let mut found = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    found.any(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

#[cfg(test)]
mod tests;
