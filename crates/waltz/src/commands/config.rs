//! `waltz config`.

use super::{ConfigOptions, Exit, base_folder, configured_in_steps, describe, note, print};
use crate::config::{build, load, show};

/// Show or check the configuration.
#[derive(clap::Subcommand)]
pub(crate) enum Config {
    /// Print every effective value with its origin.
    Show {
        #[command(flatten)]
        options: ConfigOptions,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check the configuration and name every mistake; exit code 2 if there is one.
    Check {
        #[command(flatten)]
        options: ConfigOptions,
    },
    /// Print the JSON schema of the configuration file.
    Schema,
}

impl Config {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Show { options, json } => {
                let sources = options.sources();
                let loaded = load(&sources);
                let base = base_folder(&sources);
                let mut check = build::Check::new(&[], &sources.environment, &base);
                let data_dir = check.data_dir(&loaded.raw.server.data_dir);
                let models = check.models(data_dir.as_deref());
                let stage = check.stage(&loaded.raw, &models);
                let rows = show::rows(&loaded.raw, &loaded.origins, stage.trouble.as_deref());
                if json {
                    let value = serde_json::to_value(&rows).unwrap_or_default();
                    print(&format!("{value:#}"))?;
                } else {
                    let width = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
                    for row in &rows {
                        let value = row.value.to_string();
                        print(&format!("{:width$} = {value}  # {}", row.key, row.origin))?;
                    }
                }
                for warning in &loaded.warnings {
                    note(&format!("warning: {warning}"));
                }
                if loaded.mistakes.is_empty() {
                    Ok(())
                } else {
                    Err(Exit { code: 2, message: describe(&loaded.mistakes) })
                }
            }
            Self::Check { options } => {
                let sources = options.sources();
                configured_in_steps(&sources)?;
                let name =
                    sources.file.map_or_else(|| "the defaults".to_owned(), |file| file.display().to_string());
                print(&format!("ok: {name}"))
            }
            Self::Schema => {
                let schema = schemars::schema_for!(crate::config::raw::RawConfig);
                print(&format!("{:#}", schema.to_value()))
            }
        }
    }
}
