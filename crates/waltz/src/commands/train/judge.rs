//! `waltz train judge`.

mod encoder;
mod neural;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use waltz_train::judge::{Half, Measured, Schedule, Settings, Sources, Split, learn_from, split};
use waltz_train::leak::Guarded;

use super::super::bar::Bar;
use super::super::{Exit, note, print};

/// A level that can be trained.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// The linear judge.
    #[value(name = "1")]
    Linear,
    /// The encoder.
    #[value(name = "2a")]
    Encoder,
    /// The language model.
    #[value(name = "2b")]
    Neural,
}

/// Train the judge.
///
/// Level 1, the linear judge, runs on one thread in one order: the same data and list of sources give the same bytes
/// on every machine. Level 2b trains all weights of a local language model on the same rows and writes the change as an
/// adapter; level 2a trains an encoder, taught by 2b where its labels are given. Both are meant for a GPU. Each writes its weights
/// and prints how good the judge is on sources that it never saw, as a table.
#[derive(clap::Args)]
pub(crate) struct TrainJudge {
    /// Which level of the judge learns.
    #[arg(long, value_enum, default_value_t = Level::Linear)]
    level: Level,
    /// The folder with the files of the sources.
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// The list of sources.
    #[arg(long, value_name = "FILE", default_value = "models/judge/sources.toml")]
    sources: PathBuf,
    /// Where the weights are written.
    #[arg(long, value_name = "DIR", default_value = "models/judge")]
    out: PathBuf,
    /// Which half of the sources teaches: `a` is shipped, `b` only scores evaluations.
    #[arg(long, value_name = "HALF", default_value = "a", value_parser = half)]
    half: Half,
    /// Hold back a source that would teach, and measure on it; may be given more than once.
    #[arg(long, value_name = "SOURCE")]
    without: Vec<String>,
    /// Also write the rows of each part into this folder: for a training elsewhere, or for another program.
    #[arg(long, value_name = "DIR")]
    rows: Option<PathBuf>,
    /// Write the rows and end.
    #[arg(long, requires = "rows")]
    only_rows: bool,
    /// Learn from rows that `--rows` wrote, and not from the files of the sources.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rows", "data", "half", "without"])]
    given: Option<PathBuf>,
    /// A benchmark that the rows must not hold: a row that is in it, or nearly so, ends the training before it begins.
    #[arg(long, value_name = "FILE")]
    benchmark: Option<PathBuf>,
    #[command(flatten)]
    neural: neural::NeuralOptions,
    #[command(flatten)]
    encoder: encoder::EncoderOptions,
}

fn half(name: &str) -> Result<Half, String> {
    match name {
        "a" => Ok(Half::A),
        "b" => Ok(Half::B),
        _ => Err("expected `a` or `b`".to_owned()),
    }
}

impl TrainJudge {
    pub(super) fn run(self) -> Result<(), Exit> {
        let sources = Sources::read(&self.sources).map_err(anyhow::Error::from)?;
        let sources = sources.without(&self.without).map_err(anyhow::Error::from)?;
        let settings =
            Settings { data: &self.data, sources: &sources, half: self.half, schedule: Schedule::default() };
        let parts = match &self.given {
            Some(folder) => Split::read(folder),
            None => split(&settings),
        };
        let parts = parts.map_err(anyhow::Error::from)?;
        if let Some(file) = &self.benchmark {
            let guarded = Guarded::read(file).map_err(anyhow::Error::from)?;
            for (what, rows) in [("the rows to learn from", &parts.taught), ("validation", &parts.validation)]
            {
                let rows = rows.iter().enumerate().map(|(index, row)| (index + 1, row.prompt.as_str()));
                guarded.check(what, rows).map_err(anyhow::Error::from)?;
            }
        }
        if let Some(folder) = &self.rows {
            parts.write(folder).map_err(anyhow::Error::from)?;
        }
        if self.only_rows {
            return Ok(());
        }
        std::fs::create_dir_all(&self.out).context("cannot create the folder for the weights")?;
        let measured = match self.level {
            Level::Linear => self.linear(&parts, &settings)?,
            Level::Encoder => self.encoder.run(&self.out, &parts, sources.seed)?,
            Level::Neural => self.neural.run(&self.out, &parts, sources.seed)?,
        };
        print_table(&measured)
    }

    fn linear(&self, parts: &Split, settings: &Settings<'_>) -> Result<Vec<Measured>, Exit> {
        let began = Instant::now();
        let mut bar = Bar::new();
        let trained = learn_from(parts, settings, &mut |done, total| {
            bar.show("learn", done as u64, Some(total as u64), &format!("{total} rows"));
        });
        bar.end();
        let trained = trained.map_err(anyhow::Error::from)?;
        let path = self.out.join("judge.bin");
        let bytes = trained.weights.to_bytes();
        std::fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!(
            "{} has {} bytes; learned from {} rows in {:.0} s",
            path.display(),
            bytes.len(),
            parts.taught.len(),
            began.elapsed().as_secs_f64()
        ));
        Ok(trained.measured)
    }
}

pub(super) fn print_table(measured: &[Measured]) -> Result<(), Exit> {
    print(
        "| source | head | n+ | n- | F1 | best F1 | AUC | FPR at 95 % recall | recall | false positives |",
    )?;
    print("|---|---|---|---|---|---|---|---|---|---|")?;
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let percent = |value: Option<(f64, f64, f64)>| match value {
        Some((wrong, low, high)) => format!("{:.1} % [{:.1}, {:.1}]", wrong * 1e2, low * 1e2, high * 1e2),
        None => "-".to_owned(),
    };
    for Measured { source, head, measures } in measured {
        print(&format!(
            "| {source} | {head} | {} | {} | {} | {} | {} | {} | {} | {} |",
            measures.positives,
            measures.negatives,
            share(measures.f1),
            share(measures.best_f1),
            share(measures.auc),
            share(measures.fpr_at_95),
            share(measures.recall),
            percent(measures.fpr),
        ))?;
    }
    Ok(())
}
