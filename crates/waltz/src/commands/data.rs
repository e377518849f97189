//! `waltz data`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use waltz_store::{Format, Namespace, Store};
use waltz_train::evaluate::{Prompts, export};
use waltz_train::judge::Sources;

use super::{ConfigOptions, Exit, configured_keys, note, print, runtime};

/// Export what was recorded, or count it.
#[derive(clap::Subcommand)]
pub(crate) enum Data {
    /// Write coaching sessions, safety evaluations, training trajectories or a benchmark to a file.
    ///
    /// Reads the database beside a running gateway; what the gateway recorded in the last moments may
    /// still be in its journal.
    Export {
        /// safety/waltzrl/coaching, safety/waltzrl/evaluations or safety/waltzrl/training; the last word
        /// suffices.
        #[arg(required_unless_present = "benchmark")]
        namespace: Option<String>,
        /// Write the prompts of these files as a benchmark that may be given to others: personal data masked, only
        /// under licences that allow it, with a card beside it.
        #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["namespace", "format", "tenant"])]
        benchmark: Vec<PathBuf>,
        /// The list of sources that says which licences a benchmark may have.
        #[arg(long, value_name = "FILE", default_value = "models/judge/sources.toml")]
        sources: PathBuf,
        /// json, jsonl or parquet.
        #[arg(long, default_value = "jsonl")]
        format: String,
        /// The file to write; it must not exist.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Only this tenant's data.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        options: ConfigOptions,
    },
    /// Print interactions, mean score, safe rate, mean rounds.
    Stats {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Only this tenant's data.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        options: ConfigOptions,
    },
}

impl Data {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Export { benchmark, sources, out, .. } if !benchmark.is_empty() => {
                export_benchmark(&benchmark, &sources, &out)
            }
            Self::Export { namespace, format, out, tenant, options, .. } => {
                let namespace = namespace.unwrap_or_default();
                let wrong = |error: waltz_store::Error| Exit { code: 2, message: error.to_string() };
                let namespace: Namespace = namespace.parse().map_err(wrong)?;
                let format: Format = format.parse().map_err(wrong)?;
                let settings = settings(&options)?;
                runtime()?.block_on(async {
                    let store = open(&settings).await?;
                    let file = std::fs::File::create_new(&out)
                        .with_context(|| format!("cannot create `{}`", out.display()))?;
                    let outcome = store.export(namespace, format, tenant.as_deref(), file).await;
                    if outcome.is_err() {
                        // Half an export must not be taken for a whole one.
                        std::fs::remove_file(&out).ok();
                    }
                    let count = outcome.with_context(|| format!("cannot export to `{}`", out.display()))?;
                    note(&format!("{count} rows written to {}", out.display()));
                    Ok(())
                })
            }
            Self::Stats { json, tenant, options } => {
                let settings = settings(&options)?;
                runtime()?.block_on(async {
                    let store = open(&settings).await?;
                    let stats = store.stats(tenant.as_deref()).await.context("cannot read the statistics")?;
                    if json {
                        return print(&format!("{:#}", json!(stats)));
                    }
                    for line in describe(&stats) {
                        print(&line)?;
                    }
                    Ok(())
                })
            }
        }
    }
}

/// Writes a benchmark and its card.
fn export_benchmark(files: &[PathBuf], sources: &Path, out: &Path) -> Result<(), Exit> {
    let sources = Sources::read(sources).map_err(anyhow::Error::from)?;
    let mut prompts = Prompts::default();
    for file in files {
        prompts.add(file, None, sources.seed, None).map_err(anyhow::Error::from)?;
    }
    let exported = export(&prompts, &sources);
    if exported.count == 0 {
        return Err(Exit { code: 1, message: "no row may be given to others".to_owned() });
    }
    let card = PathBuf::from(format!("{}.card.md", out.display()));
    for (path, text) in [(out, &exported.rows), (&card, &exported.card)] {
        let create = || std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
        create().with_context(|| format!("cannot create `{}`", path.display()))?;
    }
    note(&format!("{} rows written to {}, their card to {}", exported.count, out.display(), card.display()));
    print(&exported.sha256)
}

/// Where the data is: a folder, or a server that the configuration names. What else is wrong with the configuration
/// keeps nobody from the data, nor from the kill switch.
pub(super) fn settings(options: &ConfigOptions) -> Result<waltz_store::Settings, Exit> {
    let needed =
        |key: &str| ["server", "server.data_dir", "record", "record.database_url_env"].contains(&key);
    configured_keys(&options.sources(), needed, |check, loaded| {
        let data_dir = check.data_dir(&loaded.raw.server.data_dir);
        let database = check.database(loaded.raw.record.database_url_env.as_deref());
        Some(waltz_store::Settings {
            data_dir: data_dir?,
            database: database?,
            ..waltz_store::Settings::default()
        })
    })
}

async fn open(settings: &waltz_store::Settings) -> Result<Store, Exit> {
    let store = Store::open_for_reading(settings).await;
    Ok(store.with_context(|| format!("cannot open the store of `{}`", settings.data_dir.display()))?)
}

fn describe(stats: &waltz_store::Stats) -> Vec<String> {
    let value = json!(stats);
    let mut rows = Vec::new();
    if let Some(fields) = value.as_object() {
        for (name, value) in fields {
            rows.push(format!("{name:24} {value}"));
        }
    }
    rows
}
