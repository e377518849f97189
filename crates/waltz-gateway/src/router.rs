//! Paths and what answers them. Every reply, of whatever path, carries `x-request-id`, and every error
//! is OpenAI's error body, or Anthropic's on that interface's paths and to its clients where a path is both's or nobody's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::TRANSFER_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use waltz_exchange::id;
use waltz_exchange::openai::{ApiError, Retry};

use crate::api::count_tokens::COUNT_TOKENS;
use crate::api::embeddings::EMBEDDINGS;
use crate::api::models::MODELS;
use crate::api::run::RUN;
use crate::api::{
    admin, count_tokens, embeddings, evaluate, health, metrics, models, moderations, outcomes, plan, run,
    sessions, switch,
};
use crate::auth::{Caller, authenticate};
use crate::client::Client;
use crate::dialect::{Dialect, MESSAGES};
use crate::idempotency;
use crate::intake::read_body;
use crate::live::{Gateway, Live};
use crate::pipeline;
use crate::receive::{Incoming, Planned};
use crate::record::Recorded;
use crate::reply::{self, name};
use crate::underway::{Underway, begin, reply_again, reply_from};

/// The description of the interface.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// What clients of this interface are asked to keep their headers under.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The path of OpenAI's interface.
pub(crate) const CHAT: &str = "/v1/chat/completions";

type Shared = State<Arc<Gateway>>;

/// The paths that are looked up.
pub(crate) type Others = TowerToHyperService<Router>;

/// The id of a request, made when it arrives.
#[derive(Clone, Debug)]
struct RequestId(String);

/// Every path of the gateway but those of chats, which [`answer`] knows itself.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(EMBEDDINGS, post(embed))
        .route(COUNT_TOKENS, post(count))
        .route("/v1/moderations", post(moderate))
        .route(MODELS, get(list_models))
        .route("/v1/models/{*id}", get(show_model))
        .route("/waltz/v1/evaluate", post(judge))
        .route("/waltz/v1/plan", post(plan_tasks))
        .route(RUN, post(run_tasks))
        .route("/waltz/v1/sessions", get(list_sessions))
        .route("/waltz/v1/sessions/{id}", get(show_session))
        .route("/waltz/v1/outcomes", post(report_outcome))
        .merge(admin::routes())
        .route("/waltz/switch", get(async || switch::page()))
        .route("/waltz/switch.js", get(async || switch::script()))
        .route("/healthz", get(async || health::live()))
        .route("/readyz", get(async |State(gateway): Shared| health::ready(&gateway)))
        .route(
            "/metrics",
            get(async |State(gateway): Shared, headers: HeaderMap| metrics::show(&gateway, &headers)),
        )
        .route(
            "/openapi.json",
            get(async || reply::response(StatusCode::OK, reply::json_headers(), OPENAPI.into())),
        )
        .fallback(async |uri: Uri, headers: HeaderMap| {
            Dialect::spoken(uri.path(), &headers).reply_error(&not_found(uri.path()))
        })
        .method_not_allowed_fallback(async |uri: Uri, headers: HeaderMap| {
            Dialect::spoken(uri.path(), &headers).reply_error(&wrong_method(uri.path()))
        })
        .with_state(gateway)
}

/// Answers a request. Nearly all are chats, and these are not looked up among the other paths.
pub(crate) async fn answer(gateway: Arc<Gateway>, others: Others, request: Request) -> Response {
    let request_id = id::new_request_id();
    let mut response = match refusal(&request) {
        Some(refusal) => refusal,
        None => dispatch(gateway, others, request, request_id.clone()).await,
    };
    let headers = response.headers_mut();
    if !headers.contains_key(&name::REQUEST_ID) {
        reply::set(headers, &name::REQUEST_ID, &request_id);
    }
    if let Some(id) = headers.get(&name::REQUEST_ID).cloned() {
        headers.insert(&name::ANTHROPIC_REQUEST_ID, id);
    }
    response
}

