//! Configuration: one TOML file, the environment and the command line, read into exactly what was
//! written ([`raw`]) and then checked into what the crates use ([`build`]). All mistakes are collected
//! and shown at once, before any port opens.

pub(crate) mod build;
pub(crate) mod environment;
pub(crate) mod gate;
pub(crate) mod raw;
pub(crate) mod read;
pub(crate) mod show;

pub use build::{Built, build};
pub use raw::RawConfig;
pub use read::{Loaded, Sources, load, stage_in_file};

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key's path, such as `upstreams[0].url`.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl Mistake {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}
