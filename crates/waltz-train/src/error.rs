//! What can go wrong while something is trained or evaluated.

use std::path::PathBuf;

use crate::leak::{Leak, Likeness};

/// Why a training or an evaluation could not be done.
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
    /// Rows of data cannot be learned from.
    #[error("{} of {rows} rows of `{}` cannot be learned from:{}", bad.len(), path.display(), listed(bad))]
    Rows {
        /// The file.
        path: PathBuf,
        /// How many rows it has.
        rows: usize,
        /// Lines, from 1, and what is wrong with them.
        bad: Vec<(usize, String)>,
    },
    /// There is nothing to learn from.
    #[error("`{}` has no rows to learn from", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
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
    /// A head of the judge has no rows of both kinds.
    #[error("no rows to learn {head} from, harmful or refusing and other ones are both needed")]
    NoRows {
        /// What was to be learned.
        head: &'static str,
    },
    /// Another process works in the folder.
    #[error("another run holds `{}`; wait until it is done, or choose another folder", folder.display())]
    Held {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is not one that this run may write to.
    #[error("cannot work in `{}`: {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// An answer could not be scored.
    #[error("the answer to `{id}` could not be scored: {reason}")]
    Unscored {
        /// The prompt.
        id: String,
        /// Why.
        reason: String,
    },
    /// A file of readers' labels cannot be used.
    #[error("cannot use the labels of `{}`: {reason}", path.display())]
    Labels {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A calibration needs independent readers.
    #[error(
        "a calibration needs 2 to 20 files of labels that differ, one a reader; {files} were given, {different} of them different"
    )]
    Readers {
        /// Files.
        files: usize,
        /// Files with content of their own.
        different: usize,
    },
    /// Readers and run have too little in common.
    #[error(
        "no answer of the run has labels of two readers; their ids are those that `waltz eval export-blind` wrote"
    )]
    Unread,
    /// A run has fewer answers than readers are to get.
    #[error(
        "the run has {found} {kind} answers of {wanted}: answers to {kind} prompts that a model wrote, each counted once"
    )]
    TooFew {
        /// harmful or harmless.
        kind: &'static str,
        /// Answers that are there.
        found: usize,
        /// Answers that are needed.
        wanted: usize,
    },
    /// A calibration cannot be used.
    #[error("cannot use the calibration `{}`: {reason}; `waltz eval calibrate` makes one", path.display())]
    Calibration {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Rows to learn from are in the benchmark that is to measure what was learned.
    #[error("{} rows of {what} are in the benchmark:{}", leaks.len(), leaked(leaks))]
    Leak {
        /// Where the rows are from.
        what: String,
        /// The rows.
        leaks: Vec<Leak>,
    },
    /// An evolution cannot begin or go on.
    #[error("cannot evolve: {0}")]
    Evolve(String),
    /// The model cannot be trained, or a step cannot be taken.
    #[error(transparent)]
    Model(#[from] waltz_model::Error),
}

/// The first lines that are wrong, one a line.
fn listed(bad: &[(usize, String)]) -> String {
    first(bad, |(line, reason)| format!("line {line}: {reason}"))
}

/// The first rows that leaked; their texts are not for a terminal.
fn leaked(leaks: &[Leak]) -> String {
    first(leaks, |Leak { row, id, likeness }| {
        let how = match likeness {
            Likeness::Exact => "",
            Likeness::Words => ", written otherwise",
            Likeness::Pieces => ", for the most part",
        };
        format!("row {row} is benchmark prompt `{id}`{how}")
    })
}

/// The first of several, one a line, and how many more there are.
fn first<T>(several: &[T], told: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 10;
    let mut text: String = several.iter().take(SHOWN).map(|one| format!("\n  {}", told(one))).collect();
    if several.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", several.len() - SHOWN));
    }
    text
}
