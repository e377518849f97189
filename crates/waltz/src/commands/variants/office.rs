//! What the commands on variants and releases work on: the database that the configuration names, and who acts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use jiff::Timestamp;
use waltz_gateway::admin::{Desk, KnownAgent};
use waltz_gateway::settings::VariantSettings;
use waltz_rollout::patch::Setup;
use waltz_store::Store;

use super::{Where, Who};
use crate::commands::{Exit, base_folder, configured_part, data, note};
use crate::config::build;

/// What the commands work on.
pub(crate) struct Office {
    pub(super) store: Store,
    settings: VariantSettings,
    agents: Vec<KnownAgent>,
    /// The kinds of tasks that each agent does, as the file has them.
    task_types: BTreeMap<String, Vec<String>>,
    candidate: Option<String>,
    by: String,
}

impl Office {
    /// Opens the database that the configuration names.
    pub(crate) async fn open(who: &Who) -> Result<Self, Exit> {
        let sources = who.options().sources();
        let (settings, agents, task_types, candidate) = configured_part(&sources, |check, loaded| {
            let models: BTreeSet<String> = match loaded.raw.upstreams.as_slice() {
                // The gateway answers from something that the file does not name.
                [] => ["*".to_owned()].into(),
                upstreams => upstreams.iter().flat_map(|upstream| upstream.served()).collect(),
            };
            let agents = loaded.raw.agents.iter().map(|agent| {
                let prompt = agent.system_prompt.clone().unwrap_or_default();
                let model = agent.targets.first().map(|target| target.model.clone()).unwrap_or_default();
                KnownAgent {
                    name: agent.name.clone(),
                    setup: Setup { prompt, model, ..Setup::default() },
                    abilities: agent.task_types.iter().chain(&agent.skills).cloned().collect(),
                    models: models.clone(),
                }
            });
            let candidate = build::configured_name(&loaded.raw, &base_folder(&sources));
            let task_types =
                loaded.raw.agents.iter().map(|agent| (agent.name.clone(), agent.task_types.clone()));
            Some((check.thresholds(&loaded.raw), agents.collect(), task_types.collect(), candidate))
        })?;
        Ok(Self { settings, agents, task_types, candidate, ..Self::for_switch(who).await? })
    }

    /// The same for what must be possible whatever is wrong with the rest of the configuration: to stop, and to go on.
    pub(crate) async fn for_switch(who: &Who) -> Result<Self, Exit> {
        let store = data::settings(&who.options())?;
        let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        let by = who.by.clone().or_else(user).unwrap_or_else(|| "operator".to_owned());
        let folder = store.data_dir.display().to_string();
        let store = Store::open_beside(&store).await;
        let store = store.with_context(|| format!("cannot open the store of `{folder}`"))?;
        Ok(Self {
            store,
            settings: VariantSettings::default(),
            agents: Vec::new(),
            task_types: BTreeMap::new(),
            candidate: None,
            by,
        })
    }

    /// Says where a kind of task is none of the agent's: that may be a slip, and is none where clients name kinds of
    /// their own.
    pub(super) fn note_task_type(&self, place: &Where) {
        let Where { agent, task_type } = place;
        let known = self.task_types.get(agent).filter(|known| !known.is_empty());
        if let Some(known) = known.filter(|known| !known.contains(task_type)) {
            note(&format!(
                "`{agent}` does {}, and not `{task_type}`: only requests that say this task type themselves meet the variant",
                known.join(", ")
            ));
        }
    }

    /// Closes the database.
    pub(crate) async fn close(&self) -> Result<(), waltz_store::Error> {
        self.store.close().await
    }

    /// Where actions are done.
    pub(crate) fn desk(&self) -> Desk<'_> {
        let Self { store, settings, agents, candidate, by, .. } = self;
        Desk { store, settings, agents, candidate: candidate.as_deref(), by, at: Timestamp::now() }
    }
}
