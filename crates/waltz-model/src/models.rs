//! The models folder: one folder per model, in it the files and `manifest.json`, which is written last. A model
//! without a manifest is not there; a file is only ever renamed into place after its bytes were checked.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::catalogue::is_name;
use crate::map::{MappedFile, lock_file};
use crate::{Error, ModelName, packed};

const MANIFEST: &str = "manifest.json";
/// How the names of folders begin that hold downloads.
pub(crate) const DOWNLOAD: &str = "download-";
/// The largest manifest that is read.
const MAX_MANIFEST: u64 = 64 * 1024;

/// The folder that holds models.
#[derive(Clone, Debug)]
pub struct Models {
    folder: PathBuf,
}

/// A model that is there: its manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The name it was pulled by.
    pub name: String,
    /// Where it came from.
    pub source: String,
    /// Its files.
    pub files: Vec<StoredFile>,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFile {
    /// Its name in the model's folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
}

/// A file of a model that is there, and what must be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of the bytes that were pulled. Whoever loads the file compares.
    pub sha256: String,
}

impl PinnedFile {
    /// Reads the whole file and refuses other bytes than those that were pulled.
    pub fn check(&self) -> Result<(), Error> {
        let file = MappedFile::open(&self.path)?;
        check_hash(&self.path, &self.sha256, &hex(Sha256::new_with_prefix(&*file)))
    }
}

/// What a pull is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes come over the network.
    Download,
    /// Bytes are written to the models folder and hashed.
    Write,
    /// Bytes that are there are hashed.
    Check,
}

/// How far a pull or a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done.
    pub step: Step,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

/// Takes note of progress.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Progress);

impl Models {
    /// The models in a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every model that is there, by name.
    pub fn list(&self) -> Result<Vec<Stored>, Error> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::file("read models folder", &self.folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::file("read models folder", &self.folder))?.path();
            found.extend(manifest(&path)?);
        }
        found.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(found)
    }

    /// A model that is there.
    pub fn stored(&self, name: &ModelName) -> Result<Stored, Error> {
        let missing = || Error::NotPulled { name: name.clone(), folder: self.folder.clone() };
        // A folder that was copied by hand may hold another model than its name says.
        let is_meant = |stored: &Stored| stored.name == name.to_string();
        manifest(&self.folder_of(name))?.filter(is_meant).ok_or_else(missing)
    }

    /// A model's file with this ending, such as `.gguf`. Its size was compared with the manifest and the manifest
    /// with the pin; its bytes were not read.
    pub fn file(&self, name: &ModelName, ending: &str) -> Result<PinnedFile, Error> {
        let stored = self.stored(name)?;
        let folder = self.folder_of(name);
        check_pins(name, &stored, &folder)?;
        let Some(file) = stored.files.iter().find(|file| file.name.ends_with(ending)) else {
            return Err(Error::malformed(&folder.join(MANIFEST), format!("it lists no file `*{ending}`")));
        };
        let path = folder.join(&file.name);
        let found = path.metadata().map_err(Error::file("read the size of", &path))?.len();
        check_size(&path, file.bytes, found)?;
        Ok(PinnedFile { path, sha256: file.sha256.clone() })
    }

    /// Reads every file of a model and compares its hash with the manifest and, for known models, with the pin.
    pub fn verify(&self, name: &ModelName, watch: Watch<'_>) -> Result<Stored, Error> {
        let stored = self.stored(name)?;
        let folder = self.folder_of(name);
        check_pins(name, &stored, &folder)?;
        let total = Some(stored.files.iter().map(|file| file.bytes).sum());
        let mut before = 0;
        for file in &stored.files {
            let path = folder.join(&file.name);
            let mut opened = File::open(&path).map_err(Error::file("open", &path))?;
            let mut hasher = Sha256::new();
            let mut note = |done| watch(Progress { step: Step::Check, done: before + done, total });
            let found = copy(
                &mut opened,
                &path,
                &mut |bytes| {
                    hasher.update(bytes);
                    Ok(())
                },
                &mut note,
            )?;
            check_size(&path, file.bytes, found)?;
            check_hash(&path, &file.sha256, &hex(hasher))?;
            before += found;
        }
        Ok(stored)
    }

    /// Locks a model's folder for a pull, and makes it where it is missing.
    pub(crate) fn lock(&self, name: &ModelName) -> Result<Locked, Error> {
        let folder = self.folder_of(name);
        std::fs::create_dir_all(&folder).map_err(Error::file("create folder", &folder))?;
        match lock_file(&folder.join("pull.lock"))? {
            Some(file) => Ok(Locked { folder, _file: file }),
            None => Err(Error::Locked { name: name.to_string() }),
        }
    }

    fn folder_of(&self, name: &ModelName) -> PathBuf {
        self.folder.join(name.folder())
    }
}

/// A model's folder that nobody else writes to; dropping it releases the folder.
#[derive(Debug)]
pub(crate) struct Locked {
    folder: PathBuf,
    _file: File,
}

