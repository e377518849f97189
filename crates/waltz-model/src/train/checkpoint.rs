//! Checkpoints: all that a run needs to go on as if nothing had happened.
//!
//! A run has a folder, in it one folder per checkpoint, such as `step-00000040`. It is written under another name and
//! renamed when complete, so that a cut run leaves the one before. In it `run.json` says what the run is and lists
//! the other files with their hashes; these hold the numbers of all that trains (weights, then both moments), cut into
//! pieces of at most 15 MiB. One process at a time writes to a run's folder; reading changes nothing in it.

mod pieces;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::pieces::{Pieces, numbers_of, piece_name, pieces_of, write_pieces};
use super::tensor::Part;
use super::{Device, Heads, Keep, Lora, Network, Optimiser, Trainer};
use crate::map::{lock_file, write_whole};
use crate::models::{check_hash, hex};
use crate::safetensors::TensorFile;
use crate::{Error, HeadsConfig, LoraConfig, Origin, StoredFile};

const VERSION: u32 = 1;
const RUN: &str = "run.json";
const PREFIX: &str = "step-";
/// How names of folders begin that are being written or removed.
const PARTIAL: &str = ".partial-step-";
/// Held by whoever writes to a run's folder.
const LOCK: &str = "save.lock";

/// A checkpoint whose every byte was checked.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    run: Run,
}

/// What `run.json` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    version: u32,
    steps: u32,
    optimiser: Optimiser,
    lora: Option<LoraConfig>,
    heads: Option<HeadsConfig>,
    origin: Origin,
    /// Name and length of each tensor, in order; files hold three numbers for each of its own.
    tensors: Vec<(String, usize)>,
    files: Vec<StoredFile>,
    /// SHA-256 of all of this with an empty text here.
    content: String,
}

