//! What answers when no upstream is configured.

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
    /// The upstream; nothing when one is configured.
    pub(crate) async fn upstream(&self, sources: &Sources) -> Result<Vec<(&'static str, Value)>, Exit> {
        let configured = !load(sources).raw.upstreams.is_empty();
        let has_key =
            sources.environment.iter().any(|(name, value)| name == "OPENAI_API_KEY" && !value.is_empty());
        let upstream = if self.demo {
            let url = crate::mock::start_inside().await.context("cannot start the built-in script")?;
            note("answering from the built-in script, which is no model");
            upstream("mock", &url, &["mock", "*"])
        } else if configured {
            return Ok(Vec::new());
        } else if has_key {
            note("no upstream is configured: answering from OpenAI with OPENAI_API_KEY");
            let mut openai = upstream("openai", "https://api.openai.com/v1", &["*"]);
            openai.insert("key_env".into(), "OPENAI_API_KEY".into());
            openai
        } else {
            self.local(sources)?
        };
        Ok(vec![("upstreams", Value::Array(vec![Value::Table(upstream)]))])
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
        let mut local = upstream("local", &format!("local:{MODEL}"), &[&format!("local/{MODEL}"), "*"]);
        // It answers in its own time: on a busy machine a long answer takes minutes.
        for limit in ["first_byte_timeout_ms", "chunk_timeout_ms"] {
            local.insert(limit.into(), Value::Integer(300_000));
        }
        Ok(local)
    }
}

fn upstream(name: &str, url: &str, models: &[&str]) -> toml::Table {
    let models = models.iter().map(|model| Value::from(*model)).collect();
    toml::Table::from_iter([
        ("name".to_owned(), name.into()),
        ("url".to_owned(), url.into()),
        ("models".to_owned(), Value::Array(models)),
    ])
}
