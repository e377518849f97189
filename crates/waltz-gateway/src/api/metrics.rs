//! `GET /metrics`: what the gateway counts, for Prometheus. It counts over all tenants, so that where there are
//! keys it is the admin token's to read.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use waltz_exchange::openai::{ApiError, Retry};

use crate::auth::authenticate;
use crate::{Gateway, metrics, reply};

/// The metrics as they stand.
pub fn show(gateway: &Gateway, headers: &HeaderMap) -> Response {
    if let Err(error) = permitted(gateway, headers) {
        return reply::error(&error);
    }
    let text = metrics::write(&metrics::families(gateway));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    reply::response(StatusCode::OK, headers, Body::from(text))
}

fn permitted(gateway: &Gateway, headers: &HeaderMap) -> Result<(), ApiError> {
    let live = gateway.live.load();
    if live.settings.metrics_public {
        return Ok(());
    }
    let caller = authenticate(gateway, &live, headers)?;
    if caller.admin || live.settings.keys.is_empty() {
        return Ok(());
    }
    Err(ApiError {
        status: 403,
        kind: "permission_error".into(),
        message: "metrics count over all tenants: send the admin token, or set `telemetry.metrics_public`"
            .to_owned(),
        param: None,
        code: "admin_token_required".into(),
        retry: Retry::Never,
    })
}
