//! The numbers of a checkpoint, cut into files of at most 15 MiB.

use std::path::Path;

use ::safetensors::tensor::TensorView;
use ::safetensors::{Dtype, serialize};
use sha2::{Digest, Sha256};

use crate::map::write_whole;
use crate::models::hex;
use crate::safetensors::TensorFile;
use crate::train::Device;
use crate::train::tensor::{Part, Tensor};
use crate::{Error, StoredFile};

/// The one tensor of a piece.
const NUMBERS: &str = "numbers";
/// Numbers of a piece: 15 MiB with room for the header.
const PIECE: usize = (15 * 1024 * 1024 - 4096) / 4;

/// What the piece of this place is called.
pub(super) fn piece_name(index: usize) -> String {
    format!("numbers-{index:04}.safetensors")
}

/// How many pieces so many numbers need.
pub(super) fn pieces_of(numbers: usize) -> usize {
    numbers.div_ceil(PIECE)
}

/// How many of all numbers are in the piece of this place.
pub(super) fn numbers_of(all: usize, index: usize) -> usize {
    all.saturating_sub(index.saturating_mul(PIECE)).min(PIECE)
}

/// Writes all parts of all tensors, one after the other, in pieces.
pub(super) fn write_pieces<D: Device>(
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
pub(super) struct Pieces<'a> {
    folder: &'a Path,
    files: std::iter::Enumerate<std::slice::Iter<'a, StoredFile>>,
    /// Numbers of all pieces.
    all: usize,
    /// Those of the piece that is being handed out.
    numbers: std::vec::IntoIter<f32>,
}

impl<'a> Pieces<'a> {
    /// Those that these files of a folder hold.
    pub(super) fn new(folder: &'a Path, files: &'a [StoredFile], all: usize) -> Self {
        Self { folder, files: files.iter().enumerate(), all, numbers: Vec::new().into_iter() }
    }

    /// The next so many.
    pub(super) fn take(&mut self, length: usize) -> Result<Vec<f32>, Error> {
        let mut taken = Vec::with_capacity(length);
        while taken.len() < length {
            if self.numbers.len() == 0 {
                self.numbers = self.piece()?.into_iter();
            }
            taken.extend(self.numbers.by_ref().take(length - taken.len()));
        }
        Ok(taken)
    }

    /// Checked again, because the files may be others than those that were checked when the checkpoint was opened.
    fn piece(&mut self) -> Result<Vec<f32>, Error> {
        let Some((index, written)) = self.files.next() else {
            return Err(Error::malformed(self.folder, "its pieces are shorter than its numbers"));
        };
        let file = TensorFile::open(&self.folder.join(&written.name))?;
        file.check(written)?;
        file.tensors()?.floats(NUMBERS, &[numbers_of(self.all, index)])
    }
}
