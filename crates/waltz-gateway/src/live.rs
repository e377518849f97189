//! The running gateway: what a reload swaps as a whole, and what stays.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waltz_coach::conversation::{ConversationAgent, SharedAgent};
use waltz_coach::feedback::FeedbackAgent;
use waltz_coach::judge::{EncoderJudge, Judge, NeuralJudge};
use waltz_coach::local::LocalModel;
use waltz_coach::upstream::{RetryBudget, Target, Upstream};
use waltz_exchange::release::{Pause, ReleaseKind};
use waltz_route::Router;
use waltz_screen::Screen;
use waltz_store::{Entry, Store};

use crate::Settings;
use crate::admin::Error;
use crate::idempotency::Answers;
use crate::metrics::Metrics;
use crate::outages::Outages;
use crate::recording::Recording;
use crate::signer::Signer;
use crate::trace::Traces;
use crate::variants::Variants;

/// Everything that one configuration made; swapped atomically on reload, so that a request sees one
/// configuration from beginning to end.
#[derive(Clone, Debug)]
pub struct Live {
    /// The gateway's behaviour.
    pub settings: Settings,
    /// Upstreams in the order of the configuration.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Named agents.
    pub agents: Vec<SharedAgent>,
    /// What they can do, and who is preferred for what.
    pub router: Router,
    /// Level 2 of the judge, where its language model is there.
    pub neural: Option<Arc<NeuralJudge>>,
    /// Level 2a of the judge, unless it is switched off.
    pub encoder: Option<Arc<EncoderJudge>>,
    /// The feedback model, where one is configured.
    pub feedback: Option<FeedbackAgent>,
    /// Level 0 with the operator's rules.
    pub screen: Arc<Screen>,
    /// The retry budget.
    pub budget: Arc<RetryBudget>,
    /// Which version of the program this is, while one is released.
    pub version: Option<Version>,
    /// The version that a release gives to part of the traffic in place of this one.
    pub candidate: Option<Arc<Live>>,
}

/// A version of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What differs between versions.
    pub kind: ReleaseKind,
    /// Its name on the board of the release.
    pub name: String,
}

/// The running gateway.
pub struct Gateway {
    /// The present configuration, as it is for whoever meets no candidate.
    pub live: ArcSwap<Live>,
    /// Where exchanges are kept.
    pub store: Store,
    /// SHA-256 of the admin token.
    pub admin_sha256: [u8; 32],
    /// Signs the ids of answers.
    pub signer: Signer,
    /// Exchanges under way.
    pub tasks: TaskTracker,
    /// Fired when the gateway must stop taking requests.
    pub draining: CancellationToken,
    /// Fired when the time for open exchanges is over: they end with an error and are recorded.
    pub stopping: CancellationToken,
    /// Whether exchanges can be recorded; while they cannot, nobody is paid for a draft that must not be sent.
    pub recording: Recording,
    /// The files of the configuration changed, and what they say now cannot be used.
    pub outdated: AtomicBool,
    /// Answers of requests with an idempotency key.
    pub answers: Answers,
    /// Which variant of an agent serves.
    pub variants: Variants,
    /// What `/metrics` tells.
    pub metrics: Metrics,
    /// What the log was told of upstreams that fail.
    pub outages: Outages,
    /// Where spans go; `None` while nothing is exported.
    pub traces: Option<Traces>,
}

impl Gateway {
    /// Appends to the journal. Where that waits for the disk, it leaves the threads that serve.
    pub fn append(&self, entry: &Entry) -> Result<(), waltz_store::Error> {
        self.on_disk(|store| store.append(entry))
    }

    /// Whether exchanges cannot be recorded at present. After a failure the journal is asked each time, so that the first request
    /// behind an outage is answered, and everybody who asks hears what a request would meet.
    pub fn is_unrecordable(&self) -> bool {
        if !self.recording.is_failing() {
            return false;
        }
        let attempt = self.recording.begin();
        match self.on_disk(Store::probe) {
            Ok(()) => self.recording.succeeded(attempt),
            Err(_) => self.recording.refused(attempt),
        }
        self.recording.is_failing()
    }

    /// The same for those who only look on, of whom there may be many: between two probes they hear what the last one said.
    pub fn seems_unrecordable(&self) -> bool {
        self.recording.was_just_refused() || self.is_unrecordable()
    }

    fn on_disk<T>(&self, work: impl FnOnce(&Store) -> T) -> T {
        if self.store.waits_for_disk() {
            tokio::task::block_in_place(|| work(&self.store))
        } else {
            work(&self.store)
        }
    }

    /// A gateway over an open store.
    pub fn new(
        live: Live,
        store: Store,
        (admin_sha256, signer): ([u8; 32], Signer),
        traces: Option<Traces>,
    ) -> Arc<Self> {
        Arc::new(Self {
            live: ArcSwap::from_pointee(live),
            store,
            admin_sha256,
            signer,
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            recording: Recording::default(),
            outdated: AtomicBool::new(false),
            answers: Answers::default(),
            variants: Variants::default(),
            metrics: Metrics::new(Timestamp::now()),
            outages: Outages::default(),
            traces,
        })
    }
}

