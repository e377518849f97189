//! Checks the sections that say who answers: upstreams with their keys, agents, and their targets.

use std::collections::BTreeSet;
use std::sync::Arc;

use secrecy::SecretString;
use waltz_coach::conversation::ConversationAgent;
use waltz_coach::local::LocalModel;
use waltz_coach::upstream::{Protocol, SetupError, Target, Upstream, UpstreamSettings};
use waltz_exchange::release::PROGRAM;
use waltz_model::{AgentAdapters, Models};

use super::{Check, is_variable_name};
use crate::config::raw;

impl Check<'_> {
    pub(super) fn upstreams(
        &mut self,
        raw: &[raw::Upstream],
        models: &Models,
        adapters: Vec<AgentAdapters>,
        running: &[Arc<LocalModel>],
    ) -> Vec<Arc<Upstream>> {
        let mut adapters = adapters.into_iter();
        let mut names = BTreeSet::new();
        let mut upstreams = Vec::new();
        for (index, upstream) in raw.iter().enumerate() {
            let at = |field: &str| format!("upstreams[{index}].{field}");
            let adapters = adapters.next().unwrap_or_default();
            self.name(&at("name"), &upstream.name, &mut names);
            let local = upstream.local();
            let host = upstream.url.strip_prefix("https://").or_else(|| upstream.url.strip_prefix("http://"));
            let sound = host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '?', '#', ' ']));
            if !sound && local.is_none() {
                let message = "must be http:// or https:// with a host, and without credentials, query or fragment; or local: and the name of a model";
                self.mistake(at("url"), message);
            }
            if let Some((meant, call)) = without_call(&upstream.url).filter(|_| local.is_none()) {
                self.mistake(
                    at("url"),
                    format!("waltz appends `{call}` and other paths itself: give `{meant}`"),
                );
            }
            if upstream.models.is_empty() {
                self.mistake(at("models"), "must name at least one model, or \"*\" for any");
            }
            let max_concurrent = u64::from(upstream.max_concurrent);
            self.within(&at("max_concurrent"), max_concurrent, 1, 100_000);
            self.within(&at("max_answer_bytes"), upstream.max_answer_bytes, 1024, 1 << 30);
            let settings = UpstreamSettings {
                name: upstream.name.clone(),
                url: upstream.url.trim_end_matches('/').to_owned(),
                protocol: match upstream.protocol {
                    raw::Protocol::Openai => Protocol::OpenAi,
                    raw::Protocol::Anthropic => Protocol::Anthropic,
                },
                key: self.upstream_key(index, upstream),
                models: upstream.served(),
                connect_timeout: self.duration(&at("connect_timeout_ms"), upstream.connect_timeout_ms),
                first_byte_timeout: self
                    .duration(&at("first_byte_timeout_ms"), upstream.first_byte_timeout_ms),
                chunk_timeout: self.duration(&at("chunk_timeout_ms"), upstream.chunk_timeout_ms),
                total_timeout: self.duration(&at("total_timeout_ms"), upstream.total_timeout_ms),
                max_concurrent: usize::try_from(upstream.max_concurrent).unwrap_or(usize::MAX),
                max_answer_bytes: usize::try_from(upstream.max_answer_bytes).unwrap_or(usize::MAX),
                allow_metadata: upstream.allow_metadata_addresses,
            };
            if let Some(name) = local {
                match name.parse().and_then(|name| LocalModel::find(models, &name)) {
                    Ok(model) => {
                        let loaded = running.iter().find(|loaded| loaded.stands_for(&model)).cloned();
                        let model = loaded.unwrap_or_else(|| Arc::new(model));
                        upstreams.push(Arc::new(Upstream::local(settings, model, adapters)));
                    }
                    Err(error) => self.mistake(at("url"), error.to_string()),
                }
                continue;
            }
            match Upstream::new(settings) {
                Ok(upstream) => upstreams.push(Arc::new(upstream)),
                // A mistake in the form of the address was named above.
                Err(SetupError::Url(_)) if !sound => {}
                Err(error) => self.mistake(at("url"), error.to_string()),
            }
        }
        upstreams
    }

    fn upstream_key(&mut self, index: usize, upstream: &raw::Upstream) -> Option<SecretString> {
        let at = |field: &str| format!("upstreams[{index}].{field}");
        let key = match (&upstream.key_env, &upstream.key_file) {
            (None, None) => return None,
            (Some(_), Some(_)) => {
                self.mistake(at("key_env"), "give either key_env or key_file, not both");
                return None;
            }
            (Some(name), None) if !is_variable_name(name) => {
                // It may be the key itself, so that it is not repeated here.
                self.mistake(at("key_env"), "must be the name of an environment variable, not a key");
                return None;
            }
            (Some(name), None) => match self.variable(name) {
                Some(key) => key.to_owned(),
                None => {
                    self.mistake(at("key_env"), format!("the environment variable {name} is not set"));
                    return None;
                }
            },
            (None, Some(file)) => match std::fs::read_to_string(self.base.join(file)) {
                Ok(key) => key,
                Err(error) => {
                    self.mistake(at("key_file"), format!("cannot be read: {error}"));
                    return None;
                }
            },
        };
        let key = key.trim();
        if key.is_empty() || key.chars().any(|letter| letter.is_control() || !letter.is_ascii()) {
            self.mistake(at("key_env"), "the key must be one line of ASCII and not empty");
            return None;
        }
        Some(SecretString::from(key.to_owned()))
    }

    /// The agents; what they can do is checked with the router.
    pub(super) fn agents(
        &mut self,
        raw: &[raw::Agent],
        upstreams: &[Arc<Upstream>],
    ) -> Vec<Arc<ConversationAgent>> {
        let mut agents = Vec::new();
        for (index, agent) in raw.iter().enumerate() {
            let at = |field: &str| format!("agents[{index}].{field}");
            if agent.name == PROGRAM {
                self.mistake(at("name"), "this name is kept for releases of the program itself");
            }
            agents.push(Arc::new(ConversationAgent {
                name: agent.name.clone(),
                variant: "default".to_owned(),
                targets: self.targets(&at("targets"), &agent.targets, upstreams, true),
                system_prompt: agent.system_prompt.clone(),
                parameters: serde_json::Map::new(),
                self_assess: agent.self_assess,
                task_type: agent.task_types.first().cloned(),
            }));
        }
        agents
    }

    pub(super) fn targets(
        &mut self,
        key: &str,
        raw: &[raw::Target],
        upstreams: &[Arc<Upstream>],
        required: bool,
    ) -> Vec<Target> {
        if raw.is_empty() && required {
            self.mistake(key, "must hold at least one { upstream, model }");
        }
        let mut targets = Vec::new();
        for (index, target) in raw.iter().enumerate() {
            if target.model.is_empty() {
                self.mistake(format!("{key}[{index}].model"), "must name a model");
            }
            match upstreams.iter().find(|upstream| upstream.name() == target.upstream) {
                Some(upstream) => {
                    targets.push(Target { upstream: Arc::clone(upstream), model: target.model.clone() });
                }
                None => {
                    let known: Vec<&str> = upstreams.iter().map(|upstream| upstream.name()).collect();
                    let message = format!("must be one of [{}], not `{}`", known.join(", "), target.upstream);
                    self.mistake(format!("{key}[{index}].upstream"), message);
                }
            }
        }
        targets
    }
}

