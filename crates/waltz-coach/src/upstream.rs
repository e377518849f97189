//! Models behind an OpenAI-compatible HTTP interface: connections, time-outs, concurrency limits,
//! ordered fallback and the retry budget. Called by the conversation and the feedback agent.
//!
//! The addresses come from the operator's configuration alone; nothing in a request can name a host,
//! redirects are not followed, and a key is only ever sent to the address it was configured for.

mod address;
mod body;
mod budget;
mod call_error;
mod client;
mod connector;
mod fallback;
mod headers;
mod hook;
mod listing;
mod mailbox;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::local::{LocalModel, Trouble};
use address::{Guard, metadata_literal};
pub(crate) use body::Pieces;
pub use body::{Body, parse_answer, seconds_now};
pub use budget::RetryBudget;
use bytes::Bytes;
pub use call_error::CallError;
use client::{Client, Failure, Head};
pub use fallback::{ABANDONED, Course, post_with_fallback};
pub use hook::Hook;
use http::Response;
use listing::Listing;
pub use mailbox::Mailbox;
use secrecy::SecretString;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;
use waltz_model::AgentAdapters;

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
    /// An answer of the conversation agent.
    Chat,
    /// An opinion of the feedback agent.
    Feedback,
    /// Vectors.
    Embeddings,
    /// How many tokens a request of Anthropic's form has.
    CountTokens,
}

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
    /// Calls at the same time; one more is shed at once, or waits if it is one of a run.
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
    /// The key cannot stand in a header.
    #[error("has a key with characters that no header may have")]
    Key,
    /// No client can be made.
    #[error("no client can be made for it: {0}")]
    Client(String),
}

/// One upstream with its connections.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    speaker: Speaker,
    slots: Arc<Semaphore>,
}

/// Who answers.
#[derive(Debug)]
enum Speaker {
    /// A server.
    Server(Box<Server>),
    /// A model in this process, and what its agents were taught.
    Local(Arc<LocalModel>, AgentAdapters),
}

/// A server, and what calls to its addresses say, made once.
#[derive(Debug)]
struct Server {
    client: Client,
    host: Option<(String, u16)>,
    chat: Head,
    embeddings: Option<Head>,
    counts: Option<Head>,
    models: Head,
    listing: Listing,
}

/// An upstream and the model to ask it for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub upstream: Arc<Upstream>,
    /// Which model, by the upstream's own name.
    pub model: String,
}

impl Upstream {
    /// Makes the client. Nothing is connected yet.
    pub fn new(settings: UpstreamSettings) -> Result<Self, SetupError> {
        Self::guarded(settings, Guard::system())
    }

    fn guarded(settings: UpstreamSettings, guard: Guard) -> Result<Self, SetupError> {
        let address = |path: &str| {
            let whole = format!("{}{path}", settings.url);
            Url::parse(&whole).map_err(|error| SetupError::Url(error.to_string()))
        };
        let (chat, embeddings, counts) = match settings.protocol {
            Protocol::OpenAi => (address("/chat/completions")?, Some(address("/embeddings")?), None),
            Protocol::Anthropic => (address("/messages")?, None, Some(address("/messages/count_tokens")?)),
        };
        let models = address(match settings.protocol {
            Protocol::OpenAi => "/models",
            // Pages are short unless a longer one is asked for.
            Protocol::Anthropic => "/models?limit=1000",
        })?;
        let guard = match metadata_literal(&chat) {
            _ if settings.allow_metadata => guard.open(),
            Some(address) => return Err(SetupError::Metadata(address)),
            None => guard,
        };
        let headers = headers::of_calls(&settings)?;
        let head = |url: Option<Url>| url.map(|url| Head::post(&url, headers.clone())).transpose();
        let server = Server {
            client: Client::new(&chat, guard, settings.connect_timeout)?,
            host: chat.host_str().map(str::to_owned).zip(chat.port_or_known_default()),
            embeddings: head(embeddings)?,
            counts: head(counts)?,
            models: Head::get(&models, headers.clone())?,
            listing: Listing::default(),
            chat: Head::post(&chat, headers)?,
        };
        let slots = Arc::new(Semaphore::new(settings.max_concurrent));
        Ok(Self { settings, speaker: Speaker::Server(Box::new(server)), slots })
    }

    /// A model in this process, with trained adapters where there are some.
    pub fn local(settings: UpstreamSettings, model: Arc<LocalModel>, adapters: AgentAdapters) -> Self {
        let slots = Arc::new(Semaphore::new(settings.max_concurrent));
        Self { settings, speaker: Speaker::Local(model, adapters), slots }
    }

    /// The same without what its agents were taught. Its slots are shared: together they are one upstream.
    pub fn untaught(self: &Arc<Self>) -> Arc<Self> {
        match &self.speaker {
            Speaker::Server(_) => Arc::clone(self),
            Speaker::Local(model, _) => Arc::new(Self {
                settings: self.settings.clone(),
                speaker: Speaker::Local(Arc::clone(model), AgentAdapters::default()),
                slots: Arc::clone(&self.slots),
            }),
        }
    }

    /// The model in this process that answers, if it is one.
    pub fn local_model(&self) -> Option<&Arc<LocalModel>> {
        match &self.speaker {
            Speaker::Server(_) => None,
            Speaker::Local(model, _) => Some(model),
        }
    }

