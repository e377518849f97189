//! The body of a request, read within its limits of size and time. Called by `router.rs` for every path that takes one.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};
use waltz_exchange::openai::ApiError;

use crate::router::Admitted;

/// Reads a body up to the limit. A body that is too large by its own announcement is not read at all.
pub(crate) async fn read_body(admitted: &Admitted, mut body: Body) -> Result<Bytes, ApiError> {
    let limit = admitted.live.settings.max_body_bytes;
    let word = |name| admitted.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if word(CONTENT_ENCODING).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        let mut error =
            ApiError::invalid("compressed request bodies are not accepted; send plain JSON", None);
        error.status = 415;
        return Err(error);
    }
    let announced = word(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        tokio::spawn(discard(body));
        return Err(too_large(limit));
    }
    // Most bodies come in one piece, and are used as they came.
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    // A client that sends nothing for so long is not going to, and one that sends a little now and then may not hold its
    // connection and its memory for ever.
    let patience = admitted.live.settings.patience;
    let end = Instant::from_std(admitted.began) + admitted.live.settings.body_timeout;
    let waits = || end.min(Instant::now() + patience);
    while let Some(frame) = timeout_at(waits(), body.frame()).await.map_err(|_| stalled())? {
        let frame = frame.map_err(|_| ApiError::invalid("the request body broke off", None))?;
        let Ok(data) = frame.into_data() else { continue };
        let known = whole.len() + first.as_ref().map_or(0, Bytes::len);
        if known + data.len() > limit {
            tokio::spawn(discard(body));
            return Err(too_large(limit));
        }
        if known == 0 {
            first = Some(data);
            continue;
        }
        whole.extend_from_slice(&first.take().unwrap_or_default());
        whole.extend_from_slice(&data);
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// Reads on a little and forgets it: a connection that is closed while its client still writes shows the
/// client a broken pipe instead of the error.
async fn discard(mut body: Body) {
    const MOST: usize = 64 * 1024 * 1024;
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MOST {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), reading).await.ok();
}

fn stalled() -> ApiError {
    let mut error =
        ApiError::invalid("the request body did not arrive in time", None).with_code("request_timeout");
    error.status = 408;
    error
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the request body is larger than {limit} bytes (`server.max_body_bytes`)");
    let mut error = ApiError::invalid(message, None).with_code("request_too_large");
    error.status = 413;
    error
}
