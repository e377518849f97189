//! `waltz screen`.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use waltz_screen::Side;

use super::{ConfigOptions, Exit, configured, lines, print};

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

impl ScreenFile {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let (_, built) = configured(&self.options.sources())?;
        let side = match self.side {
            SideName::Prompt => Side::Prompt,
            SideName::Response => Side::Response,
        };
        lines::for_each(self.file.as_deref(), |row: Row| {
            let masked = waltz_screen::mask(&row.text);
            let mut findings: Vec<Value> = masked
                .found
                .iter()
                .map(|found| {
                    json!({"kind": found.kind, "start": found.span.start, "end": found.span.end, "score": found.score})
                })
                .collect();
            let reading = built.live.screen.read(&row.text, side);
            findings.extend(reading.findings.iter().map(|finding| {
                json!({"kind": finding.family, "start": finding.span.start, "end": finding.span.end,
                    "score": finding.severity, "category": finding.category})
            }));
            print(&json!({"id": row.id, "findings": findings, "redacted": masked.text}).to_string())
        })
    }
}
