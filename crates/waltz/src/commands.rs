//! The commands, one file each.

mod bar;
mod chat;
mod config;
mod data;
mod eval;
mod fallback;
mod judge;
mod lines;
mod mock;
mod model;
mod release;
mod route;
mod screen;
mod serve;
mod stop;
mod train;
mod variants;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Parser, Subcommand};
use waltz_coach::local::LocalModel;

use crate::config::{Built, Loaded, Mistake, Sources, build, load};

/// A safety gateway for language models that coaches instead of blocks.
///
/// Point an OpenAI SDK at `waltz serve` and change nothing else: drafts that are unsafe, or that refuse
/// what they should answer, come back revised, and every step is on record.
#[derive(Parser)]
#[command(name = "waltz", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Chat(chat::Chat),
    Mock(mock::Mock),
    Judge(judge::JudgeFile),
    Screen(screen::ScreenFile),
    Eval(Box<eval::Eval>),
    Route(route::RouteFile),
    Variants(variants::Variants),
    Release(release::Releases),
    /// Show or check the configuration.
    #[command(subcommand)]
    Config(config::Config),
    /// Export what was recorded, or count it.
    #[command(subcommand)]
    Data(data::Data),
    /// Get models that run inside of waltz, list them, check them.
    #[command(subcommand)]
    Model(model::Model),
    /// Learn from data.
    #[command(subcommand)]
    Train(train::Train),
}

/// Why the program ends with an error.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        Self { code: 1, message: waltz_store::chain(error.as_ref()) }
    }
}

/// Runs the command that was given.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    match arguments.command {
        Command::Serve(serve) => serve.run(),
        Command::Chat(chat) => chat.run(),
        Command::Mock(mock) => mock.run(),
        Command::Judge(judge) => judge.run(),
        Command::Screen(screen) => screen.run(),
        Command::Eval(eval) => eval.run(),
        Command::Route(route) => route.run(),
        Command::Variants(variants) => variants.run(),
        Command::Release(releases) => releases.run(),
        Command::Config(config) => config.run(),
        Command::Data(data) => data.run(),
        Command::Model(model) => model.run(),
        Command::Train(train) => train.run(),
    }
}

/// Writes an error for people. Nothing can be done where standard error is closed.
pub(crate) fn complain(message: &str) {
    writeln!(std::io::stderr(), "error: {message}").ok();
}

/// Writes a note for people.
pub(crate) fn note(message: &str) {
    writeln!(std::io::stderr(), "{message}").ok();
}

/// Writes a line of data. A reader that went away, as `head` does, ends the program quietly.
pub(crate) fn print(line: &str) -> Result<(), Exit> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| unheard(&error))
}

/// How the program ends where standard output takes nothing more.
pub(crate) fn unheard(error: &std::io::Error) -> Exit {
    let code = if error.kind() == std::io::ErrorKind::BrokenPipe { 0 } else { 1 };
    Exit { code, message: format!("cannot write to standard output: {error}") }
}

/// The options that find and override the configuration.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct ConfigOptions {
    /// The configuration file; `waltz.toml` in this folder is taken if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder of the database and the journal.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

impl ConfigOptions {
    /// Where the configuration comes from.
    pub(crate) fn sources(&self) -> Sources {
        let here = Path::new("waltz.toml");
        let file = self.config.clone().or_else(|| here.exists().then(|| here.to_owned()));
        let mut arguments = Vec::new();
        if let Some(data) = &self.data {
            // Relative to where the command was typed, not to the file.
            let absolute = std::path::absolute(data).unwrap_or_else(|_| data.clone());
            arguments.push(("server.data_dir", toml::Value::String(absolute.display().to_string())));
        }
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        Sources { file, environment, arguments, fallbacks: Vec::new() }
    }
}

/// Reads a configuration and checks only the part that a command needs: the rest may be for another
/// machine, such as keys of upstreams that are not set here.
pub(crate) fn configured_part<T>(
    sources: &Sources,
    part: impl FnOnce(&mut build::Check<'_>, &Loaded) -> Option<T>,
) -> Result<T, Exit> {
    configured_keys(sources, |_| true, part)
}

/// The same where mistakes in keys that are not `needed` do not count. A file that is no TOML always does.
pub(crate) fn configured_keys<T>(
    sources: &Sources,
    needed: impl Fn(&str) -> bool,
    part: impl FnOnce(&mut build::Check<'_>, &Loaded) -> Option<T>,
) -> Result<T, Exit> {
    let mut loaded = load(sources);
    let file = sources.file.as_ref().map(|file| file.display().to_string());
    loaded.mistakes.retain(|mistake| needed(&mistake.key) || Some(&mistake.key) == file.as_ref());
    let base = base_folder(sources);
    let mut check = build::Check::new(&loaded.mistakes, &sources.environment, &base);
    match part(&mut check, &loaded) {
        Some(built) if check.mistakes.is_empty() => Ok(built),
        _ => Err(Exit { code: 2, message: describe(&check.mistakes) }),
    }
}

/// Reads and checks a configuration, or says everything that is wrong with it. Exit code 2.
pub(crate) fn configured(sources: &Sources) -> Result<(Loaded, Built), Exit> {
    checked(sources, build::build)
}

/// The same for whoever serves it: a candidate that it names stands beside what serves.
pub(crate) fn configured_in_steps(sources: &Sources) -> Result<(Loaded, Built), Exit> {
    checked(sources, build::in_steps)
}

type Build = fn(&Loaded, &[(String, String)], &Path, &[Arc<LocalModel>]) -> Result<Built, Vec<Mistake>>;

fn checked(sources: &Sources, build: Build) -> Result<(Loaded, Built), Exit> {
    let loaded = load(sources);
    for warning in &loaded.warnings {
        note(&format!("warning: {warning}"));
    }
    let base = base_folder(sources);
    match build(&loaded, &sources.environment, &base, &[]) {
        Ok(built) => {
            note_stage(&built);
            Ok((loaded, built))
        }
        Err(mistakes) => Err(Exit { code: 2, message: describe(&mistakes) }),
    }
}

/// Says why stage 1 serves where 2 was asked for.
pub(crate) fn note_stage(built: &Built) {
    if let Some(reason) = &built.stage_trouble {
        note(&format!("warning: stage 2 was asked for, and stage 1 serves: {reason}"));
    }
}

/// The folder that relative paths in the file start from.
pub(crate) fn base_folder(sources: &Sources) -> PathBuf {
    let parent =
        sources.file.as_deref().and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// All mistakes, one a line.
pub(crate) fn describe(mistakes: &[Mistake]) -> String {
    let mut text = match mistakes.len() {
        1 => "the configuration has a mistake:".to_owned(),
        count => format!("the configuration has {count} mistakes:"),
    };
    for mistake in mistakes {
        text.push_str(&format!("\n  {}: {}", mistake.key, mistake.message));
    }
    text.push_str("\n\nhint: docs/reference/configuration.md lists every key");
    text
}

/// A runtime for commands that wait.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit { code: 1, message: format!("cannot start the runtime: {error}") })
}
