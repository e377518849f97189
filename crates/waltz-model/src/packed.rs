//! The form of a model that serves: Q8 weights laid out as the kernels read them, in one file that is
//! mapped into memory.
//!
//! The file is made from a GGUF file once and bears that file's hash in its name and its header. A
//! checksum covers all of it; a file that does not pass is made anew. It is written under another name
//! and renamed when complete, so that no process ever maps a part of it.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::kernels::{Bytes, Matrix, MatrixKind};
use crate::map::{MappedFile, write_whole};
use crate::models::{check_hash, hex_of};
use crate::shape::Shape;
use crate::weights::{Site, Source, Weights};
use crate::{Error, Gguf, Model, PinnedFile};

const MAGIC: &[u8; 8] = b"WALTZQ8\n";
const VERSION: u32 = 1;
/// How the names of packed files end.
pub(crate) const ENDING: &str = ".q8";
/// Parts begin at multiples of this: the widest load of the kernels.
const ALIGNMENT: usize = 64;
/// Magic, version and checksum come before what the checksum covers.
const CHECKED_FROM: usize = 16;
/// Magic, version, checksum, hash, 8 sizes, 3 constants; padded.
const HEADER: usize = 192;

/// What a packed file holds.
#[derive(Debug)]
pub(crate) struct Packed {
    /// The model's sizes.
    pub(crate) shape: Shape,
    /// Its weights.
    pub(crate) weights: Weights,
    /// SHA-256 of the GGUF file that it was made from.
    pub(crate) base: String,
}

/// Opens the packed form of a GGUF file in `folder`, and makes it if it is not there or is damaged. A GGUF file of other
/// bytes than were pulled is refused.
pub(crate) fn open(gguf: &PinnedFile, folder: &Path) -> Result<Packed, Error> {
    let PinnedFile { path: gguf, sha256 } = gguf;
    let hash: [u8; 32] = Sha256::digest(&*MappedFile::open(gguf)?).into();
    check_hash(gguf, sha256, &hex_of(&hash))?;
    let path = folder.join(file_name(gguf, sha256));
    if path.is_file()
        && let Ok(found) = read(&path, &hash)
    {
        return Ok(found);
    }
    let model = Model::from_gguf(&Gguf::open(gguf)?, MatrixKind::Q8)?;
    write_whole(&path, &encode(model.shape(), model.weights(), &hash))?;
    read(&path, &hash)
}

/// The name of the packed form of a GGUF file with this SHA-256.
pub(crate) fn file_name(gguf: &Path, sha256: &str) -> String {
    let stem = gguf.file_stem().map_or("model".into(), |stem| stem.to_string_lossy());
    format!("{stem}-{}{ENDING}", sha256.get(..16).unwrap_or(sha256))
}

