//! The gate of trained weights: the benchmark's verdict is put beside those that it measured, and no others.

use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::json;
use waltz_coach::conversation::ConversationAgent;
use waltz_coach::upstream::Target;
use waltz_gateway::Live;
use waltz_train::evaluate::{Report, sha256_of};

use super::failed;
use crate::commands::{Exit, note};
use crate::config::Loaded;
use crate::config::gate::{Gate, Key, Scored};

/// The trained weights that answer, with the digest of each, taken before they do.
pub(super) fn measured(
    agent: &ConversationAgent,
    live: &Live,
    loaded: &Loaded,
    base: &Path,
) -> Result<Vec<(PathBuf, String)>, Exit> {
    let mut weights = Vec::new();
    for upstream in loaded.raw.upstreams.iter().filter(|_| live.settings.stage == 2) {
        let asked = |targets: &[Target]| targets.iter().any(|target| target.upstream.name() == upstream.name);
        let writes = asked(&agent.targets);
        let reads = live.feedback.as_ref().is_some_and(|feedback| asked(&feedback.targets));
        let files = [(writes, &upstream.adapters.conversation), (reads, &upstream.adapters.feedback)];
        for file in files.into_iter().filter(|(asked, _)| *asked).filter_map(|(_, file)| file.as_ref()) {
            let path = base.join(file);
            let digest = sha256_of(&path).map_err(failed)?;
            weights.push((path, digest));
        }
    }
    Ok(weights)
}

/// Puts the benchmark's verdict beside the trained weights that were measured, signed: no others are released.
pub(super) fn pass_on(made: &Report, weights: Vec<(PathBuf, String)>, data_dir: &Path) -> Result<(), Exit> {
    let Some(benchmark) = &made.benchmark else { return Ok(()) };
    if weights.is_empty() {
        return Ok(());
    }
    let key =
        Key::make(data_dir).with_context(|| format!("cannot make a key in `{}`", data_dir.display()))?;
    let scored_by = &made.scored_by;
    for (path, sha256) in weights {
        let calibration = scored_by.calibration.as_ref();
        let gate = Gate {
            sha256,
            verdict: benchmark.verdict.as_str().to_owned(),
            reasons: benchmark.reasons.clone(),
            measured_at: Timestamp::now(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            prompts_sha256: benchmark
                .examination
                .as_ref()
                .map_or_else(String::new, |examined| examined.prompts_sha256.clone()),
            settings: serde_json::to_value(&made.run).map_err(anyhow::Error::from)?,
            scorer: Scored {
                name: scored_by.scorer.clone(),
                sha256: scored_by.sha256.clone(),
                independent: scored_by.independent,
                calibration_sha256: calibration.map(|calibration| calibration.sha256.clone()),
                readers: calibration.map(|calibration| calibration.readers.as_str().to_owned()),
            },
            measured: json!({"benchmark": benchmark, "calibration": calibration}),
        };
        let written =
            gate.write(&path, &key).with_context(|| format!("cannot write beside `{}`", path.display()))?;
        note(&format!("the verdict on the weights is in {}", written.display()));
    }
    Ok(())
}
