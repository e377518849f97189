//! With the feature `cuda`: compiles the GPU's kernels by the nvcc that `WALTZ_NVCC` names, as `cargo xtask cuda`
//! does. Without it the crate builds all the same, and opening the GPU says what is missing.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=WALTZ_NVCC");
    println!("cargo::rerun-if-changed=src/train/cuda");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return Ok(());
    }
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("cargo names no OUT_DIR")?;
    let image = folder.join("kernels.fatbin");
    let Some(nvcc) = env::var_os("WALTZ_NVCC") else {
        return fs::write(&image, []).map_err(|error| format!("cannot write the empty image: {error}"));
    };
    // Machine code for Hopper, and PTX that the driver compiles for every other card from Ampere on.
    let status = Command::new(&nvcc)
        .args(["-fatbin", "-O3", "--std=c++17", "-Werror", "all-warnings"])
        .args(["-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_80,code=compute_80"])
        .arg("src/train/cuda/kernels.cu")
        .arg("-o")
        .arg(&image)
        .status()
        .map_err(|error| format!("cannot run {}: {error}", nvcc.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} ended with {status}", nvcc.display())),
    }
}
