//! Who calls: a configured key, the admin token, or anybody on this machine when no key is configured.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use waltz_exchange::openai::{ApiError, Retry};

use crate::Gateway;
use crate::live::Live;

/// Who calls, and whose data it may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose data its exchanges are.
    pub tenant: String,
    /// May see every tenant.
    pub admin: bool,
}

impl Caller {
    /// The tenant to filter by; `None` sees all.
    pub fn scope(&self) -> Option<&str> {
        if self.admin { None } else { Some(&self.tenant) }
    }
}

/// The tenant of callers without a key.
pub const LOCAL_TENANT: &str = "local";

/// Finds out who calls.
pub fn authenticate(gateway: &Gateway, live: &Live, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let offered = bearer(headers).map(sha256);
    if offered.is_some_and(|digest| same(&digest, &gateway.admin_sha256)) {
        return Ok(Caller { tenant: LOCAL_TENANT.to_owned(), admin: true });
    }
    if live.settings.keys.is_empty() {
        return from_this_machine(headers);
    }
    let Some(digest) = offered else {
        return Err(unauthorized("no API key given: send it as `Authorization: Bearer KEY`"));
    };
    // Every key is compared, so that the time taken says nothing about which one came close.
    let mut found = None;
    for key in &live.settings.keys {
        if same(&digest, &key.sha256) {
            found = Some(key);
        }
    }
    match found {
        Some(key) => Ok(Caller { tenant: key.tenant.clone(), admin: false }),
        None => Err(unauthorized("incorrect API key")),
    }
}

/// Without keys only programs on this machine may call. The listener is bound to loopback; a web page
/// in a browser on this machine could still reach it, and is told apart by its `Host` and `Origin`.
fn from_this_machine(headers: &HeaderMap) -> Result<Caller, ApiError> {
    let named = headers.get_all(HOST).iter().all(|host| host.to_str().is_ok_and(is_loopback_name));
    let from_here = headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin.split_once("://").is_some_and(|(_, host)| is_loopback_name(host))
    });
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if named && from_here && !cross_site {
        return Ok(Caller { tenant: LOCAL_TENANT.to_owned(), admin: false });
    }
    Err(ApiError {
        status: 403,
        kind: "permission_error".into(),
        message:
            "no keys are configured, so that only programs on this machine may call; configure `[[keys]]` to \
            open the gateway to others"
                .to_owned(),
        param: None,
        code: "loopback_only".into(),
        retry: Retry::Never,
    })
}

fn is_loopback_name(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let after = authority.as_str().strip_prefix(authority.host()).unwrap_or("?");
    let only_port = after.is_empty()
        || after.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    only_port
        && (host.eq_ignore_ascii_case("localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = authorization.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let token = token.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok()));
    token.filter(|token| !token.is_empty())
}

fn unauthorized(message: &str) -> ApiError {
    ApiError {
        status: 401,
        kind: "invalid_request_error".into(),
        message: message.to_owned(),
        param: None,
        code: "invalid_api_key".into(),
        retry: Retry::Never,
    }
}

fn sha256(text: &str) -> [u8; 32] {
    waltz_exchange::id::sha256(text.as_bytes())
}

/// Compares without stopping at the first difference.
pub(crate) fn same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_recognised_and_nothing_else_is() {
        for name in ["localhost", "localhost:8787", "127.0.0.1:80", "[::1]:8787", "127.9.9.9", "LOCALHOST"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in [
            "evil.example",
            "localhost.evil.example:80",
            "10.0.0.1:8787",
            "[2001:db8::1]:80",
            "",
            "null",
            "localhost:80@evil.example",
            "[::1].evil.example",
        ] {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