/// The address that is meant where one ends in the path of a call, and that path.
fn without_call(url: &str) -> Option<(&str, &'static str)> {
    let calls = [
        "/chat/completions",
        "/completions",
        "/embeddings",
        "/messages",
        "/messages/count_tokens",
        "/models",
        "/responses",
    ];
    let url = url.trim_end_matches('/');
    let meant = |call: &'static str| {
        let meant = url.strip_suffix(call)?.trim_end_matches('/');
        // Hosts may be called so.
        let has_host = meant.split_once("://").is_some_and(|(_, host)| !host.is_empty());
        has_host.then_some((meant, call))
    };
    calls.into_iter().find_map(meant)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use waltz_model::{ModelName, PullSettings, pull};

    use super::*;

    #[test]
    fn an_address_of_a_call_is_a_mistake_that_names_the_one_that_is_meant() {
        let models = Models::new(Path::new("none"));
        let told = |url: &str| {
            let raw: raw::Upstream = toml::from_str(&format!("name = \"a\"\nurl = \"{url}\"\n")).unwrap();
            let mut check = Check::new(&[], &[], Path::new(""));
            check.upstreams(&[raw], &models, Vec::new(), &[]);
            let said = check.mistakes.iter().map(|mistake| format!("{}: {}", mistake.key, mistake.message));
            said.collect::<Vec<_>>().join("; ")
        };
        for call in ["/chat/completions", "/completions", "/embeddings", "/messages", "/models", "/responses"]
        {
            for end in ["", "/"] {
                let told = told(&format!("https://llm.example/v1{call}{end}"));
                let wanted =
                    format!("waltz appends `{call}` and other paths itself: give `https://llm.example/v1`");
                assert!(told.contains("upstreams[0].url") && told.contains(&wanted), "{told}");
            }
        }
        for sound in [
            "https://llm.example/v1",
            "https://llm.example/messages/v1",
            "https://completions.example",
            "http://messages",
            "http://embeddings/",
        ] {
            assert_eq!(told(sound), "");
        }
    }

    #[test]
    fn a_model_goes_on_over_a_reload_while_its_file_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let models = Models::new(folder.path());
        let name: ModelName = "hf:owner/name".parse().unwrap();
        let file = folder.path().join("some.gguf");
        let pulled = |version: u8| {
            // The smallest sound GGUF file, of this version: no tensors, no values.
            let mut bytes = b"GGUF".to_vec();
            bytes.extend([version]);
            bytes.resize(24, 0);
            std::fs::write(&file, bytes).unwrap();
            pull(&models, &name, Some(&file), &PullSettings::default(), &mut |_| ()).unwrap();
        };
        let raw: raw::Upstream =
            toml::from_str("name = \"a\"\nurl = \"local:hf:owner/name\"\nmodels = [\"m\"]\n").unwrap();
        let model = |running: &[Arc<LocalModel>]| {
            let mut check = Check::new(&[], &[], Path::new(""));
            let upstreams = check.upstreams(std::slice::from_ref(&raw), &models, Vec::new(), running);
            assert!(check.mistakes.is_empty(), "{:?}", check.mistakes);
            Arc::clone(upstreams[0].local_model().unwrap())
        };
        pulled(3);
        let first = model(&[]);
        let running = [Arc::clone(&first)];
        assert!(Arc::ptr_eq(&model(&running), &first));
        pulled(2);
        assert!(!Arc::ptr_eq(&model(&running), &first), "its file is another one");
    }
}
