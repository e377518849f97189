//! `/waltz/switch`: the kill switch as a page with a button. It holds nothing itself; its script posts to
//! `/waltz/v1/releases/all` with the admin token that is typed in.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::reply;

/// Nothing from elsewhere, and nobody may frame the page and lure a click.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The page.
pub fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("switch/page.html"))
}

/// Its script.
pub fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("switch/page.js"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply::set(&mut headers, "x-content-type-options", "nosniff");
    reply::set(&mut headers, "referrer-policy", "no-referrer");
    reply::response(StatusCode::OK, headers, Body::from(text))
}
