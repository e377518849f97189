//! `cargo xtask cuda`: the programs for GPUs, built on a machine that needs neither a GPU nor CUDA.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo_command, found, install_packages, pip, root, run, target};

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
    let target = target(&root);
    let nvcc = nvcc(&root, &target)?;
    if !found("xz") {
        install_packages(&["xz-utils"])?;
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

/// The compiler's path; each version is fetched once.
fn nvcc(root: &Path, target: &Path) -> Result<PathBuf> {
    let versions: Vec<&str> = PACKAGES.iter().filter_map(|package| package.split("==").nth(1)).collect();
    let folder = target.join(format!("cuda-{}", versions.join("-")));
    if !folder.exists() {
        // Under another name until all of it is there: a cut installation is not taken for a whole one.
        let partial = target.join("cuda-partial");
        if partial.exists() {
            std::fs::remove_dir_all(&partial)
                .with_context(|| format!("cannot remove `{}`", partial.display()))?;
        }
        let arguments = ["install", "-q", "--disable-pip-version-check", "--no-deps", "--target"];
        run(Command::new(pip(root)?).args(arguments).arg(&partial).args(PACKAGES))?;
        std::fs::rename(&partial, &folder)
            .with_context(|| format!("cannot rename `{}` to `{}`", partial.display(), folder.display()))?;
    }
    Ok(folder.join("nvidia/cu13/bin/nvcc"))
}

fn size(path: &Path) -> Result<f64> {
    let metadata = path.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(metadata.len() as f64)
}
