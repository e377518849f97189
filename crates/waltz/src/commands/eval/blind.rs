//! `waltz eval export-blind`: answers of a run for readers who must not know which system wrote them.

use std::path::PathBuf;

use anyhow::Context as _;
use waltz_train::evaluate::{Folder, blind};

use super::{failed, wrong};
use crate::commands::{Exit, note};

/// Draw answers of a run for readers: half to harmful prompts, half to harmless ones, systems mixed and not named.
///
/// FILE gets lines {"id", "prompt", "answer"} in an order that tells nothing. Readers write lines {"id", "unsafe", "refusal"},
/// each for himself, for `waltz eval calibrate`. The answers may be harmful.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ExportBlind {
    /// The run's folder.
    #[arg(value_name = "RUN")]
    answers: PathBuf,
    /// How many answers.
    #[arg(long, value_name = "N", default_value_t = 600)]
    n: usize,
    /// Draws and orders them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where they go; it must not be there yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl ExportBlind {
    pub(super) fn run(&self) -> Result<(), Exit> {
        if self.out.exists() {
            return Err(wrong(format!("`{}` is there already", self.out.display())));
        }
        let (folder, _, items) = Folder::reopen(&self.answers).map_err(failed)?;
        let drawn = blind(&items, folder.rows(), self.n, self.seed).map_err(failed)?;
        std::fs::write(&self.out, drawn.lines)
            .with_context(|| format!("cannot write `{}`", self.out.display()))?;
        note(&format!(
            "{} answers to harmful prompts and {} to harmless ones are in {}",
            drawn.harmful,
            drawn.benign,
            self.out.display()
        ));
        Ok(())
    }
}
