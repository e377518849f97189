//! Files as wholes: mapped into memory, read where they are touched, and written so that nobody sees a part of one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::Error;

/// A model file, mapped for reading.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps a file. An empty one is an error: no model file is.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file("open model file", path))?;
        let length = file.metadata().map_err(Error::file("read the size of", path))?.len();
        if length == 0 {
            return Err(Error::malformed(path, "it is empty"));
        }
        // SAFETY: the map is only read. Files in the models folder are replaced by renaming, never written
        // in place, so that the mapped bytes do not change under us.
        #[expect(unsafe_code, reason = "a memory map cannot be made otherwise")]
        let map = unsafe { Mmap::map(&file) }.map_err(Error::file("map model file", path))?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// Writes a file so that it is there as a whole or not at all, also after a power cut.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(Error::file("create folder", folder))?;
    let readable = fs::Permissions::from_mode(0o644);
    let partial = tempfile::Builder::new().prefix(".partial-").permissions(readable).tempfile_in(folder);
    let written = partial.and_then(|mut partial| {
        partial.write_all(bytes)?;
        partial.as_file().sync_all()?;
        partial.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    });
    written.map_err(Error::file("write model file", path))
}

/// The folder that a file is in; a bare name is in the current one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks a file, made where it is missing, until what is returned is dropped or the process ends, however it ends; none
/// where somebody else holds it.
pub(crate) fn lock_file(path: &Path) -> Result<Option<File>, Error> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = opened.map_err(Error::file("open lock file", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(Error::file("lock", path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_a_folder_that_can_be_opened() {
        for (path, folder) in [("a", "."), ("./a", "."), ("b/a", "b"), ("/a", "/")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
        File::open(folder_of(Path::new("a"))).unwrap();
    }
}
