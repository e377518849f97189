//! `cargo xtask cuda`: the programs for GPUs, built on a machine that needs neither a GPU nor CUDA.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{apt, cargo_command, found, root, run};

/// NVIDIA's compiler and what it needs, from the Python package index. What CUDA 13.0 compiles runs on its driver
/// and on every later one.
const PACKAGES: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
];

/// The programs: the package of each, what else cargo is told, and where it lies below `target/release`.
const PROGRAMS: [(&str, &[&str], &str); 2] =
    [("waltz-model", &["--example", "gpu"], "examples/gpu"), ("waltz", &[], "waltz")];

/// Builds the programs, compresses them and says how large they are.
pub(crate) fn cuda() -> Result<()> {
    let root = root()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = root.join(target);
    let nvcc = nvcc(&target.join("cuda-13.0"))?;
    if !found("xz") {
        apt(&["install", "-y", "-q", "--no-install-recommends", "xz-utils"])?;
    }
    for (package, more, path) in PROGRAMS {
        let arguments = ["build", "--release", "--locked", "-p", package, "--features", "cuda"];
        run(cargo_command(&root).args(arguments).args(more).env("WALTZ_NVCC", &nvcc))?;
        let program = target.join("release").join(path);
        run(Command::new("xz").args(["--keep", "--force", "-9"]).arg(&program))?;
        for path in [program.clone(), program.with_extension("xz")] {
            eprintln!("{}: {:.1} MB", path.display(), size(&path)? / 1e6);
        }
    }
    Ok(())
}

/// The compiler's path; it is fetched once.
fn nvcc(folder: &Path) -> Result<PathBuf> {
    let nvcc = folder.join("nvidia/cu13/bin/nvcc");
    if !nvcc.exists() {
        let arguments =
            ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target"];
        run(Command::new("python3").args(arguments).arg(folder).args(PACKAGES))?;
    }
    Ok(nvcc)
}

fn size(path: &Path) -> Result<f64> {
    let metadata = path.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(metadata.len() as f64)
}
