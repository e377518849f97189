//! Asks the hub and those that it redirects to, straight or through a proxy. A pull asks a handful of questions, mostly
//! of different servers: each has a connection of its own, over HTTP/1.1.

use std::error::Error;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, HeaderMap, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::time::timeout;
use tower_service::Service;
use url::{Origin, Url};

use super::{Proxies, PullSettings};
use crate::connection::{credentials, trust};

type BoxError = Box<dyn Error + Send + Sync>;

/// Asks, for one pull.
pub(super) struct Asker<'a> {
    settings: &'a PullSettings,
    proxies: Matcher,
    hub: Origin,
    authorization: Option<HeaderValue>,
}

/// An answer whose body is still to come.
pub(super) struct Answer {
    response: Response<Incoming>,
    patience: Duration,
}

impl<'a> Asker<'a> {
    /// One that shows the hub, and nobody else, the credentials that stand in its address. Returns that address without
    /// them, and without a slash at its end.
    pub(super) fn new(settings: &'a PullSettings) -> Result<(Self, String), String> {
        let hub = Url::parse(&settings.hub).map_err(|error| format!("the hub's address is none: {error}"))?;
        let (bare, authorization) = credentials(&hub);
        let Proxies { http, https, all, none } = &settings.proxies;
        let proxies = Matcher::builder().http(&**http).https(&**https).all(&**all).no(&**none).build();
        let address = bare.as_str().trim_end_matches('/').to_owned();
        Ok((Self { settings, proxies, hub: hub.origin(), authorization }, address))
    }

    /// Gets an address, and returns once the head of the answer is here. Redirects are answers.
    pub(super) async fn get(&self, url: &Url, headers: &HeaderMap) -> Result<Answer, String> {
        let (bare, given) = credentials(url);
        let own = self.authorization.clone().filter(|_| url.origin() == self.hub);
        let uri = Uri::try_from(bare.as_str()).map_err(|error| format!("`{bare}` is no address: {error}"))?;
        let proxy = self.proxies.intercept(&uri);
        let mut whom = uri.host().unwrap_or_default().to_owned();
        if let Some(proxy) = proxy.as_ref().and_then(|proxy| proxy.uri().authority()) {
            whom.push_str(&format!(" through the proxy {proxy}"));
        }
        let answered = self.answer(uri, proxy, headers.clone(), given.or(own)).await;
        let response = answered.map_err(|error| format!("asking {whom}: {}", describe(&*error)))?;
        Ok(Answer { response, patience: self.settings.read_timeout })
    }

    async fn answer(
        &self,
        uri: Uri,
        proxy: Option<Intercept>,
        mut headers: HeaderMap,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, BoxError> {
        let host = uri.authority().ok_or("the address names no host")?.as_str();
        headers.insert(HOST, HeaderValue::from_str(host)?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("waltz/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let mut request = Request::new(Empty::new());
        *request.headers_mut() = headers;
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = path.into();

        let has_tls = |uri: &Uri| uri.scheme_str() == Some("https");
        let tls = trust(has_tls(&uri) || proxy.as_ref().is_some_and(|proxy| has_tls(proxy.uri())))?;
        let mut http = HttpConnector::new();
        // That it is an address with TLS is the business of the layer above.
        http.enforce_http(false);
        http.set_nodelay(true);
        // Among several addresses of a name, none takes all the time.
        http.set_connect_timeout(Some(self.settings.connect_timeout));
        let straight = HttpsConnector::from((http, tls.clone()));
        match proxy {
            None => self.ask(straight, uri, request).await,
            Some(proxy) if has_tls(&uri) => {
                self.ask(HttpsConnector::from((tunnel(&proxy, straight), tls)), uri, request).await
            }
            // Without a tunnel, the proxy is told the whole address.
            Some(proxy) => {
                *request.uri_mut() = uri;
                let password = proxy.basic_auth().cloned();
                request.headers_mut().extend(password.map(|value| (PROXY_AUTHORIZATION, value)));
                self.ask(straight, proxy.uri().clone(), request).await
            }
        }
    }

    /// Connects and asks, each within its time limit.
    async fn ask<C>(
        &self,
        mut connector: C,
        to: Uri,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, BoxError>
    where
        C: Service<Uri, Error = BoxError>,
        C::Response: Read + Write + Unpin + Send + 'static,
    {
        let connecting = async {
            poll_fn(|context| connector.poll_ready(context)).await?;
            connector.call(to).await
        };
        let stream = timeout(self.settings.connect_timeout, connecting)
            .await
            .map_err(|_| "the connection timed out")??;
        let (mut sender, connection) = http1::handshake(stream).await?;
        // It ends with the answer, which also tells why it broke.
        tokio::spawn(connection);
        let response = timeout(self.settings.read_timeout, sender.send_request(request));
        Ok(response.await.map_err(|_| "the answer timed out")??)
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Bytes of the body, where the head says how many.
    pub(super) fn length(&self) -> Option<u64> {
        self.response.body().size_hint().exact()
    }

    /// The next piece of the body, or `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let frame = timeout(self.patience, self.response.body_mut().frame()).await;
            let Some(frame) = frame.map_err(|_| "the answer timed out")? else { return Ok(None) };
            // Trailers say nothing that is asked for.
            if let Ok(data) = frame.map_err(|error| describe(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// What has a proxy connect to the address that is asked.
fn tunnel<C>(proxy: &Intercept, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.uri().clone(), connector);
    match proxy.basic_auth() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    }
}

/// An error with its causes: the last one says what happened.
fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
