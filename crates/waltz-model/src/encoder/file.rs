//! The two files of a classifier, `encoder.words.bin` and `encoder.layers.bin`: safetensors, of bytes with scales as the
//! kernels read them. The second has a note that says what it was made from and by. A hash in the note covers the
//! note and both files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ::safetensors::tensor::TensorView;
use ::safetensors::{Dtype, SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Encoder;
use crate::bert::{Place, Source, Table, Weights};
use crate::generate::Pooling;
use crate::kernels::{Bytes, Matrix, MatrixKind};
use crate::map::write_whole;
use crate::models::{check_hash, hex};
use crate::{Error, HeadsConfig, Origin, Shape};

const VERSION: u32 = 1;
/// The key of the note.
const NOTE: &str = "waltz";
const WORDS: &str = "encoder.words.bin";
const LAYERS: &str = "encoder.layers.bin";
/// The largest file that is read.
const MOST_BYTES: u64 = 64 << 20;

/// What a classifier says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderNote {
    /// Of the files' form.
    pub version: u32,
    /// One name per head, such as `prompt_harm`, in the order of the logits.
    pub heads: Vec<String>,
    /// For each head the logit that became 0 and the distance from it that became 1; empty without calibration.
    pub calibration: Vec<(f32, f32)>,
    /// The token between two texts.
    pub separator: u32,
    /// What it was made from.
    pub origin: Origin,
    /// SHA-256 of this note without it and of all weights.
    pub sha256: String,
}

/// A classifier's two files, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderFile {
    note: EncoderNote,
    words: Vec<u8>,
    layers: Vec<u8>,
}

/// The heads: names, weights (heads, width) and biases.
pub(crate) type HeadValues = (Vec<String>, Vec<f32>, Vec<f32>);

impl EncoderFile {
    /// Packs weights, in the order of [`Weights::gather`].
    pub(crate) fn pack(
        shape: &Shape,
        values: Vec<Vec<f32>>,
        (names, weights, bias): HeadValues,
        note: (Vec<(f32, f32)>, u32, Origin),
    ) -> Result<Self, Error> {
        let (calibration, separator, origin) = note;
        let mut packer = Packer { values: values.into_iter(), tensors: Vec::new() };
        Weights::gather(shape, &mut packer)?;
        let heads = names.len();
        let (zeros, steps): (Vec<f32>, Vec<f32>) = calibration.iter().copied().unzip();
        if [&weights, &bias, &zeros, &steps].into_iter().flatten().any(|value| !value.is_finite()) {
            return Err(Error::training("the heads hold numbers that are not finite"));
        }
        let mut layers = packer.tensors;
        layers.push(("heads.weight".to_owned(), floats(vec![heads, shape.width], &weights)));
        layers.push(("heads.bias".to_owned(), floats(vec![heads], &bias)));
        // The first table is the words.
        let words = written(vec![layers.remove(0)], None)?;
        let mut note = EncoderNote {
            version: VERSION,
            heads: names,
            calibration,
            separator,
            origin,
            sha256: String::new(),
        };
        note.sha256 = hash(
            &note,
            &words,
            &layers.iter().map(|(name, part)| (name.as_str(), &*part.bytes)).collect::<Vec<_>>(),
        );
        let text = serde_json::to_string(&note).map_err(|error| Error::training(error.to_string()))?;
        Ok(Self { note, words, layers: written(layers, Some(text))? })
    }

    /// Reads both files of a folder. Other bytes than were written are refused.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let [words, layers] = [WORDS, LAYERS].map(|name| {
            let path = folder.join(name);
            let length = path.metadata().map_err(Error::file("read the size of", &path))?.len();
            if length > MOST_BYTES {
                return Err(Error::malformed(
                    &path,
                    format!("it has {length} bytes; at most {MOST_BYTES} are read"),
                ));
            }
            std::fs::read(&path).map_err(Error::file("read model file", &path))
        });
        Self::checked(&folder.join(LAYERS), words?, layers?)
    }

    fn checked(path: &Path, words: Vec<u8>, layers: Vec<u8>) -> Result<Self, Error> {
        let (note, tensors) = noted(path, &layers)?;
        let mut parts: Vec<(&str, &[u8])> =
            tensors.iter().map(|(name, tensor)| (name, tensor.data())).collect();
        parts.sort_unstable();
        check_hash(path, &note.sha256, &hash(&note, &words, &parts))?;
        Ok(Self { note, words, layers })
    }

    /// Writes both files into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        write_whole(&folder.join(WORDS), &self.words)?;
        write_whole(&folder.join(LAYERS), &self.layers)
    }

    /// What it says of itself.
    pub fn note(&self) -> &EncoderNote {
        &self.note
    }

    /// The bytes of both files.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [&self.words, &self.layers]
    }
}

