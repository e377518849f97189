use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::Threads;
use crate::cache::Cache;
use crate::llama::Turn;
use crate::tiny::{self, Tiny};

fn output(model: &Model) -> Vec<f32> {
    let mut cache = Cache::new(model.cache_shape());
    model.step(&Threads::new(1), &mut [Turn { tokens: &[1, 2, 3], cache: &mut cache, adapter: None }])
}

/// The one packed file of a folder.
fn packed_in(folder: &Path) -> std::path::PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "nothing but the packed file is left: {files:?}");
    files[0].clone()
}

#[test]
fn the_packed_model_computes_what_the_original_does() {
    let tiny = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let expected = output(&tiny.model(MatrixKind::Q8));
    assert_eq!(output(&Model::open(&tiny.pinned(), folder.path()).unwrap()), expected);
    let path = packed_in(folder.path());
    let made = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(output(&Model::open(&tiny.pinned(), folder.path()).unwrap()), expected);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), made, "it is made once");
}

#[test]
fn a_damaged_file_is_made_anew() {
    let tiny = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let expected = output(&Model::open(&tiny.pinned(), folder.path()).unwrap());
    let path = packed_in(folder.path());
    let sound = fs::read(&path).unwrap();
    let hash = Sha256::digest(fs::read(tiny.path()).unwrap()).into();
    let mut damaged = vec![Vec::new(), sound[..100].to_vec(), sound[..sound.len() - 64].to_vec()];
    for at in [0, 8, 12, 20, 48, 113, 5_000, sound.len() - 1] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        damaged.push(bytes);
    }
    damaged.push([&sound[..], &[0; 64]].concat());
    for bytes in damaged {
        // A new file, as when a rename replaces it: the old one may still be mapped.
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        let error = read(&path, &hash).unwrap_err().to_string();
        assert!(error.contains(".q8"), "{error} names the file");
        assert_eq!(output(&Model::open(&tiny.pinned(), folder.path()).unwrap()), expected);
        assert_eq!(fs::read(packed_in(folder.path())).unwrap(), sound);
    }
}

#[test]
fn many_may_make_it_at_once() {
    let tiny = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Model::open(&tiny.pinned(), folder.path()).unwrap());
        }
    });
    let mode = fs::metadata(packed_in(folder.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "processes of other users may share it");
}

#[test]
fn another_model_under_the_same_name_gets_its_own_file() {
    let first = Tiny::new();
    let mut file = tiny::file();
    file.tensors[0].3[4..8].copy_from_slice(&0.25_f32.to_le_bytes());
    let second = Tiny::with(&file);
    let folder = tempfile::tempdir().unwrap();
    Model::open(&first.pinned(), folder.path()).unwrap();
    let of_first = packed_in(folder.path());
    Model::open(&second.pinned(), folder.path()).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let hash = Sha256::digest(fs::read(second.path()).unwrap()).into();
    assert!(read(&of_first, &hash).unwrap_err().to_string().contains("another model file"));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let tiny = Tiny::new();
    let error = Model::open(&tiny.pinned(), &tiny.path()).unwrap_err().to_string();
    assert!(error.contains("tiny.gguf"), "{error}");
}

#[test]
fn other_bytes_than_were_pulled_are_refused() {
    let tiny = Tiny::new();
    let folder = tempfile::tempdir().unwrap();
    let pinned = tiny.pinned();
    Model::open(&pinned, folder.path()).unwrap();
    let mut bytes = fs::read(tiny.path()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    // A new file, as when a rename replaces it.
    fs::remove_file(tiny.path()).unwrap();
    fs::write(tiny.path(), bytes).unwrap();
    let error = Model::open(&pinned, folder.path()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    packed_in(folder.path());
}
