//! What can go wrong while rules are read and compiled. Reading a text never fails.

use std::fmt;

/// Why a screen could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not TOML.
    #[error("cannot read rules file as TOML")]
    Syntax(#[source] Box<toml::de::Error>),
    /// The file is larger than a rules file may be.
    #[error("rules file has {bytes} bytes, allowed are {limit}")]
    TooLarge {
        /// Size of the file.
        bytes: usize,
        /// Largest size that is read.
        limit: usize,
    },
    /// The file holds more rules than are allowed.
    #[error("rules file has {rules} rules, allowed are {limit}")]
    TooManyRules {
        /// Rules in the file.
        rules: usize,
        /// Most rules that are read.
        limit: usize,
    },
    /// The file holds no rule.
    #[error("rules file has no rules, expected at least one [[rule]]")]
    Empty,
    /// The file is TOML, but some rules are wrong; every mistake is listed.
    #[error("rules file has {} mistake(s): {}", .0.len(), list(.0))]
    Mistakes(Vec<RuleMistake>),
    /// The regular expressions of all rules together could not be compiled.
    #[error("cannot compile the regular expressions of all rules together")]
    Expressions(#[source] Box<regex::Error>),
    /// The weights of the linear judge cannot be used.
    #[error("cannot read the weights of the linear judge")]
    Weights(#[from] WeightsError),
}

/// Why a weights file of the linear judge cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// The file begins otherwise.
    #[error("not a weights file of the linear judge")]
    Magic,
    /// The file is of another version.
    #[error("weights file has version {found}, known is {known}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that is read.
        known: u32,
    },
    /// The table has a shape that is not read.
    #[error("weights file has {columns} columns and 2^{bits} rows, expected 12 columns and 2^8 to 2^22 rows")]
    Shape {
        /// Bits of a row's number.
        bits: u32,
        /// Weights in a row.
        columns: u32,
    },
    /// The file is too short or too long.
    #[error("weights file has {bytes} bytes, expected {expected}")]
    Size {
        /// Size of the file.
        bytes: usize,
        /// Size that its header promises.
        expected: usize,
    },
    /// The file was changed after it was written.
    #[error("weights file is damaged: its checksum does not fit")]
    Checksum,
    /// A number is not one that can be worked with.
    #[error("figure {index} of the weights file is out of range")]
    Figure {
        /// Which one, from 0.
        index: usize,
    },
    /// The edges of a score are not in rising order.
    #[error("edges of score {score} of the weights file are not in rising order")]
    Edges {
        /// Which score, from 0.
        score: usize,
    },
}

/// One mistake in one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMistake {
    /// The rule, by position from 1 and by id where it has one; or the part of the file.
    pub place: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl fmt::Display for RuleMistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, problem } = self;
        write!(formatter, "{place}: {problem}")
    }
}

fn list(mistakes: &[RuleMistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(RuleMistake::to_string).collect();
    lines.join("; ")
}