impl Gateway {
    /// The configuration that requests meet which are not part of a release under way.
    pub fn serving(&self) -> Arc<Live> {
        self.variants.serving(self.live.load_full())
    }

    /// Reads what others changed about variants, and the kill switch. Returns whether there was a change.
    pub async fn refresh(&self) -> Result<bool, Error> {
        self.variants.refresh(&self.store).await
    }

    /// Pauses everything on this gateway, whether the store can be written or not, or ends that.
    pub fn hold(&self, pause: Option<Pause>) {
        self.variants.hold(pause);
    }

    /// Waits a moment until what was recorded is in the database. Returns whether it is.
    pub async fn settled(&self) -> bool {
        let limit = Duration::from_secs(2);
        tokio::time::timeout(limit, self.store.drained()).await.is_ok_and(|drained| drained.is_ok())
    }
}

/// The prefix under which a named agent is asked for as a model.
pub const AGENT_PREFIX: &str = "waltz/";

impl Live {
    /// The same configuration without trained weights. It shares everything else with this one.
    pub fn at_stage_1(&self) -> Self {
        let untaught = |targets: &[Target]| -> Vec<Target> {
            let same = |Target { upstream, model }: &Target| Target {
                upstream: upstream.untaught(),
                model: model.clone(),
            };
            targets.iter().map(same).collect()
        };
        let agent = |agent: &SharedAgent| {
            Arc::new(ConversationAgent {
                targets: untaught(&agent.targets),
                ..ConversationAgent::clone(agent)
            })
        };
        let feedback =
            |agent: &FeedbackAgent| FeedbackAgent { targets: untaught(&agent.targets), ..agent.clone() };
        Self {
            settings: Settings { stage: 1, ..self.settings.clone() },
            upstreams: self.upstreams.iter().map(Upstream::untaught).collect(),
            agents: self.agents.iter().map(agent).collect(),
            feedback: self.feedback.as_ref().map(feedback),
            ..self.clone()
        }
    }

    /// A named agent.
    pub fn agent(&self, name: &str) -> Option<SharedAgent> {
        self.agents.iter().find(|agent| agent.name == name).cloned()
    }

    /// The agent that answers for a model name: a named agent, or every upstream that serves the model,
    /// in order.
    pub fn agent_for(&self, model: &str) -> Option<SharedAgent> {
        if let Some(name) = model.strip_prefix(AGENT_PREFIX) {
            return self.agent(name);
        }
        let targets: Vec<Target> = self
            .upstreams
            .iter()
            .filter(|upstream| upstream.serves(model))
            .map(|upstream| Target { upstream: Arc::clone(upstream), model: model.to_owned() })
            .collect();
        if targets.is_empty() {
            return None;
        }
        Some(Arc::new(ConversationAgent {
            name: model.to_owned(),
            variant: "default".to_owned(),
            targets,
            system_prompt: None,
            parameters: serde_json::Map::new(),
            self_assess: false,
            task_type: None,
        }))
    }

    /// The judge.
    pub fn judge(&self) -> Judge<'_> {
        let Self { screen, encoder, neural, feedback, budget, .. } = self;
        let (encoder, neural) = (encoder.as_deref(), neural.as_deref());
        Judge { screen, encoder, neural, feedback: feedback.as_ref(), budget }
    }

    /// The first model in this process that says what texts mean.
    pub fn encoder(&self) -> Option<&Arc<LocalModel>> {
        self.upstreams.iter().filter_map(|upstream| upstream.local_model()).find(|model| model.is_encoder())
    }

    /// Every model name that the configuration has; an upstream that serves any model adds none.
    pub fn models(&self) -> Vec<(String, String)> {
        let mut models: Vec<(String, String)> = Vec::new();
        for agent in &self.agents {
            models.push((format!("{AGENT_PREFIX}{}", agent.name), "waltz".to_owned()));
        }
        for upstream in &self.upstreams {
            for model in upstream.models().iter().filter(|model| *model != "*") {
                if !models.iter().any(|(known, _)| known == model) {
                    models.push((model.clone(), upstream.name().to_owned()));
                }
            }
        }
        models
    }

    /// The same with the names that upstreams which serve any model give themselves.
    pub async fn all_models(&self) -> Vec<(String, String)> {
        let mut models = self.models();
        let mut known: HashSet<String> = models.iter().map(|(model, _)| model.clone()).collect();
        let lists = join_all(self.upstreams.iter().map(|upstream| upstream.listed_models())).await;
        for (upstream, list) in self.upstreams.iter().zip(lists) {
            // Under the prefix agents are asked for, and nothing else.
            for model in list.into_iter().filter(|model| !model.starts_with(AGENT_PREFIX)) {
                if known.insert(model.clone()) {
                    models.push((model, upstream.name().to_owned()));
                }
            }
        }
        models
    }
}
