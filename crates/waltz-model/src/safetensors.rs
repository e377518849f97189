//! Reads safetensors files: a JSON table of tensors, then their data. The `safetensors` crate checks the table
//! against the file (sizes, gaps, overlaps); here the names and shapes are checked that a model needs.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::map::MappedFile;
use crate::models::{check_hash, check_size, hex};
use crate::{Error, StoredFile};

/// A safetensors file, mapped or in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    content: Content,
}

/// The largest file that is read into memory: more than an adapter of the highest rank has.
const MOST_READ: u64 = 2 << 30;

#[derive(Debug)]
enum Content {
    Mapped(MappedFile),
    Read(Vec<u8>),
    Embedded(&'static [u8]),
}

/// The checked table of a [`TensorFile`].
#[derive(Debug)]
pub struct Tensors<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    tensors: SafeTensors<'a>,
}

impl TensorFile {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), content: Content::Mapped(MappedFile::open(path)?) })
    }

    /// Reads a file that others may write in place: of a map that shrinks, the process would die.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        // Looked at before it is opened: a pipe would be waited for, and a device has no end.
        let found = std::fs::metadata(path).map_err(Error::file("read the size of", path))?;
        if !found.is_file() {
            return Err(Error::malformed(path, "it is no regular file".to_owned()));
        }
        if found.len() > MOST_READ {
            let reason = format!("it has {} bytes; at most {MOST_READ} are read", found.len());
            return Err(Error::malformed(path, reason));
        }
        let bytes = std::fs::read(path).map_err(Error::file("read model file", path))?;
        Ok(Self { path: path.to_owned(), content: Content::Read(bytes) })
    }

    /// A file that is part of the program; `name` stands for its path in messages.
    pub(crate) fn embedded(name: &str, bytes: &'static [u8]) -> Self {
        Self { path: PathBuf::from(name), content: Content::Embedded(bytes) }
    }

    /// Refuses other bytes than those that were written.
    pub(crate) fn check(&self, written: &StoredFile) -> Result<(), Error> {
        let (bytes, mut hasher) = (self.bytes(), Sha256::new());
        check_size(&self.path, written.bytes, bytes.len() as u64)?;
        hasher.update(bytes);
        check_hash(&self.path, &written.sha256, &hex(hasher))
    }

    /// SHA-256 of all bytes.
    pub(crate) fn sha256(&self) -> String {
        hex(Sha256::new_with_prefix(self.bytes()))
    }

    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(file) => file,
            Content::Read(bytes) => bytes,
            Content::Embedded(bytes) => bytes,
        }
    }

    /// The path, or what stands for it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the table.
    pub fn tensors(&self) -> Result<Tensors<'_>, Error> {
        let (path, bytes) = (self.path.as_path(), self.bytes());
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| Error::malformed(path, format!("it is no sound safetensors file: {error}")))?;
        Ok(Tensors { path, bytes, tensors })
    }
}

impl Tensors<'_> {
    /// How many tensors there are.
    pub(crate) fn count(&self) -> usize {
        self.tensors.len()
    }

    /// A text that the file says of itself.
    pub(crate) fn note(&self, key: &str) -> Result<String, Error> {
        let table = SafeTensors::read_metadata(self.bytes).ok();
        let found = table.and_then(|(_, table)| table.metadata().as_ref()?.get(key).cloned());
        found.ok_or_else(|| Error::malformed(self.path, format!("it has no note `{key}`")))
    }

    /// Names and shapes of all tensors.
    pub fn list(&self) -> Vec<(String, Vec<usize>)> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec())).collect()
    }

    /// The numbers of a tensor of 4-byte floats, which must have this shape and be finite.
    pub fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let refuse = |reason: String| Error::malformed(self.path, reason);
        let tensor = self.tensors.tensor(name).map_err(|_| refuse(format!("it has no tensor `{name}`")))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            let (kind, found) = (tensor.dtype(), tensor.shape());
            return Err(refuse(format!("tensor `{name}` is {kind:?} {found:?}; expected F32 {shape:?}")));
        }
        let (bytes, _) = tensor.data().as_chunks::<4>();
        let numbers: Vec<f32> = bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        match numbers.iter().all(|number| number.is_finite()) {
            true => Ok(numbers),
            false => Err(refuse(format!("tensor `{name}` holds numbers that are not finite"))),
        }
    }
}

impl Tensors<'_> {
    /// The numbers of a tensor of signed bytes, which must have this shape.
    pub(crate) fn signed_bytes(&self, name: &str, shape: &[usize]) -> Result<Vec<i8>, Error> {
        let refuse = |reason: String| Error::malformed(self.path, reason);
        let tensor = self.tensors.tensor(name).map_err(|_| refuse(format!("it has no tensor `{name}`")))?;
        if tensor.dtype() != Dtype::I8 || tensor.shape() != shape {
            let (kind, found) = (tensor.dtype(), tensor.shape());
            return Err(refuse(format!("tensor `{name}` is {kind:?} {found:?}; expected I8 {shape:?}")));
        }
        Ok(tensor.data().iter().map(|byte| byte.cast_signed()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn what_is_no_file_or_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| TensorFile::read(path).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("no regular file"));
        assert!(refused(Path::new("/dev/zero")).contains("no regular file"));
        let large = folder.path().join("large");
        std::fs::File::create(&large).unwrap().set_len(MOST_READ + 1).unwrap();
        assert!(refused(&large).contains("at most"), "{}", refused(&large));
    }

    fn sound() -> Vec<u8> {
        let bytes: Vec<u8> =
            [1.0_f32, -2.5, 3.0, 0.0, 5.0, 6.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        let infinite = f32::INFINITY.to_le_bytes();
        let tensors = HashMap::from([
            ("a", TensorView::new(Dtype::F32, vec![2, 3], &bytes).unwrap()),
            ("half", TensorView::new(Dtype::F16, vec![12], &bytes).unwrap()),
            ("infinite", TensorView::new(Dtype::F32, vec![1], &infinite).unwrap()),
        ]);
        safetensors::serialize(tensors, None).unwrap()
    }

    fn floats(bytes: &[u8], name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.safetensors");
        std::fs::write(&path, bytes).unwrap();
        let read = TensorFile::open(&path).and_then(|file| file.tensors()?.floats(name, shape));
        read.map_err(|error| {
            let message = error.to_string();
            assert!(message.contains("some.safetensors"), "{message}");
            message
        })
    }

    #[test]
    fn a_sound_file_is_read_and_every_mistake_is_named() {
        let bytes = sound();
        assert_eq!(floats(&bytes, "a", &[2, 3]).unwrap(), [1.0, -2.5, 3.0, 0.0, 5.0, 6.0]);
        assert!(floats(&bytes, "a", &[3, 2]).unwrap_err().contains("expected F32 [3, 2]"));
        assert!(floats(&bytes, "half", &[12]).unwrap_err().contains("F16"));
        assert!(floats(&bytes, "b", &[1]).unwrap_err().contains("no tensor `b`"));
        assert!(floats(&bytes, "infinite", &[1]).unwrap_err().contains("not finite"));
        for length in 0..bytes.len() {
            floats(&bytes[..length], "a", &[2, 3]).unwrap_err();
        }
        let mut long = bytes.clone();
        long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(floats(&long, "a", &[2, 3]).unwrap_err().contains("no sound safetensors file"));
    }

    proptest! {
        /// Whatever the damage, reading ends in numbers or an error.
        #[test]
        fn no_damage_makes_it_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut bytes = sound();
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(numbers) = floats(&bytes, "a", &[2, 3]) {
                prop_assert_eq!(numbers.len(), 6);
            }
        }
    }
}
