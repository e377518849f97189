//! Checkpoints: all that a run needs to go on as if nothing had happened.
//!
//! A run has a folder, in it one folder per checkpoint, such as `step-00000040`. It is written under another name and
//! renamed when complete, so that a cut run leaves the one before. In it `run.json` says what the run is and lists
//! the other files with their hashes; these hold the numbers of all that trains (weights, then both moments), cut into
//! pieces of at most 15 MiB. One process at a time writes to a run's folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ::safetensors::tensor::TensorView;
use ::safetensors::{Dtype, serialize};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::tensor::{Part, Tensor};
use super::{Device, Heads, Keep, Lora, Network, Optimiser, Trainer};
use crate::map::{MappedFile, write_whole};
use crate::models::{check_hash, check_size, hex};
use crate::safetensors::TensorFile;
use crate::{Error, HeadsConfig, LoraConfig, Origin, StoredFile};

const VERSION: u32 = 1;
const RUN: &str = "run.json";
const PREFIX: &str = "step-";
/// How names of folders begin that are being written.
const PARTIAL: &str = ".partial-step-";
/// The one tensor of a piece.
const NUMBERS: &str = "numbers";
/// Numbers of a piece: 15 MiB with room for the header.
const PIECE: usize = (15 * 1024 * 1024 - 4096) / 4;

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
    /// Name and length of each tensor, in order.
    tensors: Vec<(String, usize)>,
    files: Vec<StoredFile>,
    /// SHA-256 of all of this with an empty text here.
    content: String,
}

impl Checkpoint {
    /// Writes a checkpoint into a run's folder and removes those before it. Returns where it is.
    pub fn save<D: Device>(
        run: &Path,
        network: &Network<D>,
        trainer: &Trainer<D>,
        (data, seed): (&str, u64),
    ) -> Result<PathBuf, Error> {
        let path = run.join(format!("{PREFIX}{:08}", trainer.steps()));
        fs::create_dir_all(run).map_err(Error::file("create folder", run))?;
        let partial = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(run);
        let partial = partial.map_err(Error::file("create folder in", run))?;
        let tensors = trainer.tensors(network);
        let files = write_pieces(partial.path(), network.device(), &tensors)?;
        let mut written = Run {
            version: VERSION,
            steps: trainer.steps(),
            optimiser: *trainer.optimiser(),
            lora: trainer.lora().map(Lora::config),
            heads: trainer.heads().map(Heads::config),
            origin: Origin { base: network.base().to_owned(), data: data.to_owned(), seed },
            tensors: tensors.iter().map(|tensor| (tensor.name.clone(), tensor.length())).collect(),
            files,
            content: String::new(),
        };
        written.content = written.hash();
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::malformed(&path.join(RUN), error.to_string()))?;
        write_whole(&partial.path().join(RUN), &text)?;
        if path.exists() {
            if Self::open(&path).is_ok_and(|there| there.run == written) {
                return Ok(path);
            }
            // It is damaged or of another run, so that nothing is lost with it.
            fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
        }
        let partial = partial.keep();
        fs::rename(&partial, &path).map_err(Error::file("rename into place", &path))?;
        let folder = File::open(run).and_then(|folder| folder.sync_all());
        folder.map_err(Error::file("write", run))?;
        for old in found(run)? {
            if old != path {
                fs::remove_dir_all(&old).map_err(Error::file("remove", &old))?;
            }
        }
        Ok(path)
    }

    /// The latest checkpoint of a run; none where the run has none. A damaged one is an error: going on from an
    /// earlier one in silence would be another run.
    pub fn latest(run: &Path) -> Result<Option<Self>, Error> {
        match found(run)?.pop() {
            Some(folder) => Self::open(&folder).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a checkpoint and checks every byte of it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUN);
        let refuse = |reason: String| Error::malformed(&path, reason);
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let run: Run =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("it is damaged: {error}")))?;
        if run.version != VERSION {
            return Err(refuse(format!("its form is of version {}; expected {VERSION}", run.version)));
        }
        check_hash(&path, &run.content, &run.hash())?;
        for (index, file) in run.files.iter().enumerate() {
            if file.name != piece_name(index) {
                return Err(refuse(format!("`{}` is no name of a piece", file.name)));
            }
            let path = folder.join(&file.name);
            let mapped = MappedFile::open(&path)?;
            check_size(&path, file.bytes, mapped.len() as u64)?;
            let mut hasher = Sha256::new();
            hasher.update(&*mapped);
            check_hash(&path, &file.sha256, &hex(hasher))?;
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
    /// itself if it did.
    pub fn resume<D: Device>(&self, network: &mut Network<D>, keep: Keep) -> Result<Trainer<D>, Error> {
        let Run { steps, optimiser, lora, heads, origin, tensors, .. } = &self.run;
        origin.check_base(&self.folder, network.base())?;
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
        let expected: Vec<_> = all.iter().map(|tensor| (tensor.name.clone(), tensor.length())).collect();
        if expected != *tensors {
            let reason = format!(
                "it holds {} tensors of {} numbers; what trains here has {} of {}",
                tensors.len(),
                tensors.iter().map(|(_, length)| length).sum::<usize>(),
                expected.len(),
                expected.iter().map(|(_, length)| length).sum::<usize>(),
            );
            return Err(Error::malformed(&self.folder.join(RUN), reason));
        }
        let mut pieces = Pieces { checkpoint: self, next: 0, numbers: Vec::new(), at: 0 };
        for part in Part::ALL {
            for tensor in &mut all {
                let values = pieces.take(tensor.length())?;
                tensor.write(device, part, &values)?;
            }
        }
        trainer.step = *steps;
        Ok(trainer)
    }
}

