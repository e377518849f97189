//! `scripts/gpu.sh` with `cp` and `bash` as the way to a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own, with an empty one in it that plays the far machine.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("waltz-carry-{name}-{}", std::process::id()));
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Carries `weights` and runs a command that proves that they arrived. Every copy is noted in `copies`.
fn carry(folder: &Path, copy: &str, command: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu.sh");
    Command::new("bash")
        .arg(script)
        .args([folder.join("far"), folder.join("back")])
        .arg(command)
        .arg(folder.join("weights"))
        .env("COPY", copy)
        .env("RUN", r#"bash -c "$1""#)
        .env("WALTZ_PIECE", "1000")
        .env("COPIES", folder.join("copies"))
        .output()
        .unwrap()
}

const COPY: &str = r#"echo "$2" >> "$COPIES"; cp "$1" "$2""#;

fn weights(folder: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..4500_u32).map(|number| (number * number / 7) as u8).collect();
    fs::write(folder.join("weights"), &bytes).unwrap();
    bytes
}

fn copies(folder: &Path) -> usize {
    fs::read_to_string(folder.join("copies")).unwrap_or_default().lines().count()
}

#[test]
fn files_arrive_in_pieces_and_results_come_back() {
    let folder = folder("whole");
    let bytes = weights(&folder);
    let ran = carry(&folder, COPY, "cp weights results/copy; echo said");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(copies(&folder), 5, "4500 bytes are five pieces of at most 1000");
    assert_eq!(fs::read(folder.join("back/copy")).unwrap(), bytes);
    assert_eq!(fs::read_to_string(folder.join("back/log")).unwrap(), "said\n");
    // Everything is there already, and what the first command left is not taken for the second's.
    fs::remove_dir_all(folder.join("back")).unwrap();
    assert!(carry(&folder, COPY, "true").status.success());
    assert_eq!(copies(&folder), 5);
    assert!(!folder.join("back/copy").exists() && folder.join("back/log").exists());
    // Pieces of other weights take the place of those that nobody sends any more.
    let pieces = || fs::read_dir(folder.join("far/pieces")).unwrap().count();
    assert_eq!(pieces(), 5);
    fs::write(folder.join("weights"), b"others").unwrap();
    assert!(carry(&folder, COPY, "cp weights results/copy").status.success());
    assert_eq!((pieces(), fs::read(folder.join("back/copy")).unwrap()), (1, b"others".to_vec()));
    fs::remove_dir_all(folder).ok();
}

#[test]
fn a_transfer_that_broke_off_goes_on_and_a_damaged_piece_is_sent_again() {
    let folder = folder("broken");
    let bytes = weights(&folder);
    // The line breaks with the fourth piece, which leaves half of it behind.
    let breaks = r#"echo "$2" >> "$COPIES"; [ $(wc -l < "$COPIES") != 4 ] || { head -c 300 "$1" > "$2"; exit 1; }; cp "$1" "$2""#;
    let broken = carry(&folder, breaks, "true");
    assert!(!broken.status.success());
    assert!(!folder.join("far/weights").exists(), "nothing is put together before all pieces are there");
    assert_eq!(copies(&folder), 4);
    let ran = carry(&folder, COPY, "cp weights results/copy");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(copies(&folder), 6, "three pieces were whole");
    assert_eq!(fs::read(folder.join("back/copy")).unwrap(), bytes);

    let piece = fs::read_dir(folder.join("far/pieces")).unwrap().next().unwrap().unwrap().path();
    fs::write(piece, b"damaged").unwrap();
    assert!(carry(&folder, COPY, "true").status.success());
    assert_eq!(copies(&folder), 7);
    assert_eq!(fs::read(folder.join("far/weights")).unwrap(), bytes);
    fs::remove_dir_all(folder).ok();
}

#[test]
fn a_piece_that_changes_on_its_way_is_noticed() {
    let folder = folder("changed");
    weights(&folder);
    let ran = carry(&folder, r#"{ head -c 999 "$1"; printf x; } > "$2""#, "true");
    assert!(!ran.status.success());
    assert!(!folder.join("far/weights").exists());
    fs::remove_dir_all(folder).ok();
}

#[test]
fn a_command_that_fails_still_brings_its_log_back() {
    let folder = folder("failed");
    weights(&folder);
    let ran = carry(&folder, COPY, "echo trouble >&2; exit 7");
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!(fs::read_to_string(folder.join("back/log")).unwrap(), "trouble\n");
    fs::remove_dir_all(folder).ok();
}
