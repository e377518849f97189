//! A file as memory: read where it is touched, shared between processes.

use std::fs::File;
use std::ops::Deref;
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
