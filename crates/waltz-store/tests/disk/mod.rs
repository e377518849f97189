//! A disk that fails at a chosen call: a small library, preloaded into the program under test. It is built
//! with the compiler that links Rust programs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// No space left on the device.
pub(crate) const ENOSPC: &str = "28";

/// What fails. See `faults.c` for the meaning of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault<'a> {
    /// `open`, `write`, `sync` or `cut`.
    pub(crate) call: &'a str,
    /// A part of the path of the files that are meant.
    pub(crate) path: &'a str,
    /// The number of the error; `0` for a short write.
    pub(crate) error: &'a str,
    /// Which call fails; 0 for every call.
    pub(crate) nth: usize,
    /// Milliseconds that the call takes instead of failing.
    pub(crate) slow: Option<u32>,
    /// Faults happen only while this file exists.
    pub(crate) only_while: Option<&'a Path>,
    /// Created at the first fault.
    pub(crate) hit: Option<&'a Path>,
}

impl Fault<'_> {
    /// The environment that brings the fault about in a program.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAULT_CALL", self.call.to_owned()),
            ("FAULT_PATH", self.path.to_owned()),
            ("FAULT_ERROR", self.error.to_owned()),
            ("FAULT_NTH", self.nth.to_string()),
        ];
        all.extend(self.slow.map(|slow| ("FAULT_SLOW", slow.to_string())));
        all.extend(self.only_while.map(|file| ("FAULT_WHILE", file.display().to_string())));
        all.extend(self.hit.map(|file| ("FAULT_HIT", file.display().to_string())));
        all
    }
}

/// The library, built once for all tests of a program.
fn library() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let work = tempfile::tempdir_in(folder).unwrap();
        let (source, fresh) = (work.path().join("faults.c"), work.path().join("faults.so"));
        std::fs::write(&source, include_str!("faults.c")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&fresh).arg(&source).arg("-ldl");
        assert!(compiler.status().unwrap().success(), "cc cannot build the failing disk");
        // Moved whole into its place: another program of tests may be using the one that is there.
        let library = folder.join("faults.so");
        std::fs::rename(&fresh, &library).unwrap();
        library
    })
}
