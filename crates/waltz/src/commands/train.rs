//! `waltz train`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use waltz_train::judge::{Half, Measured, Row, Schedule, Settings, Sources, Split, learn_from, split};

use super::bar::Bar;
use super::{Exit, note, print};

/// Learn from data.
#[derive(clap::Subcommand)]
pub(crate) enum Train {
    Judge(TrainJudge),
}

/// Train the linear judge, level 1 of the judge.
///
/// Runs on one thread in one order: the same data and list of sources give the same bytes on every machine.
/// Writes judge.bin, and prints how good the judge is on sources that it never saw, as a table.
#[derive(clap::Args)]
pub(crate) struct TrainJudge {
    /// The folder with the files of the sources.
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// The list of sources.
    #[arg(long, value_name = "FILE", default_value = "models/judge/sources.toml")]
    sources: PathBuf,
    /// Where judge.bin is written.
    #[arg(long, value_name = "DIR", default_value = "models/judge")]
    out: PathBuf,
    /// Which half of the sources teaches: `a` is shipped, `b` only scores evaluations.
    #[arg(long, value_name = "HALF", default_value = "a", value_parser = half)]
    half: Half,
    /// Hold back a source that would teach, and measure on it; may be given more than once.
    #[arg(long, value_name = "SOURCE")]
    without: Vec<String>,
    /// Also write the rows of each part into this folder, for a comparison by another program.
    #[arg(long, value_name = "DIR")]
    rows: Option<PathBuf>,
}

fn half(name: &str) -> Result<Half, String> {
    match name {
        "a" => Ok(Half::A),
        "b" => Ok(Half::B),
        _ => Err("expected `a` or `b`".to_owned()),
    }
}

impl Train {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Judge(judge) => judge.run(),
        }
    }
}

impl TrainJudge {
    fn run(self) -> Result<(), Exit> {
        let began = Instant::now();
        let sources = Sources::read(&self.sources).map_err(anyhow::Error::from)?;
        let sources = sources.without(&self.without).map_err(anyhow::Error::from)?;
        let settings =
            Settings { data: &self.data, sources: &sources, half: self.half, schedule: Schedule::default() };
        let parts = split(&settings).map_err(anyhow::Error::from)?;
        if let Some(folder) = &self.rows {
            write_rows(folder, &parts)?;
        }
        let mut bar = Bar::new();
        let trained = learn_from(&parts, &settings, &mut |done, total| {
            bar.show("learn", done as u64, Some(total as u64), &format!("{total} rows"));
        });
        bar.end();
        let trained = trained.map_err(anyhow::Error::from)?;
        std::fs::create_dir_all(&self.out).context("cannot create the folder for the weights")?;
        let path = self.out.join("judge.bin");
        let bytes = trained.weights.to_bytes();
        std::fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!(
            "{} has {} bytes; learned from {} rows of data and {} made ones in {:.0} s",
            path.display(),
            bytes.len(),
            parts.data_rows,
            parts.taught.len() - parts.data_rows,
            began.elapsed().as_secs_f64()
        ));
        print_table(&trained.measured)
    }
}

fn write_rows(folder: &Path, parts: &Split) -> Result<(), Exit> {
    let write = |name: &str, rows: &[Row]| -> anyhow::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join(name))?);
        for row in rows {
            serde_json::to_writer(&mut file, row)?;
            file.write_all(b"\n")?;
        }
        Ok(file.flush()?)
    };
    std::fs::create_dir_all(folder).context("cannot create the folder for the rows")?;
    for (name, rows) in [
        ("taught.jsonl", &parts.taught),
        ("validation.jsonl", &parts.validation),
        ("held.jsonl", &parts.held),
    ] {
        write(name, rows).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

fn print_table(measured: &[Measured]) -> Result<(), Exit> {
    print(
        "| source | head | n+ | n- | F1 | AUC | FPR at 95 % recall | recall | false positives | recall, sure | false positives, sure |",
    )?;
    print("|---|---|---|---|---|---|---|---|---|---|---|")?;
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let percent = |value: Option<(f64, f64, f64)>| match value {
        Some((wrong, low, high)) => format!("{:.1} % [{:.1}, {:.1}]", wrong * 1e2, low * 1e2, high * 1e2),
        None => "-".to_owned(),
    };
    for Measured { source, head, measures } in measured {
        print(&format!(
            "| {source} | {head} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            measures.positives,
            measures.negatives,
            share(measures.f1),
            share(measures.auc),
            share(measures.fpr_at_95),
            share(measures.recall),
            percent(measures.fpr),
            share(measures.recall_sure),
            percent(measures.fpr_sure),
        ))?;
    }
    Ok(())
}
