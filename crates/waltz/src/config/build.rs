//! Checks a raw configuration and makes what the crates use. Every mistake is named; nothing is opened.

mod agents;
mod candidate;
mod judge;
mod pii;
mod routing;
mod screen;
mod stage;
mod variants;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use waltz_coach::feedback::FeedbackAgent;
use waltz_coach::local::LocalModel;
use waltz_coach::rounds::CoachSettings;
use waltz_coach::upstream::RetryBudget;
use waltz_gateway::Live;
use waltz_gateway::idempotency::Keep;
use waltz_gateway::settings::{
    FailurePolicy, InputPolicy, Key, OnFailure, Policy, RecordText, Settings, StreamPolicy,
};
use waltz_model::Models;
use waltz_screen::{Rules, Screen};
use waltz_store::Database;

pub(crate) use candidate::{configured_name, files as candidate_files, in_steps};
pub(crate) use judge::NEURAL_MODEL;
use stage::Stage;

use super::raw::{self, RawConfig};
use super::{Loaded, Mistake};

/// A configuration that can be served.
#[derive(Debug)]
pub struct Built {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) drain_timeout: Duration,
    pub(crate) store: waltz_store::Settings,
    pub(crate) live: Live,
    /// Why stage 1 serves where 2 was asked for.
    pub(crate) stage_trouble: Option<String>,
}

/// Checks everything. `base` is the folder that relative paths of the file start from; models that are `running` already
/// go on.
pub fn build(
    loaded: &Loaded,
    environment: &[(String, String)],
    base: &Path,
    running: &[Arc<LocalModel>],
) -> Result<Built, Vec<Mistake>> {
    let raw = &loaded.raw;
    let mut check = Check::new(&loaded.mistakes, environment, base);
    let listen = check.listen(raw);
    let data_dir = check.data_dir(&raw.server.data_dir);
    let models = check.models(data_dir.as_deref());
    let Stage { serves: stage, trouble: stage_trouble, adapters } = check.stage(raw, &models);
    let upstreams = check.upstreams(&raw.upstreams, &models, adapters, running);
    let agents = check.agents(&raw.agents, &upstreams);
    // One copy of a model serves as upstream and as judge.
    let local = upstreams.iter().filter_map(|upstream| upstream.local_model().cloned());
    let local: Vec<Arc<LocalModel>> = local.chain(running.iter().cloned()).collect();
    let neural = check.neural(&raw.judge, &models, &local);
    let encoder = check.encoder(&raw.judge);
    let router = check.router(raw);
    let feedback_targets = check.targets("feedback.targets", &raw.feedback.targets, &upstreams, false);
    let screen = check.screen(raw.policy.rules_file.as_deref(), &raw.judge);
    let database = check.database(raw.record.database_url_env.as_deref());
    let settings = check.settings(raw, stage);
    check.within("retry.max_retries", u64::from(raw.retry.max_retries), 0, 5);
    check.within("retry.pause_ms", raw.retry.pause_ms, 1, 2_000);
    check.within("server.drain_timeout_ms", raw.server.drain_timeout_ms, 0, 600_000);
    check.within("record.max_journal_bytes", raw.record.max_journal_bytes, 1024 * 1024, 1 << 44);
    let feedback_timeout = check.duration("feedback.timeout_ms", raw.feedback.timeout_ms);
    let (Some(listen), Some(data_dir), Some(screen), Some(database), Some(router), true) =
        (listen, data_dir, screen, database, router, check.mistakes.is_empty())
    else {
        return Err(check.mistakes);
    };
    let feedback = (!feedback_targets.is_empty()).then_some(FeedbackAgent {
        targets: feedback_targets,
        timeout: feedback_timeout,
        json_mode: raw.feedback.json_mode,
    });
    let budget = RetryBudget::new(raw.retry.max_retries, Duration::from_millis(raw.retry.pause_ms));
    let store = waltz_store::Settings {
        data_dir: data_dir.clone(),
        sync: match raw.record.durability {
            raw::Durability::Process => waltz_store::Sync::Process,
            raw::Durability::Power => waltz_store::Sync::Power,
        },
        max_journal_bytes: raw.record.max_journal_bytes,
        database,
        ..waltz_store::Settings::default()
    };
    Ok(Built {
        listen,
        data_dir,
        drain_timeout: Duration::from_millis(raw.server.drain_timeout_ms),
        store,
        live: Live {
            settings,
            upstreams,
            agents,
            router,
            neural: neural.map(Arc::new),
            encoder: encoder.map(Arc::new),
            feedback,
            screen: Arc::new(screen),
            budget: Arc::new(budget),
            version: None,
            candidate: None,
        },
        stage_trouble,
    })
}

/// What is checked, and the mistakes found so far.
pub(crate) struct Check<'a> {
    pub(crate) mistakes: Vec<Mistake>,
    environment: &'a [(String, String)],
    base: &'a Path,
}

impl<'a> Check<'a> {
    pub(crate) fn new(mistakes: &[Mistake], environment: &'a [(String, String)], base: &'a Path) -> Self {
        Self { mistakes: mistakes.to_vec(), environment, base }
    }

