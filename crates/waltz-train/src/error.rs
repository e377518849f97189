//! What can go wrong while something is trained.

use std::path::PathBuf;

/// Why a training could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The list of sources is not what it should be.
    #[error("cannot use the list of sources")]
    Sources(#[source] Box<toml::de::Error>),
    /// The list of sources contradicts itself or the data.
    #[error("cannot use the list of sources: {0}")]
    Source(String),
    /// A row is not JSON of the expected shape.
    #[error("cannot read row {line} of {}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The rules of level 0 could not be built.
    #[error("cannot build the rules")]
    Screen(#[from] waltz_screen::Error),
    /// The neural judge could not be trained.
    #[error("cannot train the neural judge")]
    Model(#[from] waltz_model::Error),
    /// There is nothing to learn from.
    #[error("no rows to learn {head} from, harmful or refusing and other ones are both needed")]
    NoRows {
        /// What was to be learned.
        head: &'static str,
    },
}