/// Builds a classifier that uses the bytes where they lie.
pub(super) fn open(shape: &Shape, words: &Bytes, layers: &Bytes) -> Result<Encoder, Error> {
    let path = PathBuf::from(LAYERS);
    let (note, tensors) = noted(&path, layers.slice())?;
    let config = HeadsConfig { names: note.heads.clone(), pooling: Pooling::Mean };
    config.check().map_err(|reason| Error::malformed(&path, reason))?;
    let of_words = parsed(Path::new(WORDS), words.slice())?;
    let mut source = Packed { words: (words, of_words), layers: (layers, tensors) };
    let weights = Weights::gather(shape, &mut source)?;
    let heads = (
        source.floats("heads.weight", &[note.heads.len(), shape.width])?,
        source.floats("heads.bias", &[note.heads.len()])?,
    );
    Ok(Encoder { shape: *shape, note, weights, heads })
}

fn parsed<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, Error> {
    SafeTensors::deserialize(bytes)
        .map_err(|error| Error::malformed(path, format!("it is no sound safetensors file: {error}")))
}

/// The note and the table of the second file.
fn noted<'a>(path: &Path, bytes: &'a [u8]) -> Result<(EncoderNote, SafeTensors<'a>), Error> {
    let refuse = |reason: String| Error::malformed(path, reason);
    let tensors = parsed(path, bytes)?;
    let table = SafeTensors::read_metadata(bytes).ok();
    let text = table.and_then(|(_, table)| table.metadata().as_ref()?.get(NOTE).cloned());
    let text = text.ok_or_else(|| refuse(format!("it has no note `{NOTE}`")))?;
    let note: EncoderNote =
        serde_json::from_str(&text).map_err(|error| refuse(format!("its note is unsound: {error}")))?;
    match note.version {
        VERSION => Ok((note, tensors)),
        other => Err(refuse(format!("it is of version {other}; expected {VERSION}"))),
    }
}

/// Covers the note, the words' file and every tensor of the other file, sorted by name.
fn hash(note: &EncoderNote, words: &[u8], layers: &[(&str, &[u8])]) -> String {
    let bare = EncoderNote { sha256: String::new(), ..note.clone() };
    let mut hasher = Sha256::new();
    hasher.update(serde_json::to_string(&bare).unwrap_or_default());
    let mut parts = layers.to_vec();
    parts.sort_unstable();
    for (name, bytes) in std::iter::once((WORDS, words)).chain(parts) {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(bytes);
    }
    hex(hasher)
}

