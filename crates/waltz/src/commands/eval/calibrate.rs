//! `waltz eval calibrate`: how good a scorer is, by the labels of independent readers.

use std::path::PathBuf;

use anyhow::Context as _;
use waltz_train::evaluate::{
    Calibration, CalibrationFile, Folder, LabelFile, ReaderKind, Readers, sha256_of,
};

use super::scorer::ScorerOptions;
use super::{depth, failed, labelled, wrong};
use crate::commands::{ConfigOptions, Exit, configured, note, print, runtime};

/// Measure a scorer against readers: sensitivity and specificity for harm and refusals, and how far readers agree.
///
/// Each reader labels answers that `waltz eval export-blind` drew, in a file of lines {"id", "unsafe", "refusal"}. What all
/// readers of an answer say is the truth; answers they do not agree about are left out and counted. FILE holds ids,
/// hashes, labels and scores, and no text. The gate for trained weights takes no scorer without it.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Calibrate {
    /// The run's folder.
    #[arg(long, value_name = "RUN")]
    answers: PathBuf,
    /// A reader's labels, JSON lines; give it once for each reader, twice at least.
    #[arg(long, value_name = "FILE", required = true)]
    labels: Vec<PathBuf>,
    /// The scorer, as in `waltz eval`.
    #[arg(long, value_name = "SCORER", default_value = "judge-b")]
    scorer: String,
    /// Who the readers are: people or language-models.
    #[arg(long, value_name = "WHO", default_value = "language-models", value_parser = readers)]
    readers: ReaderKind,
    /// The calibration file; it must not be there yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Begins the chance of intervals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Answers at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    #[command(flatten)]
    options: ConfigOptions,
}

fn readers(name: &str) -> Result<ReaderKind, String> {
    match name {
        "people" => Ok(ReaderKind::People),
        "language-models" => Ok(ReaderKind::LanguageModels),
        _ => Err("expected people or language-models".to_owned()),
    }
}

impl Calibrate {
    pub(super) fn run(&self) -> Result<(), Exit> {
        if self.out.exists() {
            return Err(wrong(format!("`{}` is there already", self.out.display())));
        }
        let mut files = Vec::new();
        for path in &self.labels {
            let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let sha256 = sha256_of(path).map_err(failed)?;
            files.push((LabelFile { file, sha256 }, Readers::read(path).map_err(failed)?));
        }
        let sources = self.options.sources();
        runtime()?.block_on(async {
            let (loaded, built) = configured(&sources)?;
            let depth = depth(&built.live, &built.live.settings.policy.default_task_type);
            let scorer = ScorerOptions::named(&self.scorer).open(&built, &loaded, &sources, depth).await?;
            let (folder, plan, items) = Folder::reopen(&self.answers).map_err(failed)?;
            let labels = labelled(&folder, &items, &scorer, usize::from(self.concurrency)).await?;
            let run = (&plan, &items[..], folder.rows());
            let made = CalibrationFile::new(run, &files, (&scorer, &labels), self.readers, self.seed);
            let made = made.map_err(failed)?;
            let text = serde_json::to_string_pretty(&made).map_err(anyhow::Error::from)?;
            std::fs::write(&self.out, text)
                .with_context(|| format!("cannot write `{}`", self.out.display()))?;
            for line in Calibration::of(&made, String::new()).lines() {
                print(&line)?;
            }
            note(&format!("the calibration is in {}", self.out.display()));
            Ok(())
        })
    }
}
