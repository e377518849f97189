//! How the gateway behaves: validated values, ready to use. The program makes them from its
//! configuration and swaps them in whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use waltz_coach::rounds::CoachSettings;
use waltz_coach::upstream::Hook;
use waltz_exchange::{Depth, Risk, policy};

use crate::api::run::RUN;
use crate::idempotency::Keep;
use crate::personal::PersonalPolicy;
use crate::router::CHAT;

/// Everything that a reload can change about the gateway's behaviour.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The master switch; off makes a transparent, still recorded proxy.
    pub enabled: bool,
    /// Judge and annotate, but never change an answer.
    pub feedback_only: bool,
    /// The stage that serves: 2 only where trained adapters do.
    pub stage: u8,
    /// `WALTZRL_STAGE`.
    pub stage_wanted: u8,
    /// Largest request body.
    pub max_body_bytes: usize,
    /// How often a held stream gets a comment.
    pub heartbeat: Duration,
    /// How long a client may take nothing, or send nothing, before it counts as gone.
    pub patience: Duration,
    /// How long a client may take to send the headers of a request.
    pub header_timeout: Duration,
    /// How long a client may take to send the whole body of a request.
    pub body_timeout: Duration,
    /// Connections at the same time from one address.
    pub max_connections_per_peer: usize,
    /// Which requests are judged how deep.
    pub policy: Policy,
    /// What happens when the judge cannot do its work.
    pub failure: FailurePolicy,
    /// The coaching loop.
    pub coach: CoachSettings,
    /// The conversation agent checks its own draft once before it is judged.
    pub self_check: bool,
    /// Who may call; empty means anybody on this machine.
    pub keys: Vec<Key>,
    /// `/metrics` asks for no key.
    pub metrics_public: bool,
    /// For how long the answers of requests with an idempotency key are kept.
    pub idempotency: Keep,
    /// What is done with personal data and secrets.
    pub personal: PersonalPolicy,
    /// What the record keeps of texts.
    pub record_text: RecordText,
    /// Refuse to answer what cannot be recorded.
    pub record_required: bool,
    /// The limits of runs.
    pub run: RunLimits,
    /// Which variants serve, and when that changes.
    pub variants: VariantSettings,
}

/// Which variants serve, and when that changes.
#[derive(Clone, Debug)]
pub struct VariantSettings {
    /// The thresholds.
    pub rollout: waltz_rollout::Settings,
    /// The plan of a release that the program opens itself.
    pub release_profile: String,
    /// Whoever proposed a change may approve it.
    pub allow_self_approval: bool,
    /// Who is told of rollbacks.
    pub webhooks: Vec<Arc<Hook>>,
}

impl Default for VariantSettings {
    fn default() -> Self {
        Self {
            rollout: waltz_rollout::Settings::default(),
            release_profile: waltz_rollout::release::PROFILES[0].to_owned(),
            allow_self_approval: false,
            webhooks: Vec::new(),
        }
    }
}

/// The limits of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// The most tasks of a run.
    pub tasks: usize,
    /// Tasks of one run that are done at the same time.
    pub parallel: usize,
    /// The most tasks of a graph, whether it is run or only planned.
    pub planned_tasks: usize,
    /// Bytes of results that one run collects and hands on, in all.
    pub result_bytes: usize,
    /// How long a run may take.
    pub time: Duration,
}

/// Which requests are judged how deep.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What to do with a prompt that asks for harm.
    pub input: InputPolicy,
    /// How streams are released.
    pub stream: StreamPolicy,
    /// The kind of task when nobody says.
    pub default_task_type: String,
    /// Depth of task types that are not safety-critical.
    pub default_depth: Depth,
    /// Depth of safety-critical task types.
    pub critical_depth: Depth,
    /// The safety-critical task types.
    pub critical_task_types: Vec<String>,
    /// Depth of single task types.
    pub task_types: BTreeMap<String, Depth>,
    /// Depth of single routes, such as `/v1/chat/completions`; the deeper of route and task wins.
    pub routes: BTreeMap<String, Depth>,
}

/// What to do with a prompt that asks for harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPolicy {
    /// Draft an answer and coach it.
    Coach,
    /// Refuse before any upstream call.
    Block,
}

/// How streams are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPolicy {
    /// Window by window where the risk is low, larger windows where it is medium, else as a whole.
    ByRisk,
    /// Only once the whole draft was read.
    Whole,
}

/// What happens when the judge cannot do its work, per risk.
#[derive(Clone, Copy, Debug)]
pub struct FailurePolicy {
    /// Ordinary traffic.
    pub low: OnFailure,
    /// Suspicious traffic.
    pub medium: OnFailure,
    /// Requests that ask for harm.
    pub high: OnFailure,
}

/// What happens when the judge cannot do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The rules decide alone, and the answer says so.
    Open,
    /// No answer is sent that was not read.
    Closed,
}