async fn dispatch(
    gateway: Arc<Gateway>,
    others: Others,
    mut request: Request,
    request_id: String,
) -> Response {
    let path = match request.uri().path() {
        CHAT => CHAT,
        MESSAGES => MESSAGES,
        _ => "",
    };
    if path.is_empty() {
        request.extensions_mut().insert(RequestId(request_id));
        return others.call(request).await.unwrap_or_else(|never| match never {});
    }
    if request.method() != Method::POST {
        // As the other paths answer a method that they do not have.
        let mut response = reply_error(path, &wrong_method(path));
        reply::set(response.headers_mut(), "allow", "POST");
        return response;
    }
    let (parts, body) = request.into_parts();
    match Admitted::new(&gateway, parts.headers, request_id) {
        Ok(admitted) => exchange(gateway, admitted, body, path, pipeline::run).await,
        Err(error) => reply_error(path, &error),
    }
}

/// The reply to a request whose head alone is reason not to read on.
fn refusal(request: &Request) -> Option<Response> {
    let (path, headers) = (request.uri().path(), request.headers());
    let header_bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > MAX_HEADER_BYTES {
        let message = format!("the request headers are larger than {MAX_HEADER_BYTES} bytes");
        let mut error = ApiError::invalid(message, None).with_code("headers_too_large");
        error.status = 431;
        return Some(reply_error(path, &error));
    }
    if is_ambiguous(headers) {
        let message =
            "a request must say its length once: by one `content-length` or by `transfer-encoding: chunked`";
        let error = ApiError::invalid(message, None).with_code("ambiguous_length");
        let mut response = reply_error(path, &error);
        reply::set(response.headers_mut(), "connection", "close");
        return Some(response);
    }
    None
}

/// Whether a proxy in front could see another end of the body than is seen here, and take what follows for
/// a request of its own. Of lengths the library lets only one through.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let first = codings.next();
    first.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
}

/// A request whose caller is known, with the configuration that it sees.
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    pub(crate) live: Arc<Live>,
    pub(crate) headers: HeaderMap,
    pub(crate) request_id: String,
    pub(crate) began: Instant,
    pub(crate) at: Timestamp,
    /// Set for what a run asks for itself; no client can.
    pub(crate) planned: Option<Planned>,
}

/// What a path names. One that cannot be read, such as `%ff`, names nothing that is there.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let named = Path::from_request_parts(parts, state).await;
        named.map(|Path(name)| Self(name)).map_err(|_| reply::error(&not_found(parts.uri.path())))
    }
}

impl FromRequestParts<Arc<Gateway>> for Admitted {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, Response> {
        let request_id = parts.extensions.get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        let path = parts.uri.path();
        let dialect =
            if path.starts_with(MODELS) { Dialect::spoken(path, &parts.headers) } else { Dialect::of(path) };
        let admitted = Self::new(gateway, std::mem::take(&mut parts.headers), request_id);
        admitted.map_err(|error| dialect.reply_error(&error))
    }
}

impl Admitted {
    /// Admits a request if it is known who calls.
    fn new(gateway: &Gateway, headers: HeaderMap, request_id: String) -> Result<Self, ApiError> {
        let live = gateway.serving();
        let caller = authenticate(gateway, &live, &headers)?;
        let (began, at) = (Instant::now(), Timestamp::now());
        Ok(Self { caller, live, headers, request_id, began, at, planned: None })
    }
}

async fn embed(State(gateway): Shared, admitted: Admitted, body: Body) -> Response {
    exchange(gateway, admitted, body, EMBEDDINGS, |gateway, live, incoming, client| {
        embeddings::PASS.run(gateway, live, incoming, client)
    })
    .await
}

async fn count(State(gateway): Shared, admitted: Admitted, body: Body) -> Response {
    exchange(gateway, admitted, body, COUNT_TOKENS, |gateway, live, incoming, client| {
        count_tokens::PASS.run(gateway, live, incoming, client)
    })
    .await
}

async fn judge(State(gateway): Shared, admitted: Admitted, body: Body) -> Response {
    exchange(gateway, admitted, body, "/waltz/v1/evaluate", evaluate::run).await
}

async fn run_tasks(State(gateway): Shared, admitted: Admitted, body: Body) -> Response {
    exchange(gateway, admitted, body, RUN, run::run).await
}

