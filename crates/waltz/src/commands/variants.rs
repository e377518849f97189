//! `waltz variants`.

mod evolve;
mod lookback;

use clap::Subcommand;

use super::Exit;

/// What can be done with variants.
#[derive(Subcommand)]
pub(crate) enum Variants {
    Evolve(Box<evolve::Evolve>),
    Lookback(lookback::Lookback),
}

impl Variants {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match self {
            Self::Evolve(evolve) => evolve.run(),
            Self::Lookback(lookback) => lookback.run(),
        }
    }
}
