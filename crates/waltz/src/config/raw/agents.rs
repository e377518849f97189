//! The sections that say who answers and who gives feedback.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Cost;

/// The form that an upstream speaks.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// Chat completions.
    Openai,
    /// Messages.
    Anthropic,
}

/// One upstream.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Upstream {
    /// A name for it.
    pub(crate) name: String,
    /// The address that `/chat/completions` is appended to, such as `https://api.openai.com/v1`; or `local:smollm2` for
    /// a model in this process.
    pub(crate) url: String,
    /// The form it speaks: `openai` (chat completions) or `anthropic` (messages, such as
    /// `https://api.anthropic.com/v1`).
    pub(crate) protocol: Protocol,
    /// The environment variable that holds the key.
    pub(crate) key_env: Option<String>,
    /// The file that holds the key.
    pub(crate) key_file: Option<String>,
    /// Models it serves; `*` stands for any, and for a `local:` model for its own name: `local/smollm2`. Of upstreams that
    /// serve a model, the first in the file is asked and the others are its fallback, so that a `*` in the first takes all.
    pub(crate) models: Vec<String>,
    /// Limit for opening a connection.
    pub(crate) connect_timeout_ms: u64,
    /// Limit until an answer begins.
    pub(crate) first_byte_timeout_ms: u64,
    /// Limit between two pieces of an answer; of a stream, between two lines.
    pub(crate) chunk_timeout_ms: u64,
    /// Limit for a whole call, retries included.
    pub(crate) total_timeout_ms: u64,
    /// Calls at the same time; one more is refused at once with 503, or waits if it is one of a run.
    pub(crate) max_concurrent: u32,
    /// Longest answer that is accepted.
    pub(crate) max_answer_bytes: u64,
    /// What the agents of a `local:` model were taught; it serves at `waltz.stage = 2` only.
    pub(crate) adapters: Adapters,
    /// Connect even to addresses under which cloud machines serve their metadata and credentials: link-local
    /// ones such as 169.254.169.254, and the like.
    pub(crate) allow_metadata_addresses: bool,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            protocol: Protocol::Openai,
            key_env: None,
            key_file: None,
            models: vec!["*".to_owned()],
            connect_timeout_ms: 5_000,
            first_byte_timeout_ms: 60_000,
            chunk_timeout_ms: 30_000,
            total_timeout_ms: 300_000,
            max_concurrent: 256,
            max_answer_bytes: 16 * 1024 * 1024,
            adapters: Adapters::default(),
            allow_metadata_addresses: false,
        }
    }
}

impl Upstream {
    /// The name of the model in this process that it is, if it is one.
    pub(crate) fn local(&self) -> Option<&str> {
        self.url.strip_prefix("local:")
    }

    /// The models it serves. Behind a server may be any; a model in this process is one, and answers in the place of no
    /// other unless its operator names it so.
    pub(crate) fn served(&self) -> Vec<String> {
        let own = |model: &String| match self.local() {
            Some(name) if model == "*" => format!("local/{name}"),
            _ => model.clone(),
        };
        self.models.iter().map(own).collect()
    }
}

/// Files that `waltz train sft` made for this very model. All that are named serve, or none.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Adapters {
    /// The adapter of the agent that answers, read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<String>,
    /// The adapter of the agent that `feedback.targets` asks, read again when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) feedback: Option<String>,
}

impl Adapters {
    /// The files that are named.
    pub(crate) fn files(&self) -> impl Iterator<Item = &String> {
        self.conversation.iter().chain(&self.feedback)
    }
}

/// One named conversation agent.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Agent {
    /// Its name; clients ask for model `waltz/<name>`.
    pub(crate) name: String,
    /// Upstreams and models, in the order of fallback.
    pub(crate) targets: Vec<Target>,
    /// Instructions that go before the conversation.
    pub(crate) system_prompt: Option<String>,
    /// Ask the agent to assess its own answer in JSON.
    pub(crate) self_assess: bool,
    /// The kinds of task it does. The first is that of a request for it that does not say.
    pub(crate) task_types: Vec<String>,
    /// What it knows; tasks and teams can ask for it.
    pub(crate) skills: Vec<String>,
    /// What it costs, beside others; of agents that are equal otherwise the cheaper one is taken.
    pub(crate) cost: Cost,
    /// How often it succeeds; the best of those who do a task gets it.
    pub(crate) success_rate: f64,
    /// Tasks of one level of a plan that it takes.
    pub(crate) max_concurrent: u32,
    /// The name that `task_types` had before; naming it is a mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub(crate) task_type: Option<String>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            name: String::new(),
            targets: Vec::new(),
            system_prompt: None,
            self_assess: false,
            task_types: Vec::new(),
            skills: Vec::new(),
            cost: Cost::Medium,
            success_rate: 0.5,
            max_concurrent: 10,
            task_type: None,
        }
    }
}

/// An upstream and a model of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Target {
    /// The upstream's name.
    pub(crate) upstream: String,
    /// The model, by the upstream's own name.
    pub(crate) model: String,
}

/// The feedback model. Without targets the rules judge alone.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Feedback {
    /// Upstreams and models, in the order of fallback.
    pub(crate) targets: Vec<Target>,
    /// Limit for one opinion.
    pub(crate) timeout_ms: u64,
    /// Ask the upstream for JSON mode.
    pub(crate) json_mode: bool,
}

impl Default for Feedback {
    fn default() -> Self {
        Self { targets: Vec::new(), timeout_ms: 20_000, json_mode: true }
    }
}
