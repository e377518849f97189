//! Walks the bytes of a GGUF header. Named values are checked once and stay where they are; [`Field`]
//! remembers where, and decodes when asked.

use std::ops::Range;

/// Type of a named value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    U64,
    I64,
    F64,
}

impl Kind {
    const LIST: u32 = 9;

    fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of one value; a text has at least those of its length.
    fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Text | Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// Where a named value is, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Field {
    kind: Kind,
    list: bool,
    range: Range<usize>,
}

impl Field {
    /// Type of the value, or of a list's elements.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn text<'a>(&self, file: &'a [u8]) -> Option<&'a str> {
        if self.list || self.kind != Kind::Text {
            return None;
        }
        std::str::from_utf8(&file[self.range.clone()][8..]).ok()
    }

    pub(super) fn integer(&self, file: &[u8]) -> Option<i128> {
        if self.list { None } else { integer(self.kind, &file[self.range.clone()]) }
    }

    pub(super) fn float(&self, file: &[u8]) -> Option<f64> {
        let bytes = &file[self.range.clone()];
        match (self.list, self.kind) {
            (false, Kind::F32) => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
            (false, Kind::F64) => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    pub(super) fn flag(&self, file: &[u8]) -> Option<bool> {
        match (self.list, self.kind) {
            (false, Kind::Bool) => Some(file[self.range.start] == 1),
            _ => None,
        }
    }

    pub(super) fn texts<'a>(&self, file: &'a [u8]) -> Option<Vec<&'a str>> {
        if !self.list || self.kind != Kind::Text {
            return None;
        }
        let mut cursor = Cursor::new(&file[self.range.clone()]);
        let mut texts = Vec::new();
        while !cursor.rest().is_empty() {
            texts.push(cursor.text("a text", usize::MAX).ok()?);
        }
        Some(texts)
    }

    pub(super) fn integers(&self, file: &[u8]) -> Option<Vec<i64>> {
        if !self.list || self.kind == Kind::Text {
            return None;
        }
        let values = file[self.range.clone()].chunks_exact(self.kind.size());
        values.map(|bytes| i64::try_from(integer(self.kind, bytes)?).ok()).collect()
    }
}

fn integer(kind: Kind, bytes: &[u8]) -> Option<i128> {
    Some(match kind {
        Kind::U8 => i128::from(u8::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I8 => i128::from(i8::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U16 => i128::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I16 => i128::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U32 => i128::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I32 => i128::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U64 => i128::from(u64::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I64 => i128::from(i64::from_le_bytes(bytes.try_into().ok()?)),
        Kind::F32 | Kind::F64 | Kind::Bool | Kind::Text => return None,
    })
}

/// A place in the file, from which the next thing is read.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], String> {
        let taken = self.rest().get(..length).ok_or_else(|| {
            format!("it ends inside of {what}, after {} bytes; it is cut short or damaged", self.bytes.len())
        })?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of things of at least `size` bytes each, which must still fit into the file.
    pub(super) fn count(&mut self, what: &str, size: usize) -> Result<usize, String> {
        let count = self.u64(what)?;
        let room = self.rest().len() / size;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= room)
            .ok_or_else(|| format!("it announces {count} {what}, but has room for at most {room}"))
    }

    pub(super) fn text(&mut self, what: &str, longest: usize) -> Result<&'a str, String> {
        let length = self.count("bytes of text", 1)?;
        if length > longest {
            return Err(format!("{what} is {length} bytes long; at most {longest} are allowed"));
        }
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|_| format!("{what} is not UTF-8"))
    }

    /// Checks the value that comes next and remembers where it is.
    pub(super) fn field(&mut self, key: &str) -> Result<Field, String> {
        let mut id = self.u32("the type of a value")?;
        let list = id == Kind::LIST;
        if list {
            id = self.u32("the type of a list")?;
        }
        let kind = Kind::from_id(id).ok_or_else(|| format!("the value `{key}` has the unknown type {id}"))?;
        let count = if list { self.count("elements of a list", kind.size())? } else { 1 };
        let start = self.at;
        match kind {
            Kind::Text => {
                for _ in 0..count {
                    self.text("a text", usize::MAX)?;
                }
            }
            // The count was checked against the file, so that the product cannot overflow.
            _ => {
                let bytes = self.take(count * kind.size(), "a value")?;
                if kind == Kind::Bool && bytes.iter().any(|byte| *byte > 1) {
                    return Err(format!("the value `{key}` is neither true nor false"));
                }
            }
        }
        Ok(Field { kind, list, range: start..self.at })
    }
}