async fn plan_tasks(admitted: Admitted, body: Body) -> Response {
    match read_body(&admitted, body).await {
        Ok(body) => plan::create(&admitted.live, &body),
        Err(error) => reply::error(&error),
    }
}

async fn moderate(admitted: Admitted, body: Body) -> Response {
    match read_body(&admitted, body).await {
        Ok(body) => moderations::moderate(&admitted.live, &body, &admitted.request_id).await,
        Err(error) => reply::error(&error),
    }
}

async fn report_outcome(State(gateway): Shared, admitted: Admitted, body: Body) -> Response {
    match read_body(&admitted, body).await {
        Ok(body) => outcomes::create(&gateway, &admitted.caller, &body, Timestamp::now()).await,
        Err(error) => reply::error(&error),
    }
}

async fn list_models(admitted: Admitted) -> Response {
    models::list(&admitted.live, &admitted.headers).await
}

async fn show_model(admitted: Admitted, Named(id): Named<String>) -> Response {
    models::show(&admitted.live, &id, &admitted.headers)
}

async fn list_sessions(
    State(gateway): Shared,
    admitted: Admitted,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    sessions::list(&gateway, &admitted.caller, &query).await
}

async fn show_session(
    State(gateway): Shared,
    admitted: Admitted,
    Named(id): Named<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    sessions::show(&gateway, &admitted.caller, &id, &query).await
}

/// Answers a request by an exchange of its own, or, where it has a key that came before, by its twin's.
async fn exchange<F>(
    gateway: Arc<Gateway>,
    admitted: Admitted,
    body: Body,
    path: &'static str,
    run: impl FnOnce(Arc<Gateway>, Arc<Live>, Arc<Incoming>, Client) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = Recorded> + Send + 'static,
{
    if gateway.draining.is_cancelled() {
        let error = ApiError::upstream(503, "draining", "the gateway is shutting down", Retry::After(1_000));
        return reply_error(path, &error);
    }
    let body = match read_body(&admitted, body).await {
        Ok(body) => body,
        Err(error) => return reply_error(path, &error),
    };
    let key =
        match idempotent(path).then(|| idempotency::name(&admitted.headers, &admitted.caller.tenant, path)) {
            None | Some(Ok(None)) => {
                let (exchange, line) = begin(&gateway, admitted, body, path, run);
                return reply_from(Underway::new(exchange, &gateway), line).await;
            }
            Some(Ok(Some(key))) => key,
            Some(Err(error)) => return reply_error(path, &error),
        };
    let entered = gateway.answers.enter(key, &body, admitted.live.settings.idempotency);
    let (first, answer) = match entered {
        Ok(entered) => entered,
        Err(error) => return reply_error(path, &error),
    };
    let replayed = first.is_none();
    if let Some(first) = first {
        let (exchange, line) = begin(&gateway, admitted, body, path, run);
        gateway.tasks.spawn(exchange);
        let writing = Arc::clone(&gateway);
        // A client that comes again after it hung up wants this answer: it is written to its end.
        gateway.tasks.spawn(async move {
            writing.answers.write(first, line, Dialect::of(path).terminal()).await;
        });
    }
    reply_again(answer, replayed).await
}

/// Whether a path honours `Idempotency-Key`.
fn idempotent(path: &str) -> bool {
    matches!(path, CHAT | MESSAGES | RUN)
}

/// An error in the form of a path.
fn reply_error(path: &str, error: &ApiError) -> Response {
    Dialect::of(path).reply_error(error)
}

fn not_found(path: &str) -> ApiError {
    unknown_url(path, "there is no path")
}

fn wrong_method(path: &str) -> ApiError {
    unknown_url(path, "this method does not go with")
}

fn unknown_url(path: &str, why: &str) -> ApiError {
    let shown: String = path.chars().filter(|letter| !letter.is_control()).take(200).collect();
    let message = format!("{why} `{shown}`; GET /openapi.json lists every path");
    let mut error = ApiError::invalid(message, None).with_code("unknown_url");
    error.status = 404;
    error
}