    /// The operator's name for it.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Who answers, as telemetry names it: the form tells, whoever stands behind it.
    pub fn provider(&self) -> &'static str {
        match (&self.speaker, self.settings.protocol) {
            (Speaker::Local(..), _) => "waltz",
            (Speaker::Server(_), Protocol::OpenAi) => "openai",
            (Speaker::Server(_), Protocol::Anthropic) => "anthropic",
        }
    }

    /// Host and port, where it is a server.
    pub fn server(&self) -> Option<(&str, u16)> {
        match &self.speaker {
            Speaker::Server(server) => server.host.as_ref().map(|(host, port)| (host.as_str(), *port)),
            Speaker::Local(..) => None,
        }
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

    /// A slot for one call. Where all are taken, the call is shed at once, unless it is one that `waits`: then it gets
    /// its turn as it came.
    pub async fn slot(&self, waits: bool) -> Result<OwnedSemaphorePermit, CallError> {
        let slots = Arc::clone(&self.slots);
        let slot = if waits { slots.acquire_owned().await.ok() } else { slots.try_acquire_owned().ok() };
        slot.ok_or_else(|| CallError::Shed(self.settings.name.clone()))
    }

    /// Whether more than half of its slots are free: then one call more takes nobody's place.
    pub fn has_spare_slots(&self) -> bool {
        self.slots.available_permits() > self.settings.max_concurrent.div_ceil(2)
    }

    /// Posts a JSON body and returns once the status and headers of a 2xx answer are here.
    pub async fn post(
        &self,
        slot: OwnedSemaphorePermit,
        call: Call,
        body: Bytes,
        deadline: tokio::time::Instant,
    ) -> Result<Body, CallError> {
        let name = &self.settings.name;
        let first_byte = deadline.min(tokio::time::Instant::now() + self.settings.first_byte_timeout);
        let answer = async {
            match &self.speaker {
                Speaker::Server(server) => self.send(server, call, body).await,
                Speaker::Local(model, adapters) => self.ask((model, adapters), call, &body, deadline).await,
            }
        };
        let response = tokio::time::timeout_at(first_byte, answer)
            .await
            .map_err(|_| CallError::Timeout(name.clone(), "no answer began in time"))??;
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
        let retry_after_ms = headers::retry_after_ms(body.headers());
        let head = body.head(64 * 1024).await;
        Err(CallError::Status { upstream: name.clone(), status: status.as_u16(), retry_after_ms, body: head })
    }

    async fn send(&self, server: &Server, call: Call, body: Bytes) -> Result<Response<Pieces>, CallError> {
        let name = &self.settings.name;
        let head = match call {
            Call::Chat | Call::Feedback => Ok(&server.chat),
            Call::Embeddings => server.embeddings.as_ref().ok_or("it has no embeddings"),
            Call::CountTokens => server.counts.as_ref().ok_or("it counts no tokens"),
        };
        let head = head.map_err(|why| CallError::Unusable(name.clone(), why.to_owned()))?;
        let answer = server.client.send(head, body).await.map_err(|failure| match failure {
            Failure::Timeout => CallError::Timeout(name.clone(), "no connection in time"),
            Failure::Broken(error) => {
                tracing::debug!(upstream = %name, %error, "call failed");
                CallError::Unreachable(name.clone())
            }
        })?;
        Ok(answer.map(Pieces::Server))
    }

    async fn ask(
        &self,
        (model, adapters): (&Arc<LocalModel>, &AgentAdapters),
        call: Call,
        body: &Bytes,
        deadline: tokio::time::Instant,
    ) -> Result<Response<Pieces>, CallError> {
        let name = &self.settings.name;
        model.answer(call, adapters, body, deadline).await.map_err(|trouble| match trouble {
            Trouble::Busy => CallError::Shed(name.clone()),
            Trouble::Invalid(message) => CallError::Status {
                upstream: name.clone(),
                status: 400,
                retry_after_ms: None,
                body: Trouble::body(&message),
            },
            Trouble::Broken(reason) => {
                tracing::error!(upstream = %name, reason, "the local model cannot answer");
                CallError::Unreachable(name.clone())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upstream at an address, with time for everything.
    pub(super) fn settings(url: &str) -> UpstreamSettings {
        let limit = Duration::from_secs(60);
        UpstreamSettings {
            name: "main".to_owned(),
            url: url.to_owned(),
            protocol: Protocol::OpenAi,
            key: None,
            models: vec!["*".to_owned()],
            connect_timeout: limit,
            first_byte_timeout: limit,
            chunk_timeout: limit,
            total_timeout: limit,
            max_concurrent: 1,
            max_answer_bytes: 1024,
            allow_metadata: false,
        }
    }

    #[tokio::test]
    async fn slots_are_spare_while_more_than_half_are_free() {
        let settings =
            |max_concurrent| UpstreamSettings { max_concurrent, ..settings("http://127.0.0.1/v1") };
        let upstream = Upstream::new(settings(4)).unwrap();
        let mut taken = Vec::new();
        for spare in [true, true, false, false] {
            assert_eq!(upstream.has_spare_slots(), spare, "{} taken", taken.len());
            taken.push(upstream.slot(false).await.unwrap());
        }
        taken.clear();
        assert!(upstream.has_spare_slots());
        assert!(!Upstream::new(settings(1)).unwrap().has_spare_slots(), "the only one is the clients'");
    }
}
