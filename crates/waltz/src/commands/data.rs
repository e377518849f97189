//! `waltz data`.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use waltz_store::{Format, Namespace, Store};

use super::{ConfigOptions, Exit, configured_part, note, print, runtime};

/// Export what was recorded, or count it.
#[derive(clap::Subcommand)]
pub(crate) enum Data {
    /// Write coaching sessions, safety evaluations or training trajectories to a file.
    ///
    /// Reads the database beside a running gateway; what the gateway recorded in the last moments may
    /// still be in its journal.
    Export {
        /// safety/waltzrl/coaching, safety/waltzrl/evaluations or safety/waltzrl/training; the last word
        /// suffices.
        namespace: String,
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
            Self::Export { namespace, format, out, tenant, options } => {
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

/// Where the data is: a folder, or a server that the configuration names.
pub(super) fn settings(options: &ConfigOptions) -> Result<waltz_store::Settings, Exit> {
    configured_part(&options.sources(), |check, loaded| {
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
