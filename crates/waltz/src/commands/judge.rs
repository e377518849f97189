//! `waltz judge`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use waltz_coach::judge::{Draft, Judge};
use waltz_coach::tally::Tally;
use waltz_coach::upstream::RetryBudget;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::{Category, Depth};

use super::{ConfigOptions, Exit, configured_part, lines, print};

/// Judge prompts and responses: JSONL in, JSONL out.
///
/// Reads lines {"id", "prompt", "response"?} from FILE or standard input and writes lines {"id",
/// "prompt_harm", "response_harm", "refusal", "unsafe", "overrefuse", "categories", "level", "micros"}.
/// Scores lie between 0 and 1, and 0.5 decides. Without a response only the prompt is judged.
#[derive(clap::Args)]
pub(crate) struct JudgeFile {
    /// The lines; standard input when left out or `-`.
    file: Option<PathBuf>,
    #[command(flatten)]
    options: ConfigOptions,
}

/// A name that is none of these was mistyped: what is meant by it would not be judged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: Value,
    prompt: String,
    response: Option<String>,
}

#[derive(Serialize)]
struct Judged {
    id: Value,
    prompt_harm: f32,
    response_harm: Option<f32>,
    refusal: Option<f32>,
    #[serde(rename = "unsafe")]
    is_unsafe: bool,
    overrefuse: bool,
    categories: std::collections::BTreeMap<Category, f32>,
    level: u8,
    micros: u64,
}

impl JudgeFile {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let (screen, encoder, neural) = configured_part(&self.options.sources(), |check, loaded| {
            let data_dir = check.data_dir(&loaded.raw.server.data_dir);
            let models = check.models(data_dir.as_deref());
            let neural = check.neural(&loaded.raw.judge, &models, &[]);
            let encoder = check.encoder(&loaded.raw.judge);
            Some((check.screen(loaded.raw.policy.rules_file.as_deref(), &loaded.raw.judge)?, encoder, neural))
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let budget = RetryBudget::new(0, Duration::ZERO);
        let (encoder, neural) = (encoder.as_ref(), neural.as_ref());
        let judge = Judge { screen: &screen, encoder, neural, feedback: None, budget: &budget };
        if let Some(neural) = neural {
            // The first question is not to wait for the model, at its own limit.
            runtime.block_on(neural.warm()).map_err(anyhow::Error::msg)?;
        }
        lines::for_each(self.file.as_deref(), |row: Row| {
            let body = json!({"model": "none", "messages": [{"role": "user", "content": row.prompt}]});
            let Value::Object(body) = body else { return Ok(()) };
            let request = ChatRequest::from_object(body)
                .map_err(|error| Exit { code: 1, message: error.to_string() })?;
            let began = Instant::now();
            let (reading, verdict) = runtime.block_on(async {
                let reading = judge.read_request(&request).await;
                let Some(text) = row.response.as_deref() else { return (reading, None) };
                let draft = Draft { request: &request, reading: &reading, text, acts: "", rejected: &[] };
                let verdict = judge.judge(draft, Depth::Rules, &mut Tally::default()).await;
                (reading, Some(verdict))
            });
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let judged = Judged {
                id: row.id,
                prompt_harm: reading.harm,
                response_harm: verdict.as_ref().map(|verdict| verdict.response_harm),
                refusal: verdict.as_ref().map(|verdict| verdict.refusal),
                is_unsafe: verdict.as_ref().is_some_and(|verdict| verdict.is_unsafe),
                overrefuse: verdict.as_ref().is_some_and(|verdict| verdict.overrefuse),
                level: verdict
                    .as_ref()
                    .map_or(reading.level, |verdict| verdict.level.max(reading.level))
                    .into(),
                categories: verdict.map_or(reading.categories, |verdict| verdict.categories),
                micros,
            };
            print(&serde_json::to_string(&judged).map_err(anyhow::Error::from)?)
        })
    }
}
