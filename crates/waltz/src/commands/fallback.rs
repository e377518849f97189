//! What answers when no upstream is configured.

use std::path::Path;

use anyhow::Context as _;
use toml::Value;
use waltz_model::ModelName;

use super::{Exit, model, note};
use crate::config::{Sources, load};

/// The model that answers where nothing is configured.
const MODEL: &str = "smollm2";

/// What to do when no upstream is configured.
#[derive(clap::Args)]
pub(crate) struct Fallback {
    /// Pull nothing: without an upstream the local model must be there already.
    #[arg(long)]
    offline: bool,
    /// Answer from a built-in script, which is no model: it shows what coaching does.
    #[arg(long)]
    demo: bool,
}

impl Fallback {
    /// Adds the upstream to the sources where none is configured. The script of `--demo` outranks the file, so that no
    /// reload ends in a prompt that goes elsewhere.
    pub(crate) async fn settle(&self, sources: &mut Sources) -> Result<(), Exit> {
        let configured = !load(sources).raw.upstreams.is_empty();
        let has_key =
            sources.environment.iter().any(|(name, value)| name == "OPENAI_API_KEY" && !value.is_empty());
        let list = |upstream| ("upstreams", Value::Array(vec![Value::Table(upstream)]));
        if self.demo {
            if configured {
                return Err(not_alone(sources));
            }
            let url = crate::mock::start_inside().await.context("cannot start the built-in script")?;
            note("answering from the built-in script, which is no model");
            sources.arguments.push(list(upstream("mock", &url, &["mock", "*"])));
        } else if !configured && has_key {
            note("no upstream is configured: answering from OpenAI with OPENAI_API_KEY");
            let mut openai = upstream("openai", "https://api.openai.com/v1", &["*"]);
            openai.insert("key_env".into(), "OPENAI_API_KEY".into());
            sources.fallbacks.push(list(openai));
        } else if !configured {
            sources.fallbacks.push(list(self.local(sources)?));
        }
        Ok(())
    }

    /// The local model, pulled if it is not there.
    fn local(&self, sources: &Sources) -> Result<toml::Table, Exit> {
        let name: ModelName = MODEL.parse().map_err(anyhow::Error::from)?;
        let models = model::models(sources)?;
        if let Err(missing) = models.stored(&name) {
            if self.offline {
                let ways = "or set OPENAI_API_KEY, or configure an upstream, or see `waltz serve --demo`";
                return Err(Exit { code: 1, message: format!("{missing}\n{ways}") });
            }
            note(&format!("no upstream is configured: pulling the small language model {MODEL}, once"));
            model::fetch(&models, &name, None)?;
        }
        note(&format!(
            "no upstream is configured: answering from {MODEL} in this process, a very small model"
        ));
        let mut local = upstream("local", &format!("local:{MODEL}"), &["*"]);
        // It answers in its own time: on a busy machine a long answer takes minutes.
        for limit in ["first_byte_timeout_ms", "chunk_timeout_ms"] {
            local.insert(limit.into(), Value::Integer(300_000));
        }
        Ok(local)
    }
}

/// Agents and judges of the file may name its upstreams: the script cannot stand in for them.
fn not_alone(sources: &Sources) -> Exit {
    let file = sources.file.as_deref().unwrap_or(Path::new("waltz.toml")).display();
    let message = format!(
        "`--demo` answers from the built-in script alone, and `{file}` configures upstreams\n\n\
         hint: leave `--demo` out, or give `--config` a file without upstreams, such as /dev/null"
    );
    Exit { code: 2, message }
}

fn upstream(name: &str, url: &str, models: &[&str]) -> toml::Table {
    let models = models.iter().map(|model| Value::from(*model)).collect();
    toml::Table::from_iter([
        ("name".to_owned(), name.into()),
        ("url".to_owned(), url.into()),
        ("models".to_owned(), Value::Array(models)),
    ])
}
