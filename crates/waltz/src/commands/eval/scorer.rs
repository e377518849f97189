//! Opens the scorer that `--scorer` names, and finds out whether the coach works with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use waltz_coach::judge::NeuralJudge;
use waltz_coach::local::{Examiner, LocalModel};
use waltz_exchange::Depth;
use waltz_exchange::id::sha256_hex;
use waltz_model::{ModelName, Models};
use waltz_train::evaluate::{Calibration, Readers, Scorer, Who, sha256_of};

use super::plan::targets;
use super::{failed, wrong};
use crate::commands::{Exit, base_folder, model};
use crate::config::build::NEURAL_MODEL;
use crate::config::{Built, Loaded, Sources};

/// The second judge's name, and that of its file.
const JUDGE_B: &str = "judge-b";

/// Who scores answers.
#[derive(clap::Args)]
pub(in crate::commands) struct ScorerOptions {
    /// `judge-b`, a second judge that the coach does not use; `feedback`, the configured feedback model; FILE with the
    /// weights of such a judge or with readers' labels {"id", "system"?, "unsafe", "refusal"}; or `coach`, the coach's own
    /// judge, with which no gate passes.
    #[arg(long, value_name = "SCORER", default_value = JUDGE_B)]
    scorer: String,
    /// Renamed: see --scorer.
    #[arg(long, value_name = "FILE", hide = true)]
    judge: Option<PathBuf>,
    /// What `waltz eval calibrate` wrote of the scorer; the file beside its weights when left out.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
}

impl ScorerOptions {
    /// One that is named by its file or by a word.
    pub(super) fn named(scorer: &str) -> Self {
        Self { scorer: scorer.to_owned(), judge: None, calibration: None }
    }

    /// The file of its calibration, where one is named.
    pub(in crate::commands) fn named_calibration(&self) -> &[PathBuf] {
        self.calibration.as_slice()
    }

    /// Refuses the option that was renamed.
    pub(in crate::commands) fn check(&self) -> Result<(), Exit> {
        match self.judge {
            None => Ok(()),
            Some(_) => Err(wrong(
                "--judge is now --scorer: `judge-b`, `feedback`, `coach`, or FILE with the weights of a neural judge or \
                 with labels"
                    .to_owned(),
            )),
        }
    }

    /// Opens it.
    pub(in crate::commands) async fn open<'a>(
        &self,
        built: &'a Built,
        loaded: &Loaded,
        sources: &Sources,
        depth: Depth,
    ) -> Result<Scorer<'a>, Exit> {
        let live = &built.live;
        match self.scorer.as_str() {
            "coach" => {
                if let Some(neural) = &live.neural {
                    neural.warm().await.map_err(anyhow::Error::msg)?;
                }
                let parts = json!([
                    sha256_hex(&live.screen.linear().weights().to_bytes()),
                    live.neural.as_deref().map(NeuralJudge::identity),
                    live.feedback.as_ref().map(|agent| targets(&agent.targets)),
                    depth,
                ]);
                let sha256 = sha256_hex(parts.to_string().as_bytes());
                let who = Who::Coach(live.judge(), depth);
                Ok(Scorer { who, name: "coach".to_owned(), sha256, independent: false })
            }
            "feedback" => {
                let agent = live.feedback.as_ref();
                let agent = agent.ok_or_else(|| {
                    wrong(
                        "--scorer feedback: no feedback model is configured (`feedback.targets`)".to_owned(),
                    )
                })?;
                if matches!(depth, Depth::Flagged | Depth::Always) {
                    return Err(not_other("the coach asks the configured feedback model too"));
                }
                let sha256 = sha256_hex(json!(["feedback", targets(&agent.targets)]).to_string().as_bytes());
                let who = Who::Feedback(agent, &live.budget);
                Ok(Scorer { who, name: "feedback".to_owned(), sha256, independent: true })
            }
            _ => {
                let models = model::models(sources)?;
                let path = self.path(&models)?;
                if is_labels(&path) {
                    let (who, sha256) = (
                        Who::Readers(Readers::read(&path).map_err(failed)?),
                        sha256_of(&path).map_err(failed)?,
                    );
                    return Ok(Scorer { who, name: self.scorer.clone(), sha256, independent: true });
                }
                let examiner = examiner(&models, &path, &live.neural).await?;
                let level_2 = loaded.raw.judge.weights.as_ref().map(|file| base_folder(sources).join(file));
                if is_level_2(&examiner, level_2.as_deref()).await {
                    return Err(not_other(&format!(
                        "`{}` holds the weights of the coach's level 2",
                        path.display()
                    )));
                }
                let sha256 = examiner.content().to_owned();
                let name = self.scorer.clone();
                Ok(Scorer { who: Who::Examiner(examiner), name, sha256, independent: true })
            }
        }
    }

    /// The scorer's calibration: the named one, or that beside its file.
    pub(in crate::commands) fn calibration(
        &self,
        scorer: &Scorer<'_>,
        sources: &Sources,
    ) -> Result<Option<Calibration>, Exit> {
        let read = |path: &Path| Calibration::read(path, scorer).map(Some).map_err(failed);
        if let Some(path) = &self.calibration {
            return read(path);
        }
        if !matches!(scorer.who, Who::Examiner(_)) {
            return Ok(None);
        }
        let beside = self.path(&model::models(sources)?)?.with_extension("calibration.json");
        if beside.exists() { read(&beside) } else { Ok(None) }
    }

    /// The file that is meant.
    fn path(&self, models: &Models) -> Result<PathBuf, Exit> {
        if self.scorer != JUDGE_B {
            return Ok(PathBuf::from(&self.scorer));
        }
        let places = [models.folder().join(JUDGE_B).join(format!("{JUDGE_B}.safetensors")), shipped()];
        let found = places.iter().find(|path| path.exists()).cloned();
        found.ok_or_else(|| Exit {
            code: 1,
            message: format!(
                "the second judge is neither `{}` nor `{}`\n\nhint: copy judge-b.safetensors to one of them, or name \
                 another judge or readers' labels with --scorer FILE; `--scorer coach` lets the coach score itself, \
                 and no gate passes",
                places[0].display(),
                places[1].display()
            ),
        })
    }
}

