//! `waltz train`.

mod judge;
mod sft;

use super::Exit;

/// Learn from data.
#[derive(clap::Subcommand)]
pub(crate) enum Train {
    Judge(judge::TrainJudge),
    Sft(sft::TrainSft),
}

impl Train {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Judge(judge) => judge.run(),
            Self::Sft(sft) => sft.run(),
        }
    }
}
