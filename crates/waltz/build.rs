//! Tells the linker where functions go: those that a start and requests use lie together, in the order of `layout.txt`, so that
//! a gateway at rest holds fewer pages of the program and a busy one finds its code close by. `benches/layout/measure.py` writes the
//! list. Names that the program does not have (another compiler, other versions) are passed over.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const LAYOUT: &str = "layout.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LAYOUT}");
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let layout = folder.join(LAYOUT);
    // A comma ends an argument that is handed through to the linker.
    let can_be_named = !layout.to_string_lossy().contains(',');
    if layout.is_file() && can_be_named && is_release() && links_with_lld() {
        for argument in
            [format!("--symbol-ordering-file={}", layout.display()), "--no-warn-symbol-ordering".to_owned()]
        {
            println!("cargo::rustc-link-arg-bin=waltz=-Wl,{argument}");
        }
    }
}

/// Only there the program is one unit, so that names stay the same.
fn is_release() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// Whether the compiler links with the linker that it brings along, as it does by itself: others refuse the argument.
fn links_with_lld() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let chosen = env::var_os("RUSTC_LINKER").is_some()
        || ["linker", "fuse-ld"].iter().any(|word| flags.contains(word));
    let target = variable("TARGET");
    if chosen || target != "x86_64-unknown-linux-gnu" {
        return false;
    }
    let Ok(printed) = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output() else {
        return false;
    };
    let sysroot = String::from_utf8_lossy(&printed.stdout);
    Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("bin/gcc-ld/ld.lld").is_file()
}