impl Run {
    fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        // Plain fields are always JSON.
        let text = serde_json::to_vec(&Self { content: String::new(), ..self.clone() });
        hasher.update(text.unwrap_or_default());
        hex(hasher)
    }
}

/// The checkpoints of a run, earliest first.
fn found(run: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(run) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file("read", run))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file("read", run))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PARTIAL) {
            // What a cut run left. Nothing reads it, so that failing to remove it costs room and nothing else.
            fs::remove_dir_all(entry.path()).ok();
        }
        let number = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn piece_name(index: usize) -> String {
    format!("numbers-{index:04}.safetensors")
}

/// Writes all parts of all tensors, one after the other, in pieces.
fn write_pieces<D: Device>(
    folder: &Path,
    device: &D,
    tensors: &[&Tensor<D>],
) -> Result<Vec<StoredFile>, Error> {
    let mut files = Vec::new();
    let mut bytes = Vec::new();
    for part in Part::ALL {
        for tensor in tensors {
            for value in tensor.read(device, part)? {
                if !value.is_finite() {
                    return Err(Error::training(format!("`{}` holds {value}; it is not kept", tensor.name)));
                }
                bytes.extend(value.to_le_bytes());
                if bytes.len() == PIECE * 4 {
                    files.push(write_piece(folder, files.len(), &std::mem::take(&mut bytes))?);
                }
            }
        }
    }
    if !bytes.is_empty() {
        files.push(write_piece(folder, files.len(), &bytes)?);
    }
    Ok(files)
}

fn write_piece(folder: &Path, index: usize, bytes: &[u8]) -> Result<StoredFile, Error> {
    let name = piece_name(index);
    let path = folder.join(&name);
    let refuse = |error: ::safetensors::SafeTensorError| Error::malformed(&path, error.to_string());
    let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes).map_err(refuse)?;
    let content = serialize([(NUMBERS, view)], None).map_err(refuse)?;
    write_whole(&path, &content)?;
    let mut hasher = Sha256::new();
    hasher.update(&content);
    Ok(StoredFile { name, bytes: content.len() as u64, sha256: hex(hasher) })
}

/// Hands out the numbers of a checkpoint in their order.
struct Pieces<'a> {
    checkpoint: &'a Checkpoint,
    next: usize,
    numbers: Vec<f32>,
    at: usize,
}

impl Pieces<'_> {
    fn take(&mut self, length: usize) -> Result<Vec<f32>, Error> {
        let mut taken = Vec::with_capacity(length);
        while taken.len() < length {
            if self.at == self.numbers.len() {
                self.numbers = self.piece()?;
                self.at = 0;
            }
            let count = (length - taken.len()).min(self.numbers.len() - self.at);
            taken.extend(&self.numbers[self.at..self.at + count]);
            self.at += count;
        }
        Ok(taken)
    }

    fn piece(&mut self) -> Result<Vec<f32>, Error> {
        let Checkpoint { folder, run } = self.checkpoint;
        let all: usize = run.tensors.iter().map(|(_, length)| 3 * length).sum();
        let length = all.saturating_sub(self.next * PIECE).min(PIECE);
        if length == 0 {
            return Err(Error::malformed(&folder.join(RUN), "its pieces are shorter than its tensors"));
        }
        let path = folder.join(piece_name(self.next));
        self.next += 1;
        TensorFile::open(&path)?.tensors()?.floats(NUMBERS, &[length])
    }
}

#[cfg(test)]
#[path = "checkpoint/tests.rs"]
mod tests;
