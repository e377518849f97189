//! Writes small GGUF files for tests, sound ones and broken ones.

/// A named value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

/// A tensor: name, shape, type number, bytes.
pub(crate) type Tensor = (String, Vec<u64>, u32, Vec<u8>);

/// The content of a file.
#[derive(Clone, Debug)]
pub(crate) struct Synthetic {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) fields: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Synthetic {
    pub(crate) fn new() -> Self {
        Self { version: 3, alignment: 32, fields: Vec::new(), tensors: Vec::new() }
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.fields.push((key.to_owned(), value));
        self
    }

    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], kind: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, bytes));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.fields.len() as u64).to_le_bytes());
        for (key, value) in &self.fields {
            text(&mut out, key);
            write(&mut out, value);
        }
        let mut offset = 0;
        for (name, shape, kind, bytes) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for size in shape {
                out.extend(size.to_le_bytes());
            }
            out.extend(kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + bytes.len()).next_multiple_of(self.alignment);
        }
        for (.., bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(bytes);
        }
        out
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write(out: &mut Vec<u8>, value: &Value) {
    let list = |out: &mut Vec<u8>, kind: u32, length: usize| {
        out.extend(9_u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((length as u64).to_le_bytes());
    };
    match value {
        Value::U32(value) => {
            out.extend(4_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::F32(value) => {
            out.extend(6_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::Bool(value) => {
            out.extend(7_u32.to_le_bytes());
            out.push(u8::from(*value));
        }
        Value::Text(value) => {
            out.extend(8_u32.to_le_bytes());
            text(out, value);
        }
        Value::Texts(values) => {
            list(out, 8, values.len());
            for value in values {
                text(out, value);
            }
        }
        Value::I32s(values) => {
            list(out, 5, values.len());
            for value in values {
                out.extend(value.to_le_bytes());
            }
        }
    }
}
