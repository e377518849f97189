//! An exchange on its way: made from an admitted request, driven by its client's connection, and answered from
//! its line. It runs to its end whether the client waits or not.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::StatusCode;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use waltz_exchange::openai::{ApiError, Retry};

use crate::client::{Client, Head, Line, line};
use crate::dialect::Dialect;
use crate::idempotency::{Answer, Reader};
use crate::live::{Gateway, Live};
use crate::receive::Incoming;
use crate::record::{Recorded, record_panic};
use crate::reply;
use crate::router::Admitted;

/// An exchange that runs to its end, however it ends.
pub(crate) type Exchange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes an exchange. What comes of it comes down the line.
pub(crate) fn begin<F>(
    gateway: &Arc<Gateway>,
    admitted: Admitted,
    body: Bytes,
    path: &'static str,
    run: impl FnOnce(Arc<Gateway>, Arc<Live>, Arc<Incoming>, Client) -> F + Send + 'static,
) -> (Exchange, Line)
where
    F: Future<Output = Recorded> + Send + 'static,
{
    let Admitted { caller, live, headers, request_id, began, at, planned } = admitted;
    let (client, line) =
        line(live.settings.heartbeat, live.settings.patience, gateway.stopping.clone(), Dialect::of(path));
    let response_id = gateway.signer.response_id(&request_id);
    let incoming = Incoming { request_id, response_id, path, at, began, headers, body, caller, planned };
    let incoming = Arc::new(incoming);
    let seen = Arc::clone(&live);
    let guarded = Arc::clone(gateway);
    // Should the exchange panic, what is known before it begins is put on record.
    let known = Arc::clone(&incoming);
    // Boxed, and made inside: the future of a whole exchange is large, and every hand it goes through copies it.
    let exchange = Box::pin(async move {
        let exchange = AssertUnwindSafe(run(Arc::clone(&guarded), live, incoming, client)).catch_unwind();
        if exchange.await.is_err() {
            record_panic(&known, &guarded, &seen);
        }
    });
    (exchange, line)
}

/// An exchange that its client's connection drives. When the client hangs up, or wants a stream, it goes on as a
/// tracked task of its own.
pub(crate) struct Underway {
    exchange: Option<Exchange>,
    tasks: TaskTracker,
}

impl Underway {
    /// Takes an exchange that has not begun.
    pub(crate) fn new(exchange: Exchange, gateway: &Gateway) -> Self {
        Self { exchange: Some(exchange), tasks: gateway.tasks.clone() }
    }

    /// Drives the exchange until it has said what the head of the reply is; none when it ended without a word.
    async fn head(&mut self, mut head: oneshot::Receiver<Head>) -> Option<Head> {
        std::future::poll_fn(|context| {
            if self.exchange.as_mut().is_some_and(|exchange| exchange.as_mut().poll(context).is_ready()) {
                self.exchange = None;
            }
            head.poll_unpin(context).map(Result::ok)
        })
        .await
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.tasks.spawn(exchange);
        }
    }
}

/// The reply of an exchange.
pub(crate) async fn reply_from(mut underway: Underway, line: Line) -> Response {
    let Line { head, frames } = line;
    match underway.head(head).await {
        Some(Head::Whole(status, headers, body)) => reply::response(status, headers, Body::from(body)),
        Some(Head::Stream(headers)) => {
            let frames = stream::unfold(frames, |mut frames| async move {
                frames.recv().await.map(|frame| (Ok::<_, Infallible>(frame), frames))
            });
            reply::response(StatusCode::OK, headers, Body::from_stream(frames))
        }
        None => reply::error(&panicked()),
    }
}

/// The answer of a request with an idempotency key, from its beginning, as far as it has come and then as it
/// comes.
pub(crate) async fn reply_again(mut answer: Reader, replayed: bool) -> Response {
    let head =
        answer.wait_for(|answer| answer.head.is_some()).await.ok().and_then(|answer| answer.head.clone());
    let mut response = match head {
        Some(Head::Whole(status, headers, body)) => reply::response(status, headers, Body::from(body)),
        Some(Head::Stream(headers)) => {
            let frames = stream::unfold((answer, 0), |(mut answer, next)| async move {
                let is_there = |answer: &Answer| answer.is_over || answer.frames.len() > next;
                let frame = answer.wait_for(is_there).await.ok()?.frames.get(next)?.clone();
                Some((Ok::<_, Infallible>(frame), (answer, next + 1)))
            });
            reply::response(StatusCode::OK, headers, Body::from_stream(frames))
        }
        None => return reply::error(&panicked()),
    };
    if replayed {
        reply::set(response.headers_mut(), "idempotent-replayed", "true");
    }
    response
}

/// The error for an exchange whose task ended without a word, which only a panic can do.
fn panicked() -> ApiError {
    ApiError::upstream(500, "internal_error", "internal error", Retry::Never)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::HeaderMap;
    use jiff::Timestamp;
    use waltz_exchange::record::RunTask;
    use waltz_store::Store;

    use super::*;
    use crate::auth::Caller;
    use crate::receive::Planned;
    use crate::signer::Signer;
    use crate::trace::tests::live;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_that_panics_is_on_record_with_its_run_and_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(waltz_store::Settings::at(folder.path())).await.unwrap();
        let gateway = Gateway::new(live(), store, ([0; 32], Signer::new(String::new())), None);
        let mut headers = HeaderMap::new();
        reply::set(&mut headers, "x-waltz-session-id", "friday");
        let task = RunTask { id: "req_1".to_owned(), task: "draft".to_owned() };
        let admitted = Admitted {
            caller: Caller { tenant: "acme".to_owned(), admin: false },
            live: gateway.live.load_full(),
            headers,
            request_id: "req_2".to_owned(),
            began: Instant::now(),
            at: Timestamp::now(),
            planned: Some(Planned { task: task.clone(), reason: "the task names it".to_owned() }),
        };
        let broken = async |_, _, _, _| panic!("this test wants it");
        let (exchange, line) = begin(&gateway, admitted, Bytes::new(), "/waltz/v1/run", broken);
        exchange.await;
        assert!(line.head.await.is_err());
        gateway.store.drained().await.unwrap();
        let session = gateway.store.session(Some("acme"), "friday").await.unwrap().unwrap();
        let record = &session.exchanges[0].record;
        assert_eq!((&record.id, record.status, &record.run), (&"req_2".to_owned(), 500, &Some(task)));
        assert_eq!(record.route_reason.as_deref(), Some("the task names it"));
        gateway.store.close().await.unwrap();
    }
}
