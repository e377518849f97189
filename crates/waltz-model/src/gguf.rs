//! Reads GGUF, the file format of llama.cpp, versions 2 and 3: named values, then a table of tensors, then
//! their data.
//!
//! The file comes from outside, so nothing in it is believed: every count and offset is checked against the
//! file's size before anything is allocated, and every mistake is an error that names the file. Values stay
//! in the map and are decoded when asked for. The format:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod cursor;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::map::MappedFile;
use crate::models::hex;
use cursor::{Cursor, Field, Kind};

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    /// 4-byte floats.
    F32,
    /// 2-byte IEEE floats.
    F16,
    /// 2-byte floats with the exponent range of f32.
    Bf16,
    /// Blocks of 32: f16 scale, f16 minimum, 32 4-bit numbers.
    Q4_1,
    /// Blocks of 32: f16 scale, 32 signed bytes.
    Q8_0,
}

impl TensorType {
    /// Numbers in a block.
    pub fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }
}

/// One entry of the tensor table.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its dimensions, the contiguous one first: a matrix is (columns, rows).
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub kind: TensorType,
    /// Where its bytes are in the file.
    range: Range<usize>,
}

/// A GGUF file, mapped and checked.
#[derive(Debug)]
pub struct Gguf {
    file: MappedFile,
    fields: HashMap<String, Field>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

/// The longest name of a value; the format's own limit.
const MAX_KEY: usize = 65_535;
/// The longest name of a tensor; the format's own limit.
const MAX_TENSOR_NAME: usize = 64;
/// Dimensions of a tensor; the format's own limit.
const MAX_DIMENSIONS: u32 = 4;
/// Bytes of the shortest possible entry of the tensor table.
const MIN_TENSOR_ENTRY: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// Bytes of the shortest possible named value.
const MIN_FIELD_ENTRY: usize = 8 + 1 + 4 + 1;

impl Gguf {
    /// Opens a file and checks all of its header.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = MappedFile::open(path)?;
        let (fields, tensors) = read(&file).map_err(|reason| Error::malformed(path, reason))?;
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), index).is_some() {
                return Err(Error::malformed(path, format!("the tensor `{}` is there twice", tensor.name)));
            }
        }
        Ok(Self { file, fields, tensors, by_name })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The SHA-256 of the whole file: by it an adapter knows its base.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(&*self.file);
        hex(hasher)
    }

    /// Whether a value of this name is there.
    pub fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<&str, Error> {
        let found = self.field(key)?.text(&self.file);
        found.ok_or_else(|| self.wrong(key, "a text"))
    }

    /// A whole number that is not negative.
    pub fn unsigned(&self, key: &str) -> Result<u64, Error> {
        let found = self.field(key)?.integer(&self.file).and_then(|value| u64::try_from(value).ok());
        found.ok_or_else(|| self.wrong(key, "a whole number that is not negative"))
    }

    /// A number with a fraction.
    pub fn float(&self, key: &str) -> Result<f64, Error> {
        let found = self.field(key)?.float(&self.file).filter(|value| value.is_finite());
        found.ok_or_else(|| self.wrong(key, "a finite floating-point number"))
    }

    /// Yes or no.
    pub fn flag(&self, key: &str) -> Result<bool, Error> {
        let found = self.field(key)?.flag(&self.file);
        found.ok_or_else(|| self.wrong(key, "true or false"))
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, Error> {
        let found = self.field(key)?.texts(&self.file);
        found.ok_or_else(|| self.wrong(key, "a list of texts"))
    }

    /// A list of whole numbers.
    pub fn integers(&self, key: &str) -> Result<Vec<i64>, Error> {
        let found = self.field(key)?.integers(&self.file);
        found.ok_or_else(|| self.wrong(key, "a list of whole numbers"))
    }

    /// The tensor table, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor's entry and its bytes: exactly as many as its shape and type need.
    pub fn tensor(&self, name: &str) -> Result<(&TensorInfo, &[u8]), Error> {
        let index = self.by_name.get(name).ok_or_else(|| self.lacks("tensor", name))?;
        let tensor = &self.tensors[*index];
        Ok((tensor, &self.file[tensor.range.clone()]))
    }

    fn field(&self, key: &str) -> Result<&Field, Error> {
        self.fields.get(key).ok_or_else(|| self.lacks("value", key))
    }

    fn lacks(&self, what: &str, name: &str) -> Error {
        Error::malformed(self.path(), format!("it has no {what} `{name}`"))
    }

    fn wrong(&self, key: &str, expected: &str) -> Error {
        Error::malformed(self.path(), format!("its value `{key}` is not {expected}"))
    }
}

type Table = (HashMap<String, Field>, Vec<TensorInfo>);