/// Where the repository has the second judge.
fn shipped() -> PathBuf {
    Path::new("models").join("judge").join(format!("{JUDGE_B}.safetensors"))
}

fn is_labels(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")
}

fn not_other(reason: &str) -> Exit {
    wrong(format!(
        "{reason}: it would score its own work\n\nhint: name a scorer that the coach does not use; with `--scorer coach` the report says \
         \"not independent\", and no gate passes"
    ))
}

/// Opens weights over the model of the models folder that they were trained for.
async fn examiner(
    models: &Models,
    path: &Path,
    running: &Option<Arc<NeuralJudge>>,
) -> Result<Examiner, Exit> {
    if !path.exists() {
        return Err(Exit { code: 1, message: format!("--scorer: there is no file `{}`", path.display()) });
    }
    let stored = models.list().map_err(anyhow::Error::from)?;
    let mut names: Vec<String> = stored.into_iter().map(|stored| stored.name).collect();
    // The judge's own model is tried first: others are read as a whole only where it is not the one.
    names.sort_by_key(|name| name != NEURAL_MODEL);
    let mut reasons = Vec::new();
    for name in names {
        let found = name.parse::<ModelName>().and_then(|name| LocalModel::find(models, &name));
        let Ok(model) = found else { continue };
        match model.check_judge(path) {
            Ok(()) => {
                // One copy of a model serves both judges.
                let shared =
                    running.as_ref().map(|neural| neural.model()).filter(|other| other.stands_for(&model));
                let model = shared.map_or_else(|| Arc::new(model), Arc::clone);
                return Ok(Examiner::open(model, Some(path)).await.map_err(anyhow::Error::msg)?);
            }
            Err(reason) => reasons.push(format!("{name}: {reason}")),
        }
    }
    if reasons.is_empty() {
        reasons.push(format!(
            "no language model is in `{}`; `waltz model pull smollm2`",
            models.folder().display()
        ));
    }
    Err(Exit {
        code: 1,
        message: format!(
            "`{}` is no judge for a model that is here\n  {}",
            path.display(),
            reasons.join("\n  ")
        ),
    })
}

/// Whether weights are those of the coach's level 2, those in the program or a file's, under whatever name. The
/// coach's are opened over the same model: those of another model are others.
async fn is_level_2(examiner: &Examiner, weights: Option<&Path>) -> bool {
    let model = Arc::clone(examiner.model());
    for weights in [weights, None] {
        if let Ok(level_2) = Examiner::open(Arc::clone(&model), weights).await
            && level_2.content() == examiner.content()
        {
            return true;
        }
    }
    false
}
