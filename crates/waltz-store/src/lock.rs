//! The lock that keeps two processes off one data folder. The system releases it when the process
//! ends, however it ends.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::Error;

/// A held lock; dropping it releases the folder.
#[derive(Debug)]
pub(crate) struct DataLock {
    _file: File,
}

impl DataLock {
    /// Creates the data folder where it is missing, and locks it.
    pub(crate) fn take(data_dir: &Path) -> Result<Self, Error> {
        // What is kept here is for nobody else to read.
        let created = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
        created.map_err(Error::file("create data folder", data_dir))?;
        let path = data_dir.join("waltz.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::file("open lock file", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { data_dir: data_dir.to_owned() }),
            Err(TryLockError::Error(source)) => Err(Error::File { operation: "lock", path, source }),
        }
    }
}
