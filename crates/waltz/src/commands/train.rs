//! `waltz train`.

mod sft;

use super::Exit;

/// Learn from data.
#[derive(clap::Subcommand)]
pub(crate) enum Train {
    Sft(sft::TrainSft),
}

impl Train {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Sft(sft) => sft.run(),
        }
    }
}