/// A caller.
#[derive(Clone, Debug)]
pub struct Key {
    /// The operator's name for it.
    pub name: String,
    /// Whose data its exchanges are.
    pub tenant: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
}

/// What the record keeps of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordText {
    /// Texts with personal data and secrets masked.
    Masked,
    /// Texts as they are.
    Full,
    /// No texts; hashes, scores and decisions only.
    None,
}

impl Settings {
    /// How deep a request on a route with a task type is read; not at all where waltz is switched off.
    pub fn depth(&self, route: &str, task_type: &str) -> Depth {
        if self.enabled { self.policy.depth(route, task_type) } else { Depth::None }
    }
}

impl Policy {
    /// How deep a request on a route with a task type is read.
    pub fn depth(&self, route: &str, task_type: &str) -> Depth {
        let by_task = self.task_types.get(task_type).copied().unwrap_or_else(|| {
            if self.critical_task_types.iter().any(|critical| critical == task_type) {
                self.critical_depth
            } else {
                self.default_depth
            }
        });
        // A task of a run is a chat request: whatever every chat request gets, it gets too.
        let routes = if route == RUN { &[RUN, CHAT][..] } else { &[route][..] };
        let by_route = routes.iter().filter_map(|route| self.routes.get(*route)).max();
        by_route.map_or(by_task, |by_route| (*by_route).max(by_task))
    }
}

impl FailurePolicy {
    /// What to do at a risk.
    pub fn at(&self, risk: Risk) -> OnFailure {
        match risk {
            Risk::Low => self.low,
            Risk::Medium => self.medium,
            Risk::High => self.high,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            feedback_only: false,
            stage: 1,
            stage_wanted: 1,
            max_body_bytes: 10 * 1024 * 1024,
            heartbeat: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            max_connections_per_peer: 512,
            policy: Policy::default(),
            failure: FailurePolicy {
                low: OnFailure::Open,
                medium: OnFailure::Closed,
                high: OnFailure::Closed,
            },
            coach: CoachSettings::default(),
            self_check: false,
            keys: Vec::new(),
            metrics_public: false,
            idempotency: Keep { time: Duration::from_secs(3600), bytes: 64 << 20 },
            personal: PersonalPolicy::default(),
            record_text: RecordText::Masked,
            record_required: true,
            run: RunLimits::default(),
            variants: VariantSettings::default(),
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            tasks: 256,
            parallel: 16,
            planned_tasks: 10_000,
            result_bytes: 64 << 20,
            time: Duration::from_secs(3600),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            input: InputPolicy::Coach,
            stream: StreamPolicy::ByRisk,
            default_task_type: "user_interaction".to_owned(),
            default_depth: Depth::Flagged,
            critical_depth: Depth::Always,
            critical_task_types: policy::SAFETY_CRITICAL_TASK_TYPES.map(str::to_owned).to_vec(),
            task_types: BTreeMap::new(),
            routes: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seven_safety_critical_types_are_read_deepest() {
        let policy = Policy::default();
        assert_eq!(policy.critical_task_types.len(), 7);
        for task_type in policy::SAFETY_CRITICAL_TASK_TYPES {
            assert_eq!(policy.depth("/v1/chat/completions", task_type), Depth::Always);
        }
        assert_eq!(policy.depth("/v1/chat/completions", "documentation"), Depth::Flagged);
    }

    #[test]
    fn a_route_can_only_deepen_and_a_task_type_can_be_set_alone() {
        let mut policy = Policy::default();
        policy.task_types.insert("batch".into(), Depth::None);
        assert_eq!(policy.depth("/v1/chat/completions", "batch"), Depth::None);
        policy.routes.insert("/v1/chat/completions".into(), Depth::Rules);
        assert_eq!(policy.depth("/v1/chat/completions", "batch"), Depth::Rules);
        assert_eq!(policy.depth("/v1/chat/completions", "security"), Depth::Always);
    }

    #[test]
    fn a_run_is_read_as_deep_as_every_chat_request_and_as_every_run() {
        let mut policy = Policy::default();
        policy.task_types.insert("batch".into(), Depth::None);
        assert_eq!(policy.depth(RUN, "batch"), Depth::None);
        policy.routes.insert(CHAT.into(), Depth::Always);
        assert_eq!(policy.depth(RUN, "batch"), Depth::Always);
        policy.routes.insert(RUN.into(), Depth::Rules);
        assert_eq!(policy.depth(RUN, "batch"), Depth::Always);
        policy.routes.insert(CHAT.into(), Depth::None);
        assert_eq!(policy.depth(RUN, "batch"), Depth::Rules);
        assert_eq!(policy.depth(CHAT, "batch"), Depth::None, "a floor of runs is none of chat requests");
    }
}
