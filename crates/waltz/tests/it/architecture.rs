//! The crate map: no edge that the architecture does not allow, no file that grew too long, no name
//! that says nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may use. A crate that is not listed may not exist.
const MAP: [(&str, &[&str]); 11] = [
    ("waltz-exchange", &[]),
    ("waltz-screen", &["waltz-exchange"]),
    ("waltz-model", &["waltz-exchange"]),
    ("waltz-store", &["waltz-exchange"]),
    ("waltz-rollout", &["waltz-exchange"]),
    ("waltz-route", &["waltz-exchange"]),
    ("waltz-coach", &["waltz-exchange", "waltz-screen", "waltz-model", "waltz-route"]),
    (
        "waltz-gateway",
        &["waltz-exchange", "waltz-screen", "waltz-store", "waltz-route", "waltz-rollout", "waltz-coach"],
    ),
    (
        "waltz-train",
        &["waltz-exchange", "waltz-screen", "waltz-model", "waltz-store", "waltz-rollout", "waltz-coach"],
    ),
    (
        "waltz",
        &[
            "waltz-exchange",
            "waltz-screen",
            "waltz-model",
            "waltz-store",
            "waltz-route",
            "waltz-rollout",
            "waltz-coach",
            "waltz-gateway",
            "waltz-train",
        ],
    ),
    ("xtask", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn crates_use_only_what_the_map_allows() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), MAP.len(), "a crate is missing in the map or in the workspace");
    let ours: Vec<&str> = MAP.iter().map(|(name, _)| *name).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let allowed = MAP
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} is not in the map"))
            .1;
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            assert!(!ours.contains(&used) || allowed.contains(&used), "{name} must not use {used}");
        }
        let folder =
            Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().file_name().unwrap();
        assert_eq!(folder.to_str(), Some(name), "a crate's folder bears its name");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_are_short_and_well_named() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    sources(&root().join("xtask"), &mut files);
    sources(&root().join("fuzz"), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_test = file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs");
        let lines = code.lines().count();
        assert!(is_test || lines <= 400, "{} has {lines} lines", file.display());
        let stem = file.file_stem().unwrap().to_str().unwrap();
        for empty in ["utils", "util", "helpers", "common", "misc", "manager", "base", "impl"] {
            assert_ne!(stem, empty, "{}", file.display());
        }
    }
}

#[test]
fn every_dependency_is_used() {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.push(root().join("xtask"));
    for folder in folders {
        let manifest: toml::Table =
            std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let code: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        for section in ["dependencies", "dev-dependencies"] {
            for name in
                manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys)
            {
                assert!(code.contains(&name.replace('-', "_")), "{} does not use {name}", folder.display());
            }
        }
    }
}