    fn mistake(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.mistakes.push(Mistake::new(key, message));
    }

    fn within(&mut self, key: &str, value: u64, least: u64, most: u64) {
        if !(least..=most).contains(&value) {
            self.mistake(key, format!("must be from {least} to {most}, not {value}"));
        }
    }

    fn duration(&mut self, key: &str, milliseconds: u64) -> Duration {
        self.within(key, milliseconds, 1, 3_600_000);
        Duration::from_millis(milliseconds)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn listen(&mut self, raw: &RawConfig) -> Option<SocketAddr> {
        let Ok(listen) = raw.server.listen.parse::<SocketAddr>() else {
            let message =
                format!("must be an address and a port such as 127.0.0.1:8787, not `{}`", raw.server.listen);
            self.mistake("server.listen", message);
            return None;
        };
        if !listen.ip().is_loopback() && raw.keys.is_empty() {
            self.mistake("server.listen", "must be loopback while no `[[keys]]` are configured");
        }
        Some(listen)
    }

    pub(crate) fn data_dir(&mut self, written: &str) -> Option<PathBuf> {
        if !written.is_empty() {
            return Some(self.base.join(written));
        }
        let home = self.variable("XDG_DATA_HOME").map(PathBuf::from).or_else(|| {
            let home = self.variable("HOME")?;
            Some(Path::new(home).join(".local/share"))
        });
        if home.is_none() {
            self.mistake("server.data_dir", "must be given where neither XDG_DATA_HOME nor HOME is set");
        }
        home.map(|home| home.join("waltz"))
    }

    /// The models folder: what WALTZ_MODELS names, or `models` in the data folder.
    pub(crate) fn models(&self, data_dir: Option<&Path>) -> Models {
        match (self.variable("WALTZ_MODELS").filter(|folder| !folder.is_empty()), data_dir) {
            (Some(folder), _) => Models::new(folder),
            (None, Some(data_dir)) => Models::new(data_dir.join("models")),
            // That there is no data folder is a mistake that was named.
            (None, None) => Models::new("models"),
        }
    }

    /// The database that the configuration names: an address in a variable, or SQLite.
    pub(crate) fn database(&mut self, url_env: Option<&str>) -> Option<Database> {
        let key = "record.database_url_env";
        let Some(name) = url_env else { return Some(Database::Sqlite) };
        if !is_variable_name(name) {
            self.mistake(key, "must be the name of an environment variable, not an address");
            return None;
        }
        let Some(url) = self.variable(name) else {
            self.mistake(key, format!("the environment variable {name} is not set"));
            return None;
        };
        let url = SecretString::from(url.to_owned());
        Database::postgres(url).map_err(|error| self.mistake(key, error.to_string())).ok()
    }

    pub(crate) fn screen(&mut self, rules_file: Option<&str>, judge: &raw::Judge) -> Option<Screen> {
        let screen = match rules_file {
            None => Screen::builtin(),
            Some(file) => match std::fs::read_to_string(self.base.join(file)) {
                Ok(text) => Rules::parse(&text).and_then(|rules| Screen::with_rules(&rules)),
                Err(error) => {
                    self.mistake("policy.rules_file", format!("`{file}` cannot be read: {error}"));
                    return None;
                }
            },
        };
        let screen = screen.map_err(|error| self.mistake("policy.rules_file", error.to_string())).ok()?;
        let settings = self.screen_settings(judge, &screen);
        Some(screen.with_settings(settings))
    }

    fn settings(&mut self, raw: &RawConfig, stage: u8) -> Settings {
        self.within("waltz.stage", u64::from(raw.waltz.stage), 1, 2);
        self.within("waltz.traffic_percentage", u64::from(raw.waltz.traffic_percentage), 0, 100);
        if !(0.0..=1.0).contains(&raw.waltz.safety_threshold) {
            self.mistake("waltz.safety_threshold", "must be a number from 0 to 1");
        }
        self.within("coach.max_rounds", u64::from(raw.coach.max_rounds), 0, 10);
        self.within("server.max_body_bytes", raw.server.max_body_bytes, 1024, 1 << 30);
        let heartbeat = self.duration("server.heartbeat_ms", raw.server.heartbeat_ms);
        let patience = self.duration("server.client_timeout_ms", raw.server.client_timeout_ms);
        let header_timeout = self.duration("server.header_timeout_ms", raw.server.header_timeout_ms);
        let body_timeout = self.duration("server.body_timeout_ms", raw.server.body_timeout_ms);
        let most = raw.server.max_connections_per_peer;
        self.within("server.max_connections_per_peer", u64::from(most), 1, 1_000_000);
        let idempotency = self.idempotency(&raw.idempotency);
        let policy = self.policy(&raw.policy);
        let on = |choice: raw::OnFailure| match choice {
            raw::OnFailure::Open => OnFailure::Open,
            raw::OnFailure::Closed => OnFailure::Closed,
        };
        Settings {
            enabled: raw.waltz.enabled,
            feedback_only: raw.waltz.feedback_only,
            stage,
            stage_wanted: raw.waltz.stage,
            max_body_bytes: usize::try_from(raw.server.max_body_bytes).unwrap_or(usize::MAX),
            heartbeat,
            patience,
            header_timeout,
            body_timeout,
            max_connections_per_peer: most as usize,
            policy,
            failure: FailurePolicy {
                low: on(raw.failure.low),
                medium: on(raw.failure.medium),
                high: on(raw.failure.high),
            },
            coach: CoachSettings {
                max_rounds: raw.coach.max_rounds,
                rules_only: matches!(raw.coach.revise, raw::Revise::Rules),
                max_added_tokens: raw.coach.max_added_tokens,
            },
            self_check: raw.coach.self_check,
            keys: self.keys(&raw.keys),
            metrics_public: raw.telemetry.metrics_public,
            idempotency,
            personal: self.pii(&raw.pii),
            record_text: match raw.record.text {
                raw::RecordText::Masked => RecordText::Masked,
                raw::RecordText::Full => RecordText::Full,
                raw::RecordText::None => RecordText::None,
            },
            record_required: raw.record.required,
            run: self.run_limits(&raw.routing),
            variants: self.variants(raw),
        }
    }

    fn idempotency(&mut self, raw: &raw::Idempotency) -> Keep {
        self.within("idempotency.keep_ms", raw.keep_ms, 1, 86_400_000);
        self.within("idempotency.max_bytes", raw.max_bytes, 1024 * 1024, 1 << 34);
        let bytes = usize::try_from(raw.max_bytes).unwrap_or(usize::MAX);
        Keep { time: Duration::from_millis(raw.keep_ms), bytes }
    }

    fn policy(&mut self, raw: &raw::Policy) -> Policy {
        self.word("policy.default_task_type", &raw.default_task_type);
        for (index, task_type) in raw.critical_task_types.iter().enumerate() {
            self.word(&format!("policy.critical_task_types[{index}]"), task_type);
        }
        const ROUTES: [&str; 4] =
            ["/v1/chat/completions", "/v1/messages", "/waltz/v1/evaluate", "/waltz/v1/run"];
        for route in raw.routes.keys().filter(|route| !ROUTES.contains(&route.as_str())) {
            self.mistakes.push(Mistake::new(
                format!("policy.routes.\"{route}\""),
                format!("must be one of {}", ROUTES.join(", ")),
            ));
        }
        let depths = |map: &BTreeMap<String, raw::RawDepth>| {
            map.iter().map(|(name, depth)| (name.clone(), (*depth).into())).collect()
        };
        Policy {
            input: match raw.input {
                raw::Input::Coach => InputPolicy::Coach,
                raw::Input::Block => InputPolicy::Block,
            },
            stream: match raw.stream {
                raw::Stream::ByRisk => StreamPolicy::ByRisk,
                raw::Stream::Whole => StreamPolicy::Whole,
            },
            default_task_type: raw.default_task_type.clone(),
            default_depth: raw.default_depth.into(),
            critical_depth: raw.critical_depth.into(),
            critical_task_types: raw.critical_task_types.clone(),
            task_types: depths(&raw.task_types),
            routes: depths(&raw.routes),
        }
    }

    fn keys(&mut self, raw: &[raw::Key]) -> Vec<Key> {
        let mut names = BTreeSet::new();
        let mut keys = Vec::new();
        for (index, key) in raw.iter().enumerate() {
            let at = |field: &str| format!("keys[{index}].{field}");
            self.name(&at("name"), &key.name, &mut names);
            if let Some(tenant) = &key.tenant {
                self.word(&at("tenant"), tenant);
            }
            match digest(&key.sha256) {
                Some(sha256) if sha256 == waltz_exchange::id::sha256(b"") => {
                    self.mistake(at("sha256"), "is the digest of an empty key: was the variable set?");
                }
                Some(sha256) if keys.iter().any(|known: &Key| known.sha256 == sha256) => {
                    self.mistake(at("sha256"), "is the digest of another entry's key");
                }
                Some(sha256) => keys.push(Key {
                    name: key.name.clone(),
                    tenant: key.tenant.clone().unwrap_or_else(|| key.name.clone()),
                    sha256,
                }),
                None => self.mistake(at("sha256"), "must be 64 hex digits: printf %s \"$KEY\" | sha256sum"),
            }
        }
        keys
    }

    fn name(&mut self, key: &str, name: &str, taken: &mut BTreeSet<String>) {
        self.word(key, name);
        if !taken.insert(name.to_owned()) {
            self.mistake(key, format!("`{name}` is taken already"));
        }
    }

    fn word(&mut self, key: &str, word: &str) {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if !(1..=64).contains(&word.len()) || !word.chars().all(plain) {
            self.mistake(key, format!("must be 1 to 64 letters, digits or any of . _ -, not `{word}`"));
        }
    }
}

/// Whether a text could be the name of an environment variable; keys of providers hold other characters.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    first
        && text.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
}

/// 64 hex digits as 32 bytes.
pub(crate) fn digest(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (position, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[position * 2..position * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}
