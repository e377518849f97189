//! Decides the stage: 2 serves where upstreams name trained adapters and every one of them can be used.
//!
//! Weights that cannot be used are no mistake of the configuration: stage 1 serves without them.

use waltz_coach::local::LocalModel;
use waltz_model::{AgentAdapters, Models};

use super::Check;
use crate::config::raw::{RawConfig, Upstream};

/// Which stage serves, and with what.
#[derive(Debug)]
pub(crate) struct Stage {
    /// 1 or 2.
    pub(crate) serves: u8,
    /// Why stage 1 serves where 2 was asked for.
    pub(crate) trouble: Option<String>,
    /// What the agents of each upstream were taught, in the order of the file; nothing at stage 1.
    pub(super) adapters: Vec<AgentAdapters>,
}

impl Check<'_> {
    /// Opens the adapters if stage 2 is asked for. They serve together or not at all: half of what was taught is
    /// something that nobody has tried.
    pub(crate) fn stage(&mut self, raw: &RawConfig, models: &Models) -> Stage {
        for (index, upstream) in raw.upstreams.iter().enumerate() {
            let at = |agent: &str| format!("upstreams[{index}].adapters.{agent}");
            let agents = [
                ("conversation", &upstream.adapters.conversation),
                ("feedback", &upstream.adapters.feedback),
            ];
            for (agent, _) in agents.into_iter().filter(|(_, file)| file.is_some()) {
                if !upstream.url.starts_with("local:") {
                    self.mistake(at(agent), "only a `local:` model can have adapters");
                }
            }
            let is_asked = raw.feedback.targets.iter().any(|target| target.upstream == upstream.name);
            if upstream.adapters.feedback.is_some() && !is_asked {
                self.mistake(at("feedback"), "no entry of `feedback.targets` asks this upstream");
            }
        }
        let opened = match raw.waltz.stage {
            2 => self.adapters(&raw.upstreams, models),
            _ => Ok(Vec::new()),
        };
        match opened {
            Ok(adapters) if adapters.is_empty() => Stage { serves: 1, trouble: None, adapters },
            Ok(adapters) => Stage { serves: 2, trouble: None, adapters },
            Err(reason) => Stage { serves: 1, trouble: Some(reason), adapters: Vec::new() },
        }
    }

    fn adapters(&self, upstreams: &[Upstream], models: &Models) -> Result<Vec<AgentAdapters>, String> {
        if upstreams.iter().all(|upstream| upstream.adapters.files().next().is_none()) {
            return Err(
                "no upstream names an adapter (`adapters.conversation` or `adapters.feedback`)".to_owned()
            );
        }
        upstreams.iter().map(|upstream| self.adapters_of(upstream, models)).collect()
    }

    fn adapters_of(&self, upstream: &Upstream, models: &Models) -> Result<AgentAdapters, String> {
        let named = &upstream.adapters;
        if named.files().next().is_none() {
            return Ok(AgentAdapters::default());
        }
        let name = upstream.url.strip_prefix("local:").unwrap_or_default();
        let path = |file: &Option<String>| file.as_ref().map(|file| self.base.join(file));
        let (conversation, feedback) = (path(&named.conversation), path(&named.feedback));
        let found = name.parse().and_then(|name| LocalModel::find(models, &name));
        let opened = found.and_then(|model| model.adapters(conversation.as_deref(), feedback.as_deref()));
        // With what the system said: a message of the model's names the file alone.
        opened.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }
}
