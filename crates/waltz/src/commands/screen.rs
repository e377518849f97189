//! `waltz screen`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use waltz_exchange::Category;
use waltz_screen::{Kind, Side};

use super::{ConfigOptions, Exit, configured_part, lines, print};

/// Screen texts: JSONL in, JSONL out.
///
/// Reads lines {"id", "text"} from FILE or standard input and writes lines {"id", "findings": [{"kind",
/// "start", "end", "score", ...}], "redacted"}: personal data and secrets by kind, harmful patterns by
/// family. Offsets are bytes of the original text.
#[derive(clap::Args)]
pub(crate) struct ScreenFile {
    /// The lines; standard input when left out or `-`.
    file: Option<PathBuf>,
    /// Read the texts as prompts or as responses.
    #[arg(long, value_enum, default_value = "prompt")]
    side: SideName,
    #[command(flatten)]
    options: ConfigOptions,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SideName {
    Prompt,
    Response,
}

#[derive(Deserialize)]
struct Row {
    id: Value,
    text: String,
}

#[derive(Serialize)]
struct Screened<'a> {
    id: Value,
    findings: Vec<Found<'a>>,
    redacted: &'a str,
}

#[derive(Serialize)]
struct Found<'a> {
    kind: &'a str,
    start: usize,
    end: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'a Category>,
}

impl ScreenFile {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let screen = configured_part(&self.options.sources(), |check, loaded| {
            check.screen(loaded.raw.policy.rules_file.as_deref(), &loaded.raw.judge)
        })?;
        let side = match self.side {
            SideName::Prompt => Side::Prompt,
            SideName::Response => Side::Response,
        };
        lines::for_each(self.file.as_deref(), |row: Row| {
            let masked = waltz_screen::mask(&row.text);
            let reading = screen.read(&row.text, side);
            let private = masked.found.iter().map(|found| Found {
                kind: found.kind.as_str(),
                start: found.span.start,
                end: found.span.end,
                score: found.score,
                category: None,
            });
            let families =
                reading.findings.iter().filter(|finding| !matches!(finding.kind, Kind::Pii | Kind::Secret));
            let harmful = families.map(|finding| Found {
                kind: &finding.family,
                start: finding.span.start,
                end: finding.span.end,
                score: finding.severity,
                category: Some(&finding.category),
            });
            let findings = private.chain(harmful).collect();
            let screened = Screened { id: row.id, findings, redacted: &masked.text };
            print(&serde_json::to_string(&screened).map_err(anyhow::Error::from)?)
        })
    }
}
