//! Models behind an OpenAI-compatible HTTP interface: connections, time-outs, concurrency limits,
//! ordered fallback and the retry budget. Called by the conversation and the feedback agent.
//!
//! The addresses come from the operator's configuration alone; nothing in a request can name a host,
//! redirects are not followed, and a key is only ever sent to the address it was configured for.

mod address;
mod body;
mod budget;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use waltz_exchange::record::Attempt;

use address::{Guard, metadata_literal};
pub use body::{Body, parse_answer, seconds_now};
pub use budget::RetryBudget;

/// The form that an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Chat completions.
    OpenAi,
    /// Messages.
    Anthropic,
}

/// What an upstream is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// An answer.
    Chat,
    /// Vectors.
    Embeddings,
}

/// The version of Anthropic's form that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// How one upstream is reached.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// The operator's name for it.
    pub name: String,
    /// The address that paths such as `/chat/completions` are appended to.
    pub url: String,
    /// The form it speaks.
    pub protocol: Protocol,
    /// The key, sent as a bearer token or as `x-api-key`.
    pub key: Option<SecretString>,
    /// Models that it serves; `*` stands for any.
    pub models: Vec<String>,
    /// Limit for opening a connection.
    pub connect_timeout: Duration,
    /// Limit until the status line arrives.
    pub first_byte_timeout: Duration,
    /// Limit between two pieces of the body.
    pub chunk_timeout: Duration,
    /// Limit for the whole call, retries included.
    pub total_timeout: Duration,
    /// Calls at the same time; one more is shed at once.
    pub max_concurrent: usize,
    /// Longest body that is accepted.
    pub max_answer_bytes: usize,
    /// It may have an address under which cloud machines serve their metadata.
    pub allow_metadata: bool,
}

/// Why an upstream cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is no URL.
    #[error("is not a URL: {0}")]
    Url(String),
    /// The address is a metadata address, and that was not asked for.
    #[error("`{0}` is a metadata address of cloud machines; `allow_metadata_addresses` permits it")]
    Metadata(IpAddr),
    /// No client can be made.
    #[error("no client can be made for it: {0}")]
    Client(String),
}

/// One upstream with its connections.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    client: reqwest::Client,
    slots: Arc<Semaphore>,
}

/// An upstream and the model to ask it for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub upstream: Arc<Upstream>,
    /// Which model, by the upstream's own name.
    pub model: String,
}

/// Why a call gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// All slots are taken.
    #[error("upstream `{0}` has no free slot")]
    Shed(String),
    /// No connection, or it broke.
    #[error("upstream `{0}` cannot be reached")]
    Unreachable(String),
    /// A time-out; the second field says which.
    #[error("upstream `{0}` was too slow: {1}")]
    Timeout(String, &'static str),
    /// The answer is unusable.
    #[error("upstream `{0}` sent an unusable answer: {1}")]
    Unusable(String, String),
    /// An HTTP error.
    #[error("upstream `{upstream}` answered {status}")]
    Status {
        /// Which upstream.
        upstream: String,
        /// Its status.
        status: u16,
        /// `retry-after-ms` or `retry-after`, in milliseconds.
        retry_after_ms: Option<u64>,
        /// The head of its body.
        body: Bytes,
    },
}

impl CallError {
    /// Whether another try, here or elsewhere, may go better.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Shed(_) | Self::Unreachable(_) | Self::Timeout(..) => true,
            Self::Status { status, .. } => *status >= 500 || matches!(status, 408 | 409 | 429),
            Self::Unusable(..) => false,
        }
    }

    /// A word for records and headers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Shed(_) => "shed",
            Self::Unreachable(_) => "unreachable",
            Self::Timeout(..) => "timeout",
            Self::Unusable(..) => "unusable",
            Self::Status { .. } => "status",
        }
    }
}

impl Upstream {
    /// Makes the client. Nothing is connected yet.
    pub fn new(settings: UpstreamSettings) -> Result<Self, SetupError> {
        Self::guarded(settings, Guard::system())
    }

    fn guarded(settings: UpstreamSettings, guard: Guard) -> Result<Self, SetupError> {
        let url = reqwest::Url::parse(&settings.url).map_err(|error| SetupError::Url(error.to_string()))?;
        install_tls();
        let mut client = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(Duration::from_secs(60))
            .user_agent(concat!("waltz/", env!("CARGO_PKG_VERSION")));
        if !settings.allow_metadata {
            if let Some(address) = metadata_literal(&url) {
                return Err(SetupError::Metadata(address));
            }
            client = client.dns_resolver(guard);
        }
        let slots = Arc::new(Semaphore::new(settings.max_concurrent));
        let client = client.build().map_err(|error| SetupError::Client(error.to_string()))?;
        Ok(Self { settings, client, slots })
    }

    /// The operator's name for it.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The models that it serves, as configured.
    pub fn models(&self) -> &[String] {
        &self.settings.models
    }

    /// Whether it serves a model.
    pub fn serves(&self, model: &str) -> bool {
        self.settings.models.iter().any(|served| served == "*" || served == model)
    }

    /// The form it speaks.
    pub fn protocol(&self) -> Protocol {
        self.settings.protocol
    }

    /// When a call that begins now must be over.
    pub fn deadline(&self) -> tokio::time::Instant {
        tokio::time::Instant::now() + self.settings.total_timeout
    }

