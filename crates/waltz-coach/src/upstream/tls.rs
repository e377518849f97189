//! The cryptography of connections.

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{ClientConfig, RootCertStore};

/// Chooses the cryptography of the process. The first call wins; later ones find it done.
pub fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// Whom connections trust: those that the system trusts. A client without TLS need not read the system's certificates;
/// it trusts nobody.
pub(super) fn trust(uses_tls: bool) -> Result<ClientConfig, rustls::Error> {
    install_tls();
    let builder = ClientConfig::builder();
    let trusting = if uses_tls {
        builder.try_with_platform_verifier()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(trusting.with_no_client_auth())
}
