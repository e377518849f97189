//! Makes both versions of the program where one is to be released: what serves now, and the candidate that is given to more
//! and more of the traffic. Trained weights, a policy or a judge can be on their way, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use waltz_coach::local::LocalModel;
use waltz_exchange::id;
use waltz_exchange::release::ReleaseKind;
use waltz_exchange::variant::DEFAULT_VARIANT;
use waltz_gateway::Version;

use super::{Built, Check, build};
use crate::config::gate::Gate;
use crate::config::raw::{Judge, RawConfig};
use crate::config::{Loaded, Mistake};

/// A configuration as it is served: where it names a candidate, `live` is what serves without it. Both share their
/// connections and models.
pub(crate) fn in_steps(
    loaded: &Loaded,
    environment: &[(String, String)],
    base: &Path,
    running: &[Arc<LocalModel>],
) -> Result<Built, Vec<Mistake>> {
    let mut built = build(loaded, environment, base, running)?;
    let raw = &loaded.raw;
    let Some(kind) = kind(raw, built.live.settings.stage)? else { return Ok(built) };
    let mut candidate = built.live.clone();
    let mut check = Check::new(&[], environment, base);
    match kind {
        ReleaseKind::Weights => built.live = built.live.at_stage_1(),
        ReleaseKind::Policy => {
            let screen = check.screen(raw.policy.candidate_rules_file.as_deref(), &raw.judge);
            candidate.screen = screen.map_or(candidate.screen, Arc::new);
        }
        ReleaseKind::Judge => {
            let judge = Judge { weights: raw.judge.candidate_weights.clone(), ..raw.judge.clone() };
            let models = check.models(Some(&built.data_dir));
            let running: Vec<_> = built.live.neural.iter().map(|neural| neural.model().clone()).collect();
            candidate.neural = check.neural(&judge, &models, &running).map(Arc::new);
            if candidate.neural.is_none() {
                check.mistake("judge.candidate_weights", "needs the neural judge, whose model is not there");
            }
        }
        ReleaseKind::Variant => {}
    }
    if !check.mistakes.is_empty() {
        return Err(renamed(check.mistakes));
    }
    let files: Vec<PathBuf> = files(raw, kind).map(|file| base.join(file)).collect();
    if kind == ReleaseKind::Weights && raw.waltz.safety_benchmarks {
        built.stage_trouble = Gate::refuses(&files, &built.data_dir);
        if built.stage_trouble.is_some() {
            return Ok(built);
        }
    }
    let name = name(kind, &files).map_err(|mistake| vec![mistake])?;
    candidate.version = Some(Version { kind, name });
    built.live.version = Some(Version { kind, name: DEFAULT_VARIANT.to_owned() });
    built.live.candidate = Some(Arc::new(candidate));
    Ok(built)
}

/// Files of which a change makes another candidate.
pub(crate) fn files(raw: &RawConfig, kind: ReleaseKind) -> Box<dyn Iterator<Item = &String> + '_> {
    match kind {
        ReleaseKind::Weights => Box::new(raw.upstreams.iter().flat_map(|upstream| upstream.adapters.files())),
        ReleaseKind::Policy => Box::new(raw.policy.candidate_rules_file.iter()),
        ReleaseKind::Judge => Box::new(raw.judge.candidate_weights.iter()),
        ReleaseKind::Variant => Box::new(std::iter::empty()),
    }
}

/// The name of the candidate that a configuration names, as far as its files can be read.
pub(crate) fn configured_name(raw: &RawConfig, base: &Path) -> Option<String> {
    let kind = kind(raw, raw.waltz.stage).ok()??;
    let files: Vec<PathBuf> = files(raw, kind).map(|file| base.join(file)).collect();
    name(kind, &files).ok()
}

/// What is to be released. Two at once could not be told apart by what comes of them.
fn kind(raw: &RawConfig, stage: u8) -> Result<Option<ReleaseKind>, Vec<Mistake>> {
    let policy = raw.policy.candidate_rules_file.is_some();
    let judge = raw.judge.candidate_weights.is_some();
    match (stage == 2, policy, judge) {
        (false, false, false) => Ok(None),
        (true, false, false) => Ok(Some(ReleaseKind::Weights)),
        (false, true, false) => Ok(Some(ReleaseKind::Policy)),
        (false, false, true) => Ok(Some(ReleaseKind::Judge)),
        _ => {
            let key = if policy { "policy.candidate_rules_file" } else { "judge.candidate_weights" };
            let message = "trained weights (`waltz.stage = 2`), rules and a judge are released one at a time";
            Err(vec![Mistake::new(key, message)])
        }
    }
}

/// The candidate's name: other content is another candidate.
fn name(kind: ReleaseKind, files: &[PathBuf]) -> Result<String, Mistake> {
    let mut digests = String::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| {
            Mistake::new("release", format!("`{}` cannot be read: {error}", file.display()))
        })?;
        digests.push_str(&id::sha256_hex(&bytes));
    }
    let digest = id::sha256_hex(digests.as_bytes());
    Ok(format!("{}-{}", kind.as_str(), digest.get(..12).unwrap_or_default()))
}

/// Mistakes of a candidate's file, under the key that names it.
fn renamed(mistakes: Vec<Mistake>) -> Vec<Mistake> {
    let key = |key: String| match key.as_str() {
        "policy.rules_file" => "policy.candidate_rules_file".to_owned(),
        "judge.weights" => "judge.candidate_weights".to_owned(),
        _ => key,
    };
    mistakes.into_iter().map(|mistake| Mistake { key: key(mistake.key), ..mistake }).collect()
}
