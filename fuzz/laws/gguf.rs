//! Laws of GGUF files: any bytes are a model, or an error that names the file; and nothing in them makes
//! reading ask for much more memory than the file has bytes.

use waltz_model::{Error, Gguf, MatrixKind, Model, Template, TensorInfo, Tokenizer};

use super::memory::most_held;

/// Bytes held for each byte of a file while its header is read, and while it becomes a model.
const HEADER: usize = 32;
const MODEL: usize = 64;
/// What is held whatever the file: names, and the tokenizer's patterns.
const SMALL: usize = 64 << 10;
const PATTERNS: usize = 64 << 20;

/// Reads the bytes as a model file.
pub fn law(data: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("some.gguf");
    assert!(std::fs::write(&path, data).is_ok());
    let (opened, held) = most_held(|| Gguf::open(&path));
    assert!(held <= SMALL + HEADER * data.len(), "{held} bytes for a header in {}", data.len());
    let Some(gguf) = sound(opened) else { return };
    let mut ranges: Vec<_> = gguf.tensors().iter().map(|tensor| bytes_of(&gguf, tensor)).collect();
    ranges.sort_by_key(|bytes| bytes.as_ptr());
    assert!(ranges.windows(2).all(|pair| pair[0].as_ptr_range().end <= pair[1].as_ptr()), "tensors overlap");
    assert!(ranges.iter().map(|bytes| bytes.len()).sum::<usize>() < data.len(), "tensors beyond the file");
    let (read, held) = most_held(|| {
        let tokenizer = sound(Tokenizer::from_gguf(&gguf));
        let template = tokenizer.as_ref().and_then(|found| sound(Template::from_gguf(&gguf, found)));
        (tokenizer, template, sound(Model::from_gguf(&gguf, MatrixKind::Q8)))
    });
    assert!(held <= PATTERNS + MODEL * data.len(), "{held} bytes for a model of {}", data.len());
    if let (Some(tokenizer), ..) = &read {
        let text = "hello <|im_end|> \u{e9}\0";
        let tokens = tokenizer.encode(text);
        assert!(tokens.iter().all(|token| !tokenizer.token_bytes(*token).is_empty()), "control from content");
        assert!(tokenizer.decode(&tokens).len() <= text.len() * 3);
    }
    if let (.., Some(model)) = &read {
        let tensors: usize = gguf.tensors().iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        assert!(model.shape().vocabulary * model.shape().width <= tensors);
    }
}

/// What was read; an error must name the file.
fn sound<T>(read: Result<T, Error>) -> Option<T> {
    if let Err(error) = &read {
        assert!(error.to_string().contains("some.gguf"), "{error}");
    }
    read.ok()
}

/// The bytes of a tensor that the table lists: as many as its shape and type need.
fn bytes_of<'a>(gguf: &'a Gguf, tensor: &TensorInfo) -> &'a [u8] {
    let Some((found, bytes)) = sound(gguf.tensor(&tensor.name)) else {
        unreachable!("a listed tensor cannot be read: {tensor:?}")
    };
    assert_eq!(found.shape, tensor.shape, "another tensor of the same name");
    let blocks = tensor.shape.iter().product::<usize>() / tensor.kind.block_elements();
    assert_eq!(bytes.len(), blocks * tensor.kind.block_bytes(), "{tensor:?}");
    bytes
}
