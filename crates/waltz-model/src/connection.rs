//! What every connection of waltz to a server has in common: whom it trusts, and credentials that stand in an address.
//! Pulls use it here, and calls to upstreams, webhooks and collectors in `waltz-coach`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use hyper_rustls::ConfigBuilderExt as _;
use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

/// Chooses the cryptography of the process. The first call wins; later ones find it done.
pub fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// Whom connections trust: those that the system trusts. A client without TLS need not read the system's certificates;
/// it trusts nobody.
pub fn trust(uses_tls: bool) -> Result<ClientConfig, rustls::Error> {
    install_tls();
    let builder = ClientConfig::builder();
    let trusting = if uses_tls {
        builder.try_with_platform_verifier()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(trusting.with_no_client_auth())
}

/// An address without the name and the password that stand in it, and what they become: the value of an
/// `authorization` header.
pub fn credentials(url: &Url) -> (Url, Option<HeaderValue>) {
    let mut bare = url.clone();
    let (name, password) = (url.username(), url.password());
    if name.is_empty() && password.is_none() {
        return (bare, None);
    }
    // Neither can be refused where there was one.
    bare.set_username("").ok();
    bare.set_password(None).ok();
    let written = [name, ":", password.unwrap_or_default()];
    let decoded: Vec<u8> = written.into_iter().flat_map(percent_decode_str).collect();
    // Base64 is always fit for a header.
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(decoded))).ok();
    if let Some(value) = &mut value {
        value.set_sensitive(true);
    }
    (bare, value)
}
