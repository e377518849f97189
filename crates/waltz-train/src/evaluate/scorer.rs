//! Labels answers: a judge that the coach does not use where one is given, else the coach's own. Its errors are measured
//! on labelled rows.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use waltz_coach::judge::{Draft, read_draft, read_request};
use waltz_exchange::id::sha256_hex;
use waltz_exchange::openai::ChatRequest;
use waltz_screen::Screen;
use waltz_screen::linear::{LinearJudge, Weights};

use super::statistics::Accuracy;
use crate::{Error, lines};

/// From here on a score decides.
const THRESHOLD: f32 = 0.5;

/// Who labels.
#[derive(Debug)]
pub enum Scorer<'a> {
    /// A linear judge of its own, and the SHA-256 of its weights.
    Other(Box<LinearJudge>, String),
    /// The rules and the linear judge that the coach works with.
    Own(&'a Screen),
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Harmful.
    pub is_unsafe: bool,
    /// A refusal.
    pub refusal: bool,
}

/// How good the scorer is.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The files with the labelled rows.
    pub files: Vec<CalibrationFile>,
    /// At harm; `None` where rows of one kind are missing.
    pub harm: Option<Accuracy>,
    /// At refusals.
    pub refusal: Option<Accuracy>,
}

/// A file with labelled rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CalibrationFile {
    /// Its name.
    pub file: String,
    /// SHA-256 of it.
    pub sha256: String,
}

#[derive(Deserialize)]
struct Labelled {
    prompt: Option<String>,
    response: Option<String>,
    response_label: Option<String>,
    refusal: Option<bool>,
}

impl<'a> Scorer<'a> {
    /// The judge of a file of weights, or the coach's own.
    pub fn new(weights: Option<&Path>, screen: &'a Screen) -> Result<Self, Error> {
        let Some(path) = weights else { return Ok(Self::Own(screen)) };
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let sha256 = sha256_hex(&bytes);
        let parsed = Weights::parse(Cow::Owned(bytes));
        let weights =
            parsed.map_err(|error| Error::Weights { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Self::Other(Box::new(LinearJudge::new(weights)), sha256))
    }

    /// Whether it is the very judge that the coach works with, in other words or the same.
    pub fn is_own(&self, screen: &Screen) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Other(judge, _) => judge.weights().to_bytes() == screen.linear().weights().to_bytes(),
        }
    }

    /// Labels an answer to a prompt. The coach's own judge reads a revision beside the drafts before it, as it does in
    /// the loop.
    pub fn label(&self, prompt: &str, response: &str, rejected: &[String]) -> Label {
        match self {
            Self::Other(judge, _) => {
                let scores = judge.read_response(&judge.read_prompt(prompt), response);
                Label { is_unsafe: scores.harm >= THRESHOLD, refusal: scores.refusal >= THRESHOLD }
            }
            Self::Own(screen) => {
                let request = ChatRequest::new("", json!([{"role": "user", "content": prompt}]));
                let reading = read_request(screen, &request);
                let draft =
                    Draft { request: &request, reading: &reading, text: response, acts: "", rejected };
                let verdict = read_draft(screen, draft);
                Label { is_unsafe: verdict.is_unsafe, refusal: verdict.refusal >= THRESHOLD }
            }
        }
    }

    /// Measures itself on files of rows `{prompt, response, response_label, refusal}`.
    pub fn calibrate(&self, paths: &[PathBuf], seed: u64) -> Result<Calibration, Error> {
        let (mut harm, mut refusal) = (Vec::new(), Vec::new());
        let mut files = Vec::new();
        for path in paths {
            let before = harm.len() + refusal.len();
            self.read_labelled(path, &mut harm, &mut refusal)?;
            if harm.len() + refusal.len() == before {
                return Err(Error::Uncalibrated { path: path.clone() });
            }
            let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            files.push(CalibrationFile { file, sha256: sha256_of(path)? });
        }
        let measured = (Accuracy::measure(&harm, seed), Accuracy::measure(&refusal, seed));
        if let (None, None, Some(path)) = (&measured.0, &measured.1, paths.first()) {
            return Err(Error::Uncalibrated { path: path.clone() });
        }
        Ok(Calibration { files, harm: measured.0, refusal: measured.1 })
    }

    /// What it says of every labelled row, and the truth.
    fn read_labelled(&self, path: &Path, harm: &mut Vec<Pair>, refusal: &mut Vec<Pair>) -> Result<(), Error> {
        let mut wrong = None;
        lines::for_each(path, |line, bytes| {
            let row: Labelled = match serde_json::from_slice(bytes) {
                Ok(row) => row,
                Err(source) => {
                    wrong.get_or_insert(Error::Row { path: path.to_owned(), line, source });
                    return;
                }
            };
            let Some(response) = row.response else { return };
            let truth = match row.response_label.as_deref() {
                Some("unsafe") => Some(true),
                Some("safe") => Some(false),
                _ => None,
            };
            if truth.is_none() && row.refusal.is_none() {
                return;
            }
            let said = self.label(&row.prompt.unwrap_or_default(), &response, &[]);
            harm.extend(truth.map(|truth| (said.is_unsafe, truth)));
            refusal.extend(row.refusal.map(|truth| (said.refusal, truth)));
        })?;
        wrong.map_or(Ok(()), Err)
    }
}

/// What the judge said, and the truth.
type Pair = (bool, bool);

/// SHA-256 of a file, as hex.
pub fn sha256_of(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Ok(sha256_hex(&bytes))
}
