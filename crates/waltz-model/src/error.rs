//! Everything that can go wrong with a model. Messages name the operation and the object and never carry
//! text of a prompt.

use std::io;
use std::path::{Path, PathBuf};

use crate::ModelName;

/// What went wrong with a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    File {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A model file is damaged, or is of a kind that waltz does not read.
    #[error("cannot use model file `{}`: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        reason: String,
    },
    /// The thread that runs a model could not be started.
    #[error("cannot start the model's thread")]
    Thread(#[source] io::Error),
    /// A model and a tokenizer do not belong together.
    #[error("the model has {model} tokens and the tokenizer {tokenizer}; they do not belong together")]
    Vocabulary {
        /// Tokens that the model knows.
        model: usize,
        /// Tokens that the tokenizer knows.
        tokenizer: usize,
    },
    /// A pattern of a tokenizer could not be prepared.
    #[error("cannot prepare a tokenizer's pattern")]
    Pattern(#[from] regex::Error),
    /// No model has this name.
    #[error(
        "`{name}` names no model; known are {}, and hf:OWNER/NAME[/FILE] for others",
        crate::KNOWN.each_ref().map(|known| known.name).join(", ")
    )]
    UnknownModel {
        /// What was given.
        name: String,
    },
    /// The model is not in the models folder.
    #[error("model `{name}` is not in `{}`\n\nhint: {}", folder.display(), name.ways())]
    NotPulled {
        /// Which model.
        name: ModelName,
        /// The models folder.
        folder: PathBuf,
    },
    /// The model could not be fetched.
    #[error("cannot fetch model `{name}`: {reason}\n\nhint: {}", name.ways())]
    Fetch {
        /// Which model.
        name: ModelName,
        /// What happened.
        reason: String,
    },
    /// Another process pulls the same model.
    #[error("model `{name}` is being pulled by another process; wait until it is done")]
    Locked {
        /// Which model.
        name: String,
    },
    /// The form of an object cannot be written.
    #[error("cannot constrain answers: {reason}")]
    Schema {
        /// Why not.
        reason: String,
    },
    /// The machine that trains could not do what it was asked.
    #[error("cannot {operation}: {reason}")]
    Device {
        /// What was tried, as a verb.
        operation: &'static str,
        /// Why not.
        reason: String,
    },
    /// A training step cannot be taken. Nothing was changed.
    #[error("cannot train: {reason}")]
    Training {
        /// What was found and what was expected.
        reason: String,
    },
    /// A file is not the one that it should be.
    #[error("{what} is not what it should be: expected {expected}, found {found}; it is not used")]
    Mismatch {
        /// The file.
        what: String,
        /// Size or hash that was expected.
        expected: String,
        /// Size or hash that was found.
        found: String,
    },
}

impl Error {
    /// Wraps a file error for `map_err`.
    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation, path: path.into(), source }
    }

    /// Says why a training step cannot be taken.
    pub(crate) fn training(reason: impl Into<String>) -> Self {
        Self::Training { reason: reason.into() }
    }

    /// Says what is wrong with a model file.
    pub(crate) fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), reason: reason.into() }
    }
}
