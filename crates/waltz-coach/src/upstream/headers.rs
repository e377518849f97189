//! The headers of calls, and what those of answers say.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::ExposeSecret;

use super::{Protocol, SetupError, UpstreamSettings};

/// The version of Anthropic's form that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The headers of every call; a key is marked so that it is never printed.
pub(super) fn of_calls(settings: &UpstreamSettings) -> Result<HeaderMap, SetupError> {
    let UpstreamSettings { protocol, key, .. } = settings;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    if *protocol == Protocol::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    if let Some(key) = key.as_ref().map(ExposeSecret::expose_secret) {
        let (name, value) = match protocol {
            Protocol::OpenAi => (header::AUTHORIZATION, format!("Bearer {key}")),
            Protocol::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| SetupError::Key)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// How long an upstream asks to wait, in milliseconds.
pub(super) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let milliseconds =
        number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1e3))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=600000 right before"
    )]
    let clamped = milliseconds.clamp(0.0, 600_000.0) as u64;
    Some(clamped)
}
