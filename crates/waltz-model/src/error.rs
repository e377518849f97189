//! Everything that can go wrong with a model. Messages name the operation and the object and never carry
//! text of a prompt.

use std::io;
use std::path::{Path, PathBuf};

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
}

impl Error {
    /// Wraps a file error for `map_err`.
    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation, path: path.into(), source }
    }

    /// Says what is wrong with a model file.
    pub(crate) fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), reason: reason.into() }
    }
}