/// A tensor to be written.
struct Written {
    kind: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn floats(shape: Vec<usize>, values: &[f32]) -> Written {
    Written { kind: Dtype::F32, shape, bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
}

fn written(tensors: Vec<(String, Written)>, note: Option<String>) -> Result<Vec<u8>, Error> {
    let broken = |error: ::safetensors::SafeTensorError| {
        Error::training(format!("the weights cannot be written: {error}"))
    };
    let views: Vec<(&String, TensorView<'_>)> = tensors
        .iter()
        .map(|(name, part)| Ok((name, TensorView::new(part.kind, part.shape.clone(), &part.bytes)?)))
        .collect::<Result<_, _>>()
        .map_err(broken)?;
    serialize(views, note.map(|note| HashMap::from([(NOTE.to_owned(), note)]))).map_err(broken)
}

/// Turns weights into what is written.
struct Packer {
    values: std::vec::IntoIter<Vec<f32>>,
    tensors: Vec<(String, Written)>,
}

impl Packer {
    fn next(&mut self, place: &Place) -> Result<Vec<f32>, Error> {
        let values = self.values.next().unwrap_or_default();
        match values.len() == place.rows() * place.columns && values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(Error::training(format!("`{}` has not the numbers that it needs", place.name()))),
        }
    }

    fn bytes(&mut self, name: String, shape: Vec<usize>, bytes: Vec<u8>) {
        self.tensors.push((name, Written { kind: Dtype::U8, shape, bytes }));
    }
}

impl Source for Packer {
    type Matrix = ();
    type Table = ();
    type Vector = ();

    fn matrix(&mut self, place: &Place) -> Result<(), Error> {
        let matrix = Matrix::from_rows(MatrixKind::Q8, place.columns, &self.next(place)?);
        let Some((scales, quants)) = matrix.parts_q8() else { return Ok(()) };
        let name = place.name();
        self.bytes(format!("{name}.scales"), vec![scales.len()], scales.to_vec());
        self.bytes(format!("{name}.bytes"), vec![quants.len()], quants.to_vec());
        Ok(())
    }

    fn table(&mut self, place: &Place) -> Result<(), Error> {
        let packed = Table::pack(&self.next(place)?, place.columns);
        self.bytes(place.name(), vec![place.rows(), Table::row_bytes(place.columns)], packed);
        Ok(())
    }

    fn vector(&mut self, place: &Place) -> Result<(), Error> {
        let values = self.next(place)?;
        self.tensors.push((place.name(), floats(vec![values.len()], &values)));
        Ok(())
    }
}

/// Hands out the parts of both files.
struct Packed<'a> {
    words: (&'a Bytes, SafeTensors<'a>),
    layers: (&'a Bytes, SafeTensors<'a>),
}

impl Packed<'_> {
    /// A tensor's bytes, where they lie.
    fn bytes(&self, name: &str, kind: Dtype, shape: &[usize]) -> Result<Bytes, Error> {
        let refuse = |reason: String| Error::malformed(Path::new(LAYERS), reason);
        let files = [&self.words, &self.layers];
        let found = files.into_iter().find_map(|(bytes, file)| Some((*bytes, file.tensor(name).ok()?)));
        let (file, tensor) = found.ok_or_else(|| refuse(format!("it has no tensor `{name}`")))?;
        if tensor.dtype() != kind || tensor.shape() != shape {
            let (kind, found) = (tensor.dtype(), tensor.shape());
            return Err(refuse(format!("tensor `{name}` is {kind:?} {found:?}; expected {shape:?}")));
        }
        let data = tensor.data();
        Ok(match file {
            Bytes::Embedded(all) => {
                let first = data.as_ptr().addr() - all.as_ptr().addr();
                Bytes::Embedded(&all[first..first + data.len()])
            }
            _ => Bytes::Owned(data.to_vec()),
        })
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let bytes = self.bytes(name, Dtype::F32, shape)?;
        let (four, _) = bytes.slice().as_chunks::<4>();
        let values: Vec<f32> = four.iter().map(|four| f32::from_le_bytes(*four)).collect();
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(Error::malformed(
                Path::new(LAYERS),
                format!("tensor `{name}` holds numbers that are not finite"),
            )),
        }
    }
}

impl Source for Packed<'_> {
    type Matrix = Matrix;
    type Table = Table;
    type Vector = Vec<f32>;

    fn matrix(&mut self, place: &Place) -> Result<Matrix, Error> {
        let (name, rows, columns) = (place.name(), place.rows(), place.columns);
        let (scales, quants) = Matrix::sizes_q8(rows, columns);
        let scales = self.bytes(&format!("{name}.scales"), Dtype::U8, &[scales])?;
        let quants = self.bytes(&format!("{name}.bytes"), Dtype::U8, &[quants])?;
        let fits = || Error::malformed(Path::new(LAYERS), format!("`{name}` has not the bytes it needs"));
        Matrix::from_parts_q8(rows, columns, scales, quants).ok_or_else(fits)
    }

    fn table(&mut self, place: &Place) -> Result<Table, Error> {
        let shape = [place.rows(), Table::row_bytes(place.columns)];
        Ok(Table::Q8(self.bytes(&place.name(), Dtype::U8, &shape)?))
    }

    fn vector(&mut self, place: &Place) -> Result<Vec<f32>, Error> {
        self.floats(&place.name(), &[place.rows() * place.columns])
    }
}
