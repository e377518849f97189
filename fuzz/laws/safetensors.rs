//! Laws of safetensors files: any bytes are a table of tensors, or an error that names the file; and nothing
//! in them makes reading ask for much more memory than the file has bytes.

use waltz_model::{Error, TensorFile};

use super::memory::most_held;

/// Bytes held for each byte of a file: a number of a shape has two, and eight as a number, several times over
/// while the table is read.
const EACH: usize = 128;
/// What is held whatever the file.
const SMALL: usize = 64 << 10;

/// Reads the bytes as a file of tensors.
pub fn law(data: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("some.safetensors");
    assert!(std::fs::write(&path, data).is_ok());
    let Some(file) = sound(TensorFile::open(&path)) else { return };
    let (tensors, held) = most_held(|| sound(file.tensors()));
    assert!(held <= SMALL + EACH * data.len(), "{held} bytes for a table in {}", data.len());
    let Some(tensors) = tensors else { return };
    let mut read = 0;
    for (name, shape) in tensors.list() {
        let elements: usize = shape.iter().product();
        if let Some(numbers) = sound(tensors.floats(&name, &shape)) {
            assert_eq!(numbers.len(), elements, "{name} {shape:?}");
            assert!(numbers.iter().all(|number| number.is_finite()), "{name}");
            read += numbers.len() * 4;
        }
        let another = [&shape[..], &[2]].concat();
        assert!(tensors.floats(&name, &another).is_err(), "a shape that is not the tensor's");
    }
    assert!(read < data.len(), "tensors share bytes or are beyond the file");
    assert!(sound(tensors.floats("no such tensor \u{1}", &[])).is_none());
}

/// What was read; an error must name the file.
fn sound<T>(read: Result<T, Error>) -> Option<T> {
    if let Err(error) = &read {
        assert!(error.to_string().contains("some.safetensors"), "{error}");
    }
    read.ok()
}
