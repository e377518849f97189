//! The name of this gateway in a database that it shares with others: a random id in a file of the
//! data folder, created at the first start. It is what ties a journal to its position in the database.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use uuid::Uuid;

use crate::Error;

/// Reads the id of a data folder, or creates it. The caller holds the folder's lock.
pub(super) fn of(data_dir: &Path) -> Result<Uuid, Error> {
    let path = data_dir.join("instance");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| Error::UnknownInstance { path }),
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let instance = Uuid::new_v4();
            create(data_dir, &path, instance).map_err(Error::file("create instance file", &path))?;
            Ok(instance)
        }
        Err(source) => Err(Error::File { operation: "read instance file", path, source }),
    }
}

/// The file appears whole or not at all, also after a power cut.
fn create(data_dir: &Path, path: &Path, instance: Uuid) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{instance}")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_created_once_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let first = of(folder.path()).unwrap();
        assert_eq!(of(folder.path()).unwrap(), first);
        fs::write(folder.path().join("instance"), "gone").unwrap();
        assert!(matches!(of(folder.path()), Err(Error::UnknownInstance { .. })));
    }
}
