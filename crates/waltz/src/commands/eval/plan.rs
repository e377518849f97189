//! What a run's answers depend on, by name: a run goes on only where all of it is the same.

use std::path::PathBuf;

use serde_json::{Value, json};
use waltz_coach::conversation::ConversationAgent;
use waltz_coach::judge::NeuralJudge;
use waltz_coach::upstream::Target;
use waltz_exchange::id::sha256_hex;
use waltz_gateway::Live;
use waltz_train::evaluate::{Plan, System, case_files, sha256_of};

use super::{Eval, depth, failed};
use crate::commands::{Exit, base_folder};
use crate::config::{Loaded, Sources};

impl Eval {
    pub(super) fn plan(
        &self,
        systems: &[System],
        agent: &ConversationAgent,
        live: &Live,
        loaded: &Loaded,
        sources: &Sources,
    ) -> Result<Plan, Exit> {
        let cases = self.cases.as_deref().map(case_files).transpose().map_err(failed)?;
        let mut plan = answering(agent, live, loaded, sources)?;
        let entries: [(&str, Value); 9] = [
            ("suite", json!(self.suite.as_str())),
            ("files", marks(&self.files)?),
            ("cases", marks(&cases.unwrap_or_default())?),
            ("limit", json!(self.limit)),
            ("seed", json!(self.seed)),
            ("systems", json!(systems)),
            ("max_tokens", json!(self.max_tokens)),
            ("temperature", json!(self.temperature)),
            ("depth", json!(depth(live, &live.settings.policy.default_task_type))),
        ];
        plan.extend(entries.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(plan)
    }
}

/// What answers depend on, whatever is asked: the agent, the coach, the judge and the rules.
pub(in crate::commands) fn answering(
    agent: &ConversationAgent,
    live: &Live,
    loaded: &Loaded,
    sources: &Sources,
) -> Result<Plan, Exit> {
    let rules = loaded.raw.policy.rules_file.as_ref().map(|file| base_folder(sources).join(file));
    let coach = live.settings.coach;
    let base = base_folder(sources);
    let taught = loaded.raw.upstreams.iter().flat_map(|upstream| upstream.adapters.files());
    let adapters: Vec<PathBuf> =
        taught.filter(|_| live.settings.stage == 2).map(|file| base.join(file)).collect();
    let entries: [(&str, Value); 11] = [
        ("adapters", marks(&adapters)?),
        ("model", json!(agent.name)),
        ("targets", json!(targets(&agent.targets))),
        ("system_prompt_sha256", json!(agent.system_prompt.as_ref().map(|text| sha256_hex(text.as_bytes())))),
        ("stage", json!(live.settings.stage)),
        ("feedback_targets", json!(live.feedback.as_ref().map(|agent| targets(&agent.targets)))),
        (
            "coach",
            json!({"max_rounds": coach.max_rounds, "rules_only": coach.rules_only, "max_added_tokens": coach.max_added_tokens}),
        ),
        ("neural", json!(live.neural.as_deref().map(NeuralJudge::identity))),
        ("failure", json!(format!("{:?}", live.settings.failure))),
        ("judge_sha256", json!(sha256_hex(&live.screen.linear().weights().to_bytes()))),
        ("rules_sha256", json!(rules.map(|file| sha256_of(&file)).transpose().map_err(failed)?)),
    ];
    Ok(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Upstreams and models, in order.
pub(in crate::commands) fn targets(targets: &[Target]) -> Vec<String> {
    targets.iter().map(|target| format!("{}/{}", target.upstream.name(), target.model)).collect()
}

/// Files by name and contents: where they lie does not matter.
pub(in crate::commands) fn marks(files: &[PathBuf]) -> Result<Value, Exit> {
    let mut marks = Vec::new();
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
        marks.push(json!({"file": name, "sha256": sha256_of(file).map_err(failed)?}));
    }
    Ok(Value::Array(marks))
}
