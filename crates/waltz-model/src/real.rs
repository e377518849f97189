//! Finds the real models for tests.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::PinnedFile;
use crate::models::hex;

/// A file of a model that was pulled, or a hint where it is missing. In CI it must be there: a test that only
/// skips proves nothing.
pub(crate) fn file(model: &str, name: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let data = || {
        let shared = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
        shared.map(|shared| shared.join("waltz/models"))
    };
    let folder = variable("WALTZ_MODELS").or_else(data);
    let path = folder.map(|folder| folder.join(model).join(name)).filter(|path| path.exists());
    if path.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull {model}`");
        println!("skipped: `waltz model pull {model}`, or set WALTZ_MODELS, to run this test");
    }
    path
}

/// The language model's GGUF file.
pub(crate) fn smollm2() -> Option<crate::Gguf> {
    Some(crate::Gguf::open(&file("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")?).unwrap())
}

/// A file with the hash of what is in it now.
pub(crate) fn pinned(path: PathBuf) -> PinnedFile {
    let sha256 = hex(Sha256::new_with_prefix(std::fs::read(&path).unwrap()));
    PinnedFile { path, sha256 }
}
