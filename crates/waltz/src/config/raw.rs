//! The configuration file exactly as it is written. Unknown keys are mistakes. The doc comments here
//! are the reference page and the schema's descriptions.

mod agents;
mod judge;
mod pii;
mod policy;
mod routing;
mod variants;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use agents::{Agent, Feedback, Protocol, Target, Upstream};
pub(crate) use judge::{FamilyState, FamilySwitch, Judge, Neural};
pub(crate) use pii::{Pii, PiiAction, PiiKindActions};
pub(crate) use policy::{Failure, Input, OnFailure, Policy, RawDepth, Stream};
pub(crate) use routing::{Cost, Routing, Rule, Scalar};
pub(crate) use variants::{
    Mode as RollbackMode, Profile, Proposals, Release, Rollback, Rule as VariantRule, Variants, Webhook,
};

/// The whole file, `waltz.toml`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// The listener.
    pub(crate) server: Server,
    /// The master switches; each also has an environment variable.
    pub(crate) waltz: Switches,
    /// Models behind an OpenAI-compatible interface.
    pub(crate) upstreams: Vec<Upstream>,
    /// Named conversation agents, asked for as model `waltz/<name>` or chosen by what they can do.
    pub(crate) agents: Vec<Agent>,
    /// Who gets which task, before capabilities decide.
    pub(crate) rules: Vec<Rule>,
    /// Limits of plans and runs, and what teams must have.
    pub(crate) routing: Routing,
    /// Level 2 of the judge, and what level 0 finds.
    pub(crate) judge: Judge,
    /// The feedback model.
    pub(crate) feedback: Feedback,
    /// The coaching loop.
    pub(crate) coach: Coach,
    /// Which requests are judged how deep.
    pub(crate) policy: Policy,
    /// What happens when the judge cannot do its work, per risk of the request.
    pub(crate) failure: Failure,
    /// How traffic is shared among live variants of an agent, and when one is applied.
    pub(crate) variants: Variants,
    /// When changes of variants are proposed, and who may approve them.
    pub(crate) proposals: Proposals,
    /// When a variant loses its traffic.
    pub(crate) rollback: Rollback,
    /// When a release moves on or ends.
    pub(crate) release: Release,
    /// Addresses that are told of rollbacks.
    pub(crate) webhooks: Vec<Webhook>,
    /// What is done with personal data and secrets.
    pub(crate) pii: Pii,
    /// What is kept of exchanges, and how safely.
    pub(crate) record: Record,
    /// How often a failed call is repeated: one that could not connect, broke off, or got 408, 409 or 5xx. After 429, a time-out, and
    /// where all slots are taken, the next upstream is asked at once. Beyond a reserve of ten, retries are at most a tenth of the
    /// calls.
    pub(crate) retry: Retry,
    /// Answers of requests with the header `Idempotency-Key`, kept in memory for the same request again.
    pub(crate) idempotency: Idempotency,
    /// What is told about the gateway's work.
    pub(crate) telemetry: Telemetry,
    /// Who may call. Without any, only programs on this machine may, and `listen` must be loopback.
    pub(crate) keys: Vec<Key>,
}

/// The listener.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    /// Address and port.
    pub(crate) listen: String,
    /// Folder of the database, the journal and the admin token; empty for the user's data folder.
    pub(crate) data_dir: String,
    /// Largest request body.
    pub(crate) max_body_bytes: u64,
    /// How often a held stream gets a comment.
    pub(crate) heartbeat_ms: u64,
    /// How long a client may take nothing of an answer, or send nothing of a request, before it is cut off.
    pub(crate) client_timeout_ms: u64,
    /// How long a client may take to send the headers of a request; also how long an idle connection is kept.
    pub(crate) header_timeout_ms: u64,
    /// How long a client may take to send the whole body of a request.
    pub(crate) body_timeout_ms: u64,
    /// Connections at the same time from one address; a further one is answered with 503 and closed. Raise it
    /// where a proxy in front brings all clients from one address.
    pub(crate) max_connections_per_peer: u32,
    /// How long open exchanges may take after a stop signal.
    pub(crate) drain_timeout_ms: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8787".to_owned(),
            data_dir: String::new(),
            max_body_bytes: 10 * 1024 * 1024,
            heartbeat_ms: 10_000,
            client_timeout_ms: 30_000,
            header_timeout_ms: 15_000,
            body_timeout_ms: 60_000,
            max_connections_per_peer: 512,
            drain_timeout_ms: 30_000,
        }
    }
}

/// Answers of requests with the header `Idempotency-Key`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Idempotency {
    /// How long an answer is kept after its end.
    pub(crate) keep_ms: u64,
    /// Bytes of all answers that are kept, each counted with 1024 more; the oldest make room.
    pub(crate) max_bytes: u64,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self { keep_ms: 3_600_000, max_bytes: 64 * 1024 * 1024 }
    }
}