    /// Posts a JSON body and returns once the status and headers of a 2xx answer are here.
    pub async fn post(
        &self,
        call: Call,
        body: Bytes,
        deadline: tokio::time::Instant,
    ) -> Result<Body, CallError> {
        let UpstreamSettings { name, url, protocol, key, first_byte_timeout, .. } = &self.settings;
        let path = match (call, protocol) {
            (Call::Chat, Protocol::OpenAi) => "/chat/completions",
            (Call::Chat, Protocol::Anthropic) => "/messages",
            (Call::Embeddings, Protocol::OpenAi) => "/embeddings",
            (Call::Embeddings, Protocol::Anthropic) => {
                return Err(CallError::Unusable(name.clone(), "it has no embeddings".to_owned()));
            }
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(CallError::Shed(name.clone()));
        };
        let mut request = self
            .client
            .post(format!("{url}{path}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, text/event-stream")
            .body(body);
        if *protocol == Protocol::Anthropic {
            request = request.header("anthropic-version", ANTHROPIC_VERSION);
        }
        request = match (key, protocol) {
            (None, _) => request,
            (Some(key), Protocol::OpenAi) => request.bearer_auth(key.expose_secret()),
            (Some(key), Protocol::Anthropic) => request.header("x-api-key", key.expose_secret()),
        };
        let first_byte = deadline.min(tokio::time::Instant::now() + *first_byte_timeout);
        let response = match tokio::time::timeout_at(first_byte, request.send()).await {
            Err(_) => return Err(CallError::Timeout(name.clone(), "no answer began in time")),
            Ok(Err(error)) if error.is_timeout() => {
                return Err(CallError::Timeout(name.clone(), "no connection in time"));
            }
            Ok(Err(error)) => {
                tracing::debug!(upstream = %name, error = %error.without_url(), "call failed");
                return Err(CallError::Unreachable(name.clone()));
            }
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        let body = Body::new(name.clone(), response, slot, deadline, &self.settings);
        if status.is_success() {
            return if body.is_usable() {
                Ok(body)
            } else {
                let reason = "its content type is neither JSON nor an event stream";
                Err(CallError::Unusable(name.clone(), reason.to_owned()))
            };
        }
        if status.is_redirection() {
            return Err(CallError::Unusable(name.clone(), "a redirect, which is not followed".to_owned()));
        }
        let retry_after_ms = retry_after_ms(body.headers());
        let head = body.head(64 * 1024).await;
        Err(CallError::Status { upstream: name.clone(), status: status.as_u16(), retry_after_ms, body: head })
    }
}

/// Chooses the cryptography of the process. The first call wins; later ones find it done.
pub fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

/// Posts to the targets in order until one answers. A transient error is tried again at the same
/// target while its time and the budget last, then the next target is asked. Every call is noted in
/// `attempts`.
pub async fn post_with_fallback(
    targets: &[Target],
    budget: &RetryBudget,
    purpose: &str,
    call: Call,
    body_for: impl Fn(&Target) -> Bytes,
    attempts: &mut Vec<Attempt>,
) -> Result<(Body, Target), CallError> {
    budget.deposit();
    let mut last = None;
    for target in targets {
        let body = body_for(target);
        let deadline = target.upstream.deadline();
        let mut tries = 0;
        loop {
            tries += 1;
            let began = Instant::now();
            let position = attempts.len();
            attempts.push(abandoned(purpose, target));
            let outcome = target.upstream.post(call, body.clone(), deadline).await;
            attempts[position] = attempt(purpose, target, &outcome, began);
            match outcome {
                Ok(answer) => return Ok((answer, target.clone())),
                Err(error) => {
                    let transient = error.is_transient();
                    let next = tokio::time::Instant::now() + budget.pause(tries);
                    let again =
                        transient && retries_help(&error) && tries <= budget.max_retries() && next < deadline;
                    last = Some(error);
                    if again && budget.withdraw() {
                        tokio::time::sleep_until(next).await;
                        continue;
                    }
                    if !transient {
                        return Err(last.unwrap_or_else(|| CallError::Unreachable(String::new())));
                    }
                    break;
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| CallError::Unreachable("none".to_owned())))
}

/// A full upstream or a rate limit gets worse from more calls, so those go straight to the next target.
fn retries_help(error: &CallError) -> bool {
    !matches!(error, CallError::Shed(_) | CallError::Timeout(..) | CallError::Status { status: 429, .. })
}

/// What stays on record of a call if nobody waits for its end: the client hung up, or the judge's time is
/// over.
fn abandoned(purpose: &str, target: &Target) -> Attempt {
    Attempt {
        purpose: purpose.to_owned(),
        upstream: target.upstream.name().to_owned(),
        status: None,
        error: Some("abandoned".to_owned()),
        duration_ms: 0.0,
    }
}

fn attempt(purpose: &str, target: &Target, outcome: &Result<Body, CallError>, began: Instant) -> Attempt {
    let (status, error) = match outcome {
        Ok(_) => (Some(200), None),
        Err(CallError::Status { status, .. }) => (Some(*status), Some("status".to_owned())),
        Err(error) => (None, Some(error.word().to_owned())),
    };
    let duration_ms = began.elapsed().as_secs_f64() * 1e3;
    Attempt { status, error, duration_ms, ..abandoned(purpose, target) }
}

fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
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