impl Checkpoint {
    /// Writes a checkpoint into a run's folder and removes those before it. Returns where it is. A folder that
    /// belongs to another run, or to this one further on, is refused and stays as it is.
    pub fn save<D: Device>(
        run: &Path,
        network: &Network<D>,
        trainer: &Trainer<D>,
        (data, seed): (&str, u64),
    ) -> Result<PathBuf, Error> {
        fs::create_dir_all(run).map_err(Error::file("create folder", run))?;
        let Some(_lock) = lock_file(&run.join(LOCK))? else {
            return Err(Error::training(format!("another process writes to `{}`", run.display())));
        };
        clear_leftovers(run)?;
        let tensors = trainer.tensors(network);
        let mut written = Run {
            version: VERSION,
            steps: trainer.steps(),
            optimiser: *trainer.optimiser(),
            lora: trainer.lora().map(Lora::config),
            heads: trainer.heads().map(Heads::config),
            origin: Origin { base: network.base().to_owned(), data: data.to_owned(), seed },
            tensors: tensors.iter().map(|tensor| (tensor.name.clone(), tensor.length())).collect(),
            files: Vec::new(),
            content: String::new(),
        };
        let earlier = written.earlier(run)?;
        let path = run.join(format!("{PREFIX}{:08}", written.steps));
        let partial = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(run);
        let partial = partial.map_err(Error::file("create folder in", run))?;
        written.files = write_pieces(partial.path(), network.device(), &tensors)?;
        written.content = written.hash();
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::malformed(&path.join(RUN), error.to_string()))?;
        write_whole(&partial.path().join(RUN), &text)?;
        // Nothing else goes before this one can be gone on from.
        if Self::open(partial.path())?.run != written {
            return Err(Error::malformed(&path.join(RUN), "it is read otherwise than it was written"));
        }
        if path.exists() {
            if Self::open(&path).is_ok_and(|there| there.run == written) {
                return Ok(path);
            }
            // The same step of the same run, but damaged.
            remove(run, &path)?;
        }
        let partial = partial.keep();
        fs::rename(&partial, &path).map_err(Error::file("rename into place", &path))?;
        let folder = File::open(run).and_then(|folder| folder.sync_all());
        folder.map_err(Error::file("write", run))?;
        for old in earlier {
            remove(run, &old)?;
        }
        Ok(path)
    }

    /// The latest checkpoint of a run; none where the run has none. A damaged one is an error: going on from an
    /// earlier one in silence would be another run.
    pub fn latest(run: &Path) -> Result<Option<Self>, Error> {
        match found(run)?.pop() {
            Some((_, folder)) => Self::open(&folder).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a checkpoint and checks every byte of it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let run = Run::read(folder)?;
        let refuse = |reason: String| Error::malformed(&folder.join(RUN), reason);
        let Some(all) = run.numbers() else {
            return Err(refuse("its tensors have more numbers than can be counted".to_owned()));
        };
        if run.files.len() != pieces_of(all) {
            let (found, expected) = (run.files.len(), pieces_of(all));
            return Err(refuse(format!("it lists {found} pieces; its numbers need {expected}")));
        }
        for (index, file) in run.files.iter().enumerate() {
            if file.name != piece_name(index) {
                return Err(refuse(format!("`{}` is no name of a piece", file.name)));
            }
            // Before anything is made of it: what the tensors say must be there.
            if file.bytes < 4 * numbers_of(all, index) as u64 {
                return Err(refuse(format!("`{}` is shorter than its numbers", file.name)));
            }
            TensorFile::open(&folder.join(&file.name))?.check(file)?;
        }
        Ok(Self { folder: folder.to_owned(), run })
    }

    /// Where the run's weights come from.
    pub fn origin(&self) -> &Origin {
        &self.run.origin
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u32 {
        self.run.steps
    }

    /// Goes on where the run stood. The network is the one that the run began with: the same base, and training
    /// itself if it did. Where it fails, the network is as it was.
    pub fn resume<D: Device>(&self, network: &mut Network<D>, keep: Keep) -> Result<Trainer<D>, Error> {
        let Run { steps, optimiser, lora, heads, origin, tensors, files, .. } = &self.run;
        origin.check_base(&format!("`{}`", self.folder.display()), network.base())?;
        self.check_tensors(network)?;
        let (device, shape) = (network.device(), network.shape());
        // Their values are replaced below.
        let lora = lora.map(|config| Lora::new(device, shape, config, 0)).transpose()?;
        let heads = match heads {
            Some(HeadsConfig { names, pooling }) => {
                Some(Heads::new(device, shape, names.clone(), *pooling, 0)?)
            }
            None => None,
        };
        let mut trainer = Trainer::new(lora, heads, *optimiser, keep)?;
        let (device, mut all) = trainer.tensors_mut(network);
        let mut pieces = Pieces::new(&self.folder, files, self.run.numbers().unwrap_or_default());
        let mut loaded = Vec::with_capacity(Part::ALL.len() * tensors.len());
        for part in Part::ALL {
            for tensor in &all {
                loaded.push(tensor.load(device, part, &pieces.take(tensor.length())?)?);
            }
        }
        // From here on nothing can fail, so that a network is never part old and part new.
        let mut loaded = loaded.into_iter();
        for _ in Part::ALL {
            all.iter_mut().zip(&mut loaded).for_each(|(tensor, loaded)| tensor.put(loaded));
        }
        trainer.step = *steps;
        Ok(trainer)
    }

    /// Refuses other tensors than those that would train, before memory is taken for them.
    fn check_tensors<D: Device>(&self, network: &Network<D>) -> Result<(), Error> {
        let Run { lora, heads, tensors, .. } = &self.run;
        let refuse = |reason: String| Error::malformed(&self.folder.join(RUN), reason);
        let base = network.tensors().filter(|tensor| tensor.gradient().is_some());
        let mut expected: Vec<_> = base.map(|tensor| (tensor.name.clone(), tensor.length())).collect();
        let mut sizes = Vec::new();
        if let Some(config) = lora {
            config.check().map_err(refuse)?;
            sizes.extend(Lora::<D>::sizes(network.shape(), *config));
        }
        if let Some(config) = heads {
            config.check().map_err(refuse)?;
            sizes.extend(Heads::<D>::sizes(network.shape(), config));
        }
        expected.extend(sizes.into_iter().map(|(name, (rows, columns))| (name, rows * columns)));
        if expected == *tensors {
            return Ok(());
        }
        let numbers = |tensors: &[(String, usize)]| tensors.iter().map(|(_, length)| length).sum::<usize>();
        Err(refuse(format!(
            "it holds {} tensors of {} numbers; what trains here has {} of {}",
            tensors.len(),
            numbers(tensors),
            expected.len(),
            numbers(&expected),
        )))
    }
}

impl Run {
    /// What a checkpoint's folder says; its pieces are not looked at.
    fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUN);
        let refuse = |reason: String| Error::malformed(&path, reason);
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let run: Self =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("it is damaged: {error}")))?;
        if run.version != VERSION {
            return Err(refuse(format!("its form is of version {}; expected {VERSION}", run.version)));
        }
        check_hash(&path, &run.content, &run.hash())?;
        Ok(run)
    }

    fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        // Plain fields are always JSON.
        let text = serde_json::to_vec(&Self { content: String::new(), ..self.clone() });
        hasher.update(text.unwrap_or_default());
        hex(hasher)
    }

    /// How many numbers its files hold; none where that is more than can be counted.
    fn numbers(&self) -> Option<usize> {
        let mut lengths = self.tensors.iter().map(|(_, length)| *length);
        let one_part = lengths.try_fold(0_usize, usize::checked_add);
        one_part?.checked_mul(Part::ALL.len())
    }

    /// Whether both are of one run, at whatever step.
    fn is_of(&self, other: &Self) -> bool {
        let at = |run: &Self| Self { steps: 0, files: Vec::new(), content: String::new(), ..run.clone() };
        at(self) == at(other)
    }

    /// The checkpoints of a run's folder that this one is to follow. The folder of another run is refused.
    fn earlier(&self, run: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut earlier = Vec::new();
        for (steps, folder) in found(run)? {
            let is_ours = match Self::read(&folder) {
                Ok(there) => there.is_of(self),
                // Nobody can go on from it, and whose it is cannot be said: it stays where it is.
                Err(_) if steps < self.steps => continue,
                Err(error) => return Err(error),
            };
            if steps > self.steps || !is_ours {
                return Err(Error::training(format!(
                    "`{}` belongs to another run, which has taken {steps} steps; go on from there or choose \
                     another folder",
                    run.display()
                )));
            }
            if steps < self.steps {
                earlier.push(folder);
            }
        }
        Ok(earlier)
    }
}

