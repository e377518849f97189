//! The folder of a run: `run.json` says what the run is, `checkpoints/` where it stands, `adapter.safetensors` what came of
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use waltz_model::Agent;

use crate::Error;
use crate::held::Held;

const PLAN: &str = "run.json";
const CHECKPOINTS: &str = "checkpoints";
const ADAPTER: &str = "adapter.safetensors";
const OURS: [&str; 3] = [PLAN, CHECKPOINTS, ADAPTER];

/// What a run is, from its first step to its last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The model that learns, by name.
    pub base: String,
    /// The rows that it learns from.
    pub data: PathBuf,
    /// The agent that it learns for.
    pub agent: Agent,
    /// How often all rows are read.
    pub epochs: u32,
    /// Rows of a step.
    pub batch: usize,
    /// The highest learning rate.
    pub rate: f32,
    /// The adapter's rank.
    pub rank: usize,
    /// Decides the adapter's first numbers and the order of the rows.
    pub seed: u64,
}

impl Plan {
    /// The field that no run can have.
    fn mistake(&self) -> Option<&'static str> {
        let fields = [
            ("epochs", (1..=10_000).contains(&self.epochs)),
            ("batch", (1..=4_096).contains(&self.batch)),
            ("rate", self.rate > 0.0 && self.rate <= 1.0),
            ("rank", (1..=1_024).contains(&self.rank)),
        ];
        fields.into_iter().find(|(_, is_sound)| !is_sound).map(|(field, _)| field)
    }
}

/// What a run began with, as its folder keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begun {
    pub(super) plan: Plan,
    /// SHA-256 of the model's file.
    pub(super) base_sha256: String,
    /// Fingerprint of the rows.
    pub(super) rows: String,
}

/// A folder that this process holds.
#[derive(Debug)]
pub struct Folder {
    held: Held,
}

impl Folder {
    /// Takes a folder for a new run: one that is not there yet, or is empty.
    pub fn begin(path: &Path) -> Result<Self, Error> {
        let folder = Self { held: Held::take(path, &OURS)? };
        if OURS.iter().any(|name| path.join(name).exists()) {
            return Err(
                folder.refuse("it holds a run already; go on with --resume, or choose another folder")
            );
        }
        Ok(folder)
    }

    /// Takes the folder of a run that is to go on, and says what the run is.
    pub fn resume(path: &Path) -> Result<(Self, Plan), Error> {
        if !path.join(PLAN).is_file() {
            let reason = "it holds no run; begin one without --resume".to_owned();
            return Err(Error::Folder { folder: path.to_owned(), reason });
        }
        let folder = Self { held: Held::take(path, &OURS)? };
        if folder.adapter().exists() {
            return Err(folder.refuse(&format!("its run is finished: {}", folder.adapter().display())));
        }
        let plan = folder.begun()?.plan;
        Ok((folder, plan))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Where the adapter is once the run is finished.
    pub fn adapter(&self) -> PathBuf {
        self.path().join(ADAPTER)
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.path().join(CHECKPOINTS)
    }

    /// Writes down what the run is, or compares it with what is written.
    pub(super) fn agree(&self, begun: &Begun) -> Result<(), Error> {
        let path = self.path().join(PLAN);
        if !path.exists() {
            let text = serde_json::to_vec_pretty(begun).map_err(std::io::Error::from);
            return self.held.write(PLAN, &text.map_err(|source| Error::Write { path, source })?);
        }
        let before = self.begun()?;
        if before.rows != begun.rows {
            let data = begun.plan.data.display();
            return Err(self.refuse(&format!("`{data}` is not what the run began with; begin another run")));
        }
        if before != *begun {
            return Err(self.refuse("the model or the settings are not those that the run began with"));
        }
        Ok(())
    }

    fn begun(&self) -> Result<Begun, Error> {
        let path = self.path().join(PLAN);
        let text = fs::read(&path).map_err(|source| Error::Read { path, source })?;
        let begun: Begun = serde_json::from_slice(&text)
            .map_err(|error| self.refuse(&format!("its {PLAN} is damaged: {error}")))?;
        match begun.plan.mistake() {
            Some(field) => {
                Err(self.refuse(&format!("its {PLAN} is damaged: `{field}` cannot be what it says")))
            }
            None => Ok(begun),
        }
    }

    pub(super) fn refuse(&self, reason: &str) -> Error {
        self.held.refuse(reason)
    }
}
