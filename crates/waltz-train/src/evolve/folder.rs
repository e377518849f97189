//! The folder of an evolution: `run.json` says what it is, `candidates.jsonl` holds one line a candidate as soon as it is
//! made, `answers/` what each answered, `variant_proposals.jsonl` and `report.json` what came of it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use waltz_exchange::proposal::Proposal;

use super::candidate::Candidate;
use crate::Error;
use crate::evaluate::Plan;
use crate::held::Held;
use crate::log::Log;

const PLAN: &str = "run.json";
const CANDIDATES: &str = "candidates.jsonl";
const ANSWERS: &str = "answers";
const PROPOSALS: &str = "variant_proposals.jsonl";
const REPORT: &str = "report.json";

/// A folder that this process holds.
#[derive(Debug)]
pub struct Folder {
    held: Held,
    log: Log,
    made: Vec<Candidate>,
    proposals: Log,
    proposed: Option<Proposed>,
}

/// A proposal, and the digest by which a person says what was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposed {
    /// SHA-256 over what is decided on.
    pub digest: String,
    /// The proposal.
    pub proposal: Proposal,
}

impl Folder {
    /// Takes a folder for a run: a new one, or that of the same run before.
    pub fn open(path: &Path, plan: &Plan) -> Result<Self, Error> {
        let held = Held::take(path, &[PLAN, CANDIDATES, ANSWERS, PROPOSALS, REPORT])?;
        held.agree(PLAN, plan)?;
        let (log, made) = Log::open(&path.join(CANDIDATES))?;
        let (proposals, mut proposed) = Log::open(&path.join(PROPOSALS))?;
        Ok(Self { held, log, made, proposals, proposed: proposed.pop() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// A candidate that an earlier sitting made.
    pub(super) fn made(&self, id: &str) -> Option<Candidate> {
        self.made.iter().find(|candidate| candidate.id == id).cloned()
    }

    /// Writes down a candidate before anybody is asked for it: a model would not write it the same again.
    pub(super) fn keep(&mut self, candidate: &Candidate) -> Result<(), Error> {
        self.log.append(candidate)?;
        self.made.push(candidate.clone());
        Ok(())
    }

    /// Where a candidate's answers are.
    pub(super) fn answers(&self, id: &str) -> PathBuf {
        self.path().join(ANSWERS).join(id)
    }

    /// The proposal that came of the run, if it did.
    pub(super) fn proposed(&self) -> Option<&Proposed> {
        self.proposed.as_ref()
    }

    /// Writes down the proposal.
    pub(super) fn propose(&mut self, proposed: &Proposed) -> Result<(), Error> {
        self.proposals.append(proposed)?;
        self.proposed = Some(proposed.clone());
        Ok(())
    }

    /// Writes the report, and returns where it is.
    pub fn write_report(&self, json: &str) -> Result<PathBuf, Error> {
        self.held.write(REPORT, json.as_bytes())?;
        Ok(self.path().join(REPORT))
    }
}