/// Reads header, values and tensor table, or says what is wrong.
fn read(bytes: &[u8]) -> Result<Table, String> {
    let mut cursor = Cursor::new(bytes);
    if cursor.take(4, "the header")? != b"GGUF" {
        return Err("it does not begin with `GGUF`; expected a GGUF file".to_owned());
    }
    let version = cursor.u32("the version")?;
    if !(2..=3).contains(&version) {
        let order = if version.swap_bytes() <= 3 { " (a big-endian file)" } else { "" };
        return Err(format!("it is GGUF version {version}{order}; expected 2 or 3, little-endian"));
    }
    let tensor_count = cursor.count("tensors", MIN_TENSOR_ENTRY)?;
    let field_count = cursor.count("values", MIN_FIELD_ENTRY)?;
    let mut fields = HashMap::with_capacity(field_count);
    for _ in 0..field_count {
        let key = cursor.text("the name of a value", MAX_KEY)?;
        let field = cursor.field(key)?;
        if fields.insert(key.to_owned(), field).is_some() {
            return Err(format!("the value `{key}` is there twice"));
        }
    }
    let alignment = alignment(&fields, bytes)?;
    let mut tensors = Vec::with_capacity(tensor_count);
    for _ in 0..tensor_count {
        tensors.push(tensor_entry(&mut cursor, alignment)?);
    }
    let start = cursor.position().checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    place(&mut tensors, start, bytes.len())?;
    Ok((fields, tensors))
}

/// Tensors begin at multiples of this.
fn alignment(fields: &HashMap<String, Field>, bytes: &[u8]) -> Result<usize, String> {
    let Some(field) = fields.get("general.alignment") else { return Ok(32) };
    let value = (field.kind() == Kind::U32).then(|| field.integer(bytes)).flatten();
    let found = value.and_then(|value| usize::try_from(value).ok());
    let sound = found.filter(|value| value.is_power_of_two() && (8..=65_536).contains(value));
    sound.ok_or_else(|| {
        "its `general.alignment` is not a power of two from 8 to 65536, stored as u32".to_owned()
    })
}

/// Reads one entry; its range is still relative to the start of the data.
fn tensor_entry(cursor: &mut Cursor<'_>, alignment: usize) -> Result<TensorInfo, String> {
    let name = cursor.text("the name of a tensor", MAX_TENSOR_NAME)?;
    let dimensions = cursor.u32("a tensor's dimensions")?;
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(format!("tensor `{name}` has {dimensions} dimensions; expected 1 to {MAX_DIMENSIONS}"));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let size = cursor.u64("a tensor's shape")?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0);
        shape.push(size.ok_or_else(|| format!("tensor `{name}` has a dimension of impossible size"))?);
    }
    let id = cursor.u32("a tensor's type")?;
    let kind = TensorType::from_id(id).ok_or_else(|| {
        let known = "F32, F16, BF16, Q4_1 and Q8_0";
        format!("tensor `{name}` is of type {}; waltz reads {known}", type_name(id))
    })?;
    let offset = cursor.u64("a tensor's offset")?;
    let offset = usize::try_from(offset).map_err(|_| format!("tensor `{name}` is outside of the file"))?;
    if !offset.is_multiple_of(alignment) {
        return Err(format!("tensor `{name}` begins at {offset}, which is no multiple of {alignment}"));
    }
    if !shape[0].is_multiple_of(kind.block_elements()) {
        let block = kind.block_elements();
        return Err(format!(
            "tensor `{name}` has rows of {} numbers, no multiple of its block of {block}",
            shape[0]
        ));
    }
    let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    let length = elements.and_then(|count| (count / kind.block_elements()).checked_mul(kind.block_bytes()));
    let end = length.and_then(|length| offset.checked_add(length));
    let end = end.ok_or_else(|| format!("tensor `{name}` is larger than any file"))?;
    Ok(TensorInfo { name: name.to_owned(), shape, kind, range: offset..end })
}

/// Moves the ranges to where the data starts, and checks that they lie inside of the file and apart.
fn place(tensors: &mut [TensorInfo], start: usize, length: usize) -> Result<(), String> {
    for tensor in &mut *tensors {
        let moved = start.checked_add(tensor.range.end).filter(|end| *end <= length);
        let end = moved.ok_or_else(|| {
            let missing = start.saturating_add(tensor.range.end).saturating_sub(length);
            format!(
                "tensor `{}` ends {missing} bytes after the end of the file; it is cut short",
                tensor.name
            )
        })?;
        tensor.range = start + tensor.range.start..end;
    }
    let mut ordered: Vec<&TensorInfo> = tensors.iter().collect();
    ordered.sort_by_key(|tensor| tensor.range.start);
    for pair in ordered.windows(2) {
        if pair[0].range.end > pair[1].range.start {
            return Err(format!("tensors `{}` and `{}` overlap", pair[0].name, pair[1].name));
        }
    }
    Ok(())
}

/// What llama.cpp calls a tensor type, for the error that names it.
fn type_name(id: u32) -> String {
    const NAMES: [&str; 31] = [
        "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S",
        "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16",
    ];
    let name = usize::try_from(id).ok().and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("number {id}"), |name| (*name).to_owned())
}

#[cfg(test)]
pub(crate) mod synthetic;

#[cfg(test)]
#[path = "gguf/tests.rs"]
mod tests;