fn encode(shape: &Shape, weights: &Weights, hash: &[u8; 32]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(hash);
    for size in sizes(shape) {
        bytes.extend((*size as u64).to_le_bytes());
    }
    bytes.extend(shape.rope_base.to_le_bytes());
    bytes.extend(shape.epsilon.to_le_bytes());
    bytes.extend(u32::from(shape.tied).to_le_bytes());
    bytes.resize(HEADER, 0);
    let Weights { embedding, layers, norm, output } = weights;
    add_matrix(&mut bytes, embedding);
    for layer in layers {
        add_vector(&mut bytes, &layer.attention_norm);
        add_matrix(&mut bytes, &layer.query_key_value);
        add_matrix(&mut bytes, &layer.attention_output);
        add_vector(&mut bytes, &layer.feed_norm);
        add_matrix(&mut bytes, &layer.gate_up);
        add_matrix(&mut bytes, &layer.down);
    }
    add_vector(&mut bytes, norm);
    if let Some(output) = output {
        add_matrix(&mut bytes, output);
    }
    let checksum = crc32fast::hash(&bytes[CHECKED_FROM..]);
    bytes[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn add_matrix(bytes: &mut Vec<u8>, matrix: &Matrix) {
    if let Some((scales, quants)) = matrix.parts_q8() {
        for part in [scales, quants] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        }
    }
}

fn add_vector(bytes: &mut Vec<u8>, values: &[f32]) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

fn read(path: &Path, hash: &[u8; 32]) -> Result<Packed, Error> {
    let file = Arc::new(MappedFile::open(path)?);
    let shape = read_header(&file, hash).map_err(|reason| Error::malformed(path, reason))?;
    let mut source = FromPacked { file: Arc::clone(&file), at: HEADER };
    let weights = Weights::gather(&shape, &mut source)?;
    if source.at != file.len() {
        return Err(Error::malformed(path, format!("it has {} bytes; expected {}", file.len(), source.at)));
    }
    Ok(Packed { shape, weights, base: hex_of(hash) })
}

fn read_header(bytes: &[u8], hash: &[u8; 32]) -> Result<Shape, String> {
    if bytes.len() < HEADER || &bytes[..8] != MAGIC || number(bytes, 8) != VERSION {
        return Err(format!("it is not a packed model of version {VERSION}"));
    }
    if number(bytes, 12) != crc32fast::hash(&bytes[CHECKED_FROM..]) {
        return Err("its checksum is wrong; it is damaged".to_owned());
    }
    if bytes[16..48] != *hash {
        return Err("it was made from another model file".to_owned());
    }
    let mut shape = Shape {
        layers: 0,
        width: 0,
        heads: 0,
        kv_heads: 0,
        head: 0,
        hidden: 0,
        vocabulary: 0,
        context: 0,
        rope_base: f32::from_bits(number(bytes, 112)),
        epsilon: f32::from_bits(number(bytes, 116)),
        tied: number(bytes, 120) != 0,
    };
    for (index, size) in sizes_mut(&mut shape).into_iter().enumerate() {
        // Sizes are far below 2^32; a larger one fails the check below.
        *size = number(bytes, 48 + 8 * index) as usize;
    }
    shape.check()?;
    Ok(shape)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The sizes in the header's order.
fn sizes(shape: &Shape) -> [&usize; 8] {
    let Shape { layers, width, heads, kv_heads, head, hidden, vocabulary, context, .. } = shape;
    [layers, width, heads, kv_heads, head, hidden, vocabulary, context]
}

fn sizes_mut(shape: &mut Shape) -> [&mut usize; 8] {
    let Shape { layers, width, heads, kv_heads, head, hidden, vocabulary, context, .. } = shape;
    [layers, width, heads, kv_heads, head, hidden, vocabulary, context]
}

/// Hands out the parts of a packed file, which are in the order in which they are asked for.
struct FromPacked {
    file: Arc<MappedFile>,
    at: usize,
}

impl FromPacked {
    fn take(&mut self, length: usize) -> Result<Bytes, Error> {
        let range = self.at..self.at + length;
        if range.end > self.file.len() {
            return Err(Error::malformed(self.file.path(), "it is shorter than its sizes say"));
        }
        self.at = range.end.next_multiple_of(ALIGNMENT);
        Ok(Bytes::Mapped(Arc::clone(&self.file), range))
    }
}

impl Source for FromPacked {
    type Matrix = Matrix;
    type Vector = Vec<f32>;

    fn matrix(&mut self, site: &Site) -> Result<Matrix, Error> {
        let (rows, columns) = (site.rows(), site.columns);
        let (scales, quants) = Matrix::sizes_q8(rows, columns);
        let (scales, quants) = (self.take(scales)?, self.take(quants)?);
        let matrix = Matrix::from_parts_q8(rows, columns, scales, quants);
        matrix.ok_or_else(|| Error::malformed(self.file.path(), "a matrix has not the bytes it needs"))
    }

    fn vector(&mut self, _name: &str, length: usize) -> Result<Vec<f32>, Error> {
        let bytes = self.take(length * 4)?;
        Ok(bytes.slice().chunks_exact(4).map(|four| f32::from_bits(number(four, 0))).collect())
    }
}

#[cfg(test)]
#[path = "packed/tests.rs"]
mod tests;