/// The checkpoints of a run by their steps, earliest first.
fn found(run: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let mut found = Vec::new();
    for (name, path) in entries(run)? {
        let number = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort();
    Ok(found)
}

/// Names and paths of what is in a run's folder.
fn entries(run: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let entries = match fs::read_dir(run) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file("read", run))?,
    };
    let named = entries
        .map(|entry| entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())));
    named.collect::<Result<_, _>>().map_err(Error::file("read", run))
}

/// Removes what a cut save left; only whoever holds the lock may.
fn clear_leftovers(run: &Path) -> Result<(), Error> {
    for (name, path) in entries(run)? {
        if name.starts_with(PARTIAL) {
            // Nothing reads it, so that failing to remove it costs room and nothing else.
            fs::remove_dir_all(path).ok();
        }
    }
    Ok(())
}

/// Removes a checkpoint under another name, so that one that is half removed is never found.
fn remove(run: &Path, checkpoint: &Path) -> Result<(), Error> {
    let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
    let aside = run.join(format!("{PARTIAL}removed-{name}"));
    fs::rename(checkpoint, &aside).map_err(Error::file("rename", checkpoint))?;
    fs::remove_dir_all(&aside).map_err(Error::file("remove", &aside))
}

#[cfg(test)]
#[path = "checkpoint/tests.rs"]
mod tests;