/// What is told about the gateway's work.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Telemetry {
    /// `GET /metrics` asks for no key. Off: where there are `[[keys]]`, it asks for the admin token.
    pub(crate) metrics_public: bool,
}

/// The master switches.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Switches {
    /// Off makes a transparent proxy that is still recorded (`ENABLE_WALTZRL`).
    pub(crate) enabled: bool,
    /// Judge and annotate, never change an answer (`WALTZRL_FEEDBACK_ONLY`).
    pub(crate) feedback_only: bool,
    /// 1: rules and an untrained coach; 2: trained adapters as well (`WALTZRL_STAGE`), released step by step. Where none is
    /// named, or one cannot be used, stage 1 serves and `/readyz` says so.
    pub(crate) stage: u8,
    /// The most traffic in percent that a release may get (`WALTZRL_TRAFFIC_PERCENTAGE`).
    pub(crate) traffic_percentage: u8,
    /// The lowest safety score that passes the benchmark gate (`WALTZRL_SAFETY_THRESHOLD`).
    pub(crate) safety_threshold: f64,
    /// Refuse what fails the benchmark gate (`WALTZRL_BLOCK_ON_FAILURE`).
    pub(crate) block_on_failure: bool,
    /// Ask for a pass of the safety benchmark (`ENABLE_WALTZRL_SAFETY_BENCHMARKS`) before trained weights are released and
    /// before `waltz variants evolve` keeps or proposes a variant. Variants that compete are measured by their live
    /// outcomes alone. Off: none of them is applied, and no step of a release goes on, without a person.
    pub(crate) safety_benchmarks: bool,
    /// Capture reasoning traces for training (`ENABLE_TIER3_CAPTURE`).
    pub(crate) tier3_capture: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            enabled: true,
            feedback_only: false,
            stage: 1,
            traffic_percentage: 100,
            safety_threshold: 0.9,
            block_on_failure: false,
            safety_benchmarks: true,
            tier3_capture: false,
        }
    }
}

/// Who revises an answer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Revise {
    /// The conversation agent, and rules where it cannot be reached.
    Agent,
    /// Rules alone.
    Rules,
}

/// The coaching loop.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Coach {
    /// Rounds at most; 0 goes straight to the last-resort reply.
    pub(crate) max_rounds: u32,
    /// Who revises.
    pub(crate) revise: Revise,
    /// Stop coaching a request once feedback and revisions cost so many tokens.
    pub(crate) max_added_tokens: u64,
    /// Let the agent check its own draft against a short list before it is judged.
    pub(crate) self_check: bool,
}

impl Default for Coach {
    fn default() -> Self {
        Self { max_rounds: 3, revise: Revise::Agent, max_added_tokens: 50_000, self_check: false }
    }
}

/// What is kept of texts.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordText {
    /// Personal data and secrets masked.
    Masked,
    /// As it is.
    Full,
    /// None; hashes, scores and decisions only.
    None,
}

/// What an acknowledged exchange survives.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Durability {
    /// The end of the process, however it ends.
    Process,
    /// Loss of power too; every answer waits for the disk.
    Power,
}

/// What is kept of exchanges, and how safely.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Record {
    /// What is kept of texts.
    pub(crate) text: RecordText,
    /// Answer nothing that cannot be recorded. Off: answer, count and say so in a header.
    pub(crate) required: bool,
    /// What an acknowledged exchange survives.
    pub(crate) durability: Durability,
    /// The most journal that may wait for the database.
    pub(crate) max_journal_bytes: u64,
    /// The environment variable that holds a PostgreSQL address,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`. Left out: SQLite in the data folder.
    pub(crate) database_url_env: Option<String>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            text: RecordText::Masked,
            required: true,
            durability: Durability::Process,
            max_journal_bytes: 1024 * 1024 * 1024,
            database_url_env: None,
        }
    }
}

/// How often a failed call is repeated. Beyond a reserve of ten, retries are at most a tenth of the
/// traffic.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retry {
    /// Retries at one upstream before the next one is asked.
    pub(crate) max_retries: u32,
    /// Wait before the first retry; doubles with each.
    pub(crate) pause_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_retries: 2, pause_ms: 100 }
    }
}

/// A caller.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Key {
    /// A name for it.
    pub(crate) name: String,
    /// Whose data its exchanges are; the name when left out.
    pub(crate) tenant: Option<String>,
    /// SHA-256 of the key in hex: `printf %s "$KEY" | sha256sum`.
    pub(crate) sha256: String,
}