impl Locked {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file is gathered before it is checked.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.part"))
    }

    /// Writes all that comes out of `source` to a part.
    pub(crate) fn write_part(
        &self,
        name: &str,
        source: &mut dyn Read,
        note: &mut dyn FnMut(u64),
    ) -> Result<StoredFile, Error> {
        let part = self.part(name);
        let (bytes, sha256) = write(&part, source, note)?;
        Ok(StoredFile { name: name.to_owned(), bytes, sha256 })
    }

    /// Puts checked parts in place, then the manifest that makes them a model.
    pub(crate) fn install(&self, stored: Stored) -> Result<Stored, Error> {
        let old = manifest(&self.folder).ok().flatten();
        for file in &stored.files {
            let path = self.folder.join(&file.name);
            std::fs::rename(self.part(&file.name), &path).map_err(Error::file("rename into place", &path))?;
        }
        let path = self.folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&stored).map_err(|error| Error::File {
            operation: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        self.write_part(MANIFEST, &mut text.as_slice(), &mut |_| ())?;
        std::fs::rename(self.part(MANIFEST), &path).map_err(Error::file("rename into place", &path))?;
        let folder = File::open(&self.folder).map_err(Error::file("open", &self.folder))?;
        folder.sync_all().map_err(Error::file("write", &self.folder))?;
        for file in old.into_iter().flat_map(|old| old.files) {
            if !stored.files.iter().any(|kept| kept.name == file.name) {
                std::fs::remove_file(self.folder.join(&file.name)).ok();
            }
        }
        self.discard_parts();
        self.discard_packed(&stored);
        Ok(stored)
    }

    /// Removes the packed forms of files that are not the model's any more. Whoever has one mapped keeps it.
    fn discard_packed(&self, stored: &Stored) {
        let file_name = |file: &StoredFile| packed::file_name(Path::new(&file.name), &file.sha256);
        let kept: Vec<String> = stored.files.iter().map(file_name).collect();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(packed::ENDING) && !kept.contains(&name) {
                std::fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// Removes what pulls left that did not end well. Nothing reads it, so that what cannot be removed costs room and
    /// nothing else.
    pub(crate) fn discard_parts(&self) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".part") || name.ends_with(".part.tag") {
                std::fs::remove_file(entry.path()).ok();
            } else if name.starts_with(DOWNLOAD) {
                std::fs::remove_dir_all(entry.path()).ok();
            }
        }
    }
}

/// Writes a file down to the disk and returns its size and hash.
fn write(part: &Path, source: &mut dyn Read, note: &mut dyn FnMut(u64)) -> Result<(u64, String), Error> {
    let mut file = File::create(part).map_err(Error::file("create", part))?;
    let mut hasher = Sha256::new();
    let mut keep = |bytes: &[u8]| {
        hasher.update(bytes);
        file.write_all(bytes).map_err(Error::file("write", part))
    };
    let bytes = copy(source, part, &mut keep, note)?;
    file.sync_all().map_err(Error::file("write", part))?;
    Ok((bytes, hex(hasher)))
}

/// Copies in pieces and says how far it is.
fn copy(
    source: &mut dyn Read,
    path: &Path,
    write: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    note: &mut dyn FnMut(u64),
) -> Result<u64, Error> {
    let mut buffer = vec![0; 1 << 18];
    let mut done = 0;
    loop {
        let read = match source.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(Error::file("read what is to become", path))?,
        };
        if read == 0 {
            return Ok(done);
        }
        write(&buffer[..read])?;
        done += read as u64;
        note(done);
    }
}

/// Reads a folder's manifest; none where the folder holds no model.
fn manifest(folder: &Path) -> Result<Option<Stored>, Error> {
    let path = folder.join(MANIFEST);
    let file = match File::open(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file.map_err(Error::file("open", &path))?,
    };
    let mut text = Vec::new();
    file.take(MAX_MANIFEST).read_to_end(&mut text).map_err(Error::file("read", &path))?;
    let stored: Stored = serde_json::from_slice(&text)
        .map_err(|error| Error::malformed(&path, format!("it is damaged ({error}); pull the model again")))?;
    match stored.files.iter().find(|file| !is_name(&file.name)) {
        Some(file) => Err(Error::malformed(&path, format!("`{}` is no name of a model's file", file.name))),
        None => Ok(Some(stored)),
    }
}

/// Compares a known model's manifest with the pins.
fn check_pins(name: &ModelName, stored: &Stored, folder: &Path) -> Result<(), Error> {
    let ModelName::Known(known) = name else { return Ok(()) };
    for pinned in known.files {
        let listed = stored.files.iter().find(|file| file.name == pinned.name);
        let found = listed.map_or("no such file", |file| &file.sha256);
        check_hash(&folder.join(pinned.name), pinned.sha256, found)?;
    }
    Ok(())
}

pub(crate) fn check_size(path: &Path, expected: u64, found: u64) -> Result<(), Error> {
    let bytes = |count| format!("{count} bytes");
    mismatch(path, &bytes(expected), &bytes(found))
}

pub(crate) fn check_hash(path: &Path, expected: &str, found: &str) -> Result<(), Error> {
    mismatch(path, &format!("SHA-256 {expected}"), &format!("SHA-256 {found}"))
}

fn mismatch(path: &Path, expected: &str, found: &str) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let what = format!("`{}`", path.display());
    Err(Error::Mismatch { what, expected: expected.to_owned(), found: found.to_owned() })
}

pub(crate) fn hex(hasher: Sha256) -> String {
    hex_of(&hasher.finalize())
}

pub(crate) fn hex_of(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
