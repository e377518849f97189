//! The cryptography of connections.

/// Chooses the cryptography of the process. The first call wins; later ones find it done.
pub fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}
