//! A very small random model for tests: the architecture of the real one without the download.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::gguf::synthetic::{Sizes, Synthetic};
use crate::{Gguf, MatrixKind, Model, PinnedFile, Tokenizer, real};

/// Tokens of the tiny vocabulary: 256 bytes, an end token, and some longer ones.
pub(crate) const VOCABULARY: usize = 263;
/// The tiny model's end token.
pub(crate) const END: u32 = 256;

/// A model file in a folder that goes away with it.
pub(crate) struct Tiny {
    folder: TempDir,
}

impl Tiny {
    /// Writes the file of a sound model.
    pub(crate) fn new() -> Self {
        Self::with(&file())
    }

    /// Writes any file.
    pub(crate) fn with(file: &Synthetic) -> Self {
        let tiny = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(tiny.path(), file.bytes()).unwrap();
        tiny
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    /// The file and its hash.
    pub(crate) fn pinned(&self) -> PinnedFile {
        real::pinned(self.path())
    }

    pub(crate) fn gguf(&self) -> Gguf {
        Gguf::open(&self.path()).unwrap()
    }

    pub(crate) fn model(&self, kind: MatrixKind) -> Model {
        Model::from_gguf(&self.gguf(), kind).unwrap()
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_gguf(&self.gguf()).unwrap()
    }
}

/// The content of a sound model file: 2 layers, 4 heads of 16, 2 of them with keys and values.
pub(crate) fn file() -> Synthetic {
    let mut file = Synthetic::new();
    file.fields = crate::tokenizer::tests::synthetic(|_, _, _| ()).fields;
    file.language_model(Sizes {
        layers: 2,
        width: 64,
        hidden: 96,
        vocabulary: VOCABULARY as u32,
        context: 512,
    })
}
