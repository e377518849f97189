//! `waltz train sft`: an adapter of a local model, in a process of its own that steps back for others.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use waltz_model::{Agent, Gguf, ModelName};
use waltz_train::leak::Guarded;
use waltz_train::sft::{Effort, End, Folder, Lesson, Plan, Progress, asked, learn};

use crate::commands::bar::Bar;
use crate::commands::stop::Stop;
use crate::commands::{ConfigOptions, Exit, model, note, print, runtime};

/// How far the process steps back for others; 0 would be an equal, 19 is the most.
const NICE: i32 = 10;

/// Teach a local model to answer as examples do: supervised fine-tuning of an adapter, on the CPU.
///
/// The data is JSON lines. Each is a chat that ends with the answer to learn:
///
///   {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
///
/// or a session as `waltz data export coaching` writes it; of those only good answers are learned. Nothing but what
/// the assistant says counts. A row that cannot be learned from ends the run before it begins, with its line.
///
/// The model stays as it is: what is learned is a small file, FOLDER/adapter.safetensors, which the gateway adds to the
/// model at stage 2, step by step, once it has passed `waltz eval --suite benchmark`:
///
///   [waltz]
///   stage = 2
///   [[upstreams]]
///   name = "local"
///   url = "local:smollm2"
///   adapters = { conversation = "FOLDER/adapter.safetensors" }
///
/// Ctrl-C leaves a checkpoint; `waltz train sft --out FOLDER --resume` goes on and ends with the same bytes as a run
/// that was never cut. The process runs at low priority, beside a gateway that serves.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TrainSft {
    /// The rows to learn from, JSON lines.
    #[arg(long, value_name = "FILE", required_unless_present = "resume")]
    data: Option<PathBuf>,
    /// The run's folder: new, or that of the run to go on with.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The model that learns; `waltz model pull` gets it.
    #[arg(long, value_name = "NAME", default_value = "smollm2")]
    base: String,
    /// The agent that learns: `conversation` answers, `feedback` reads drafts.
    #[arg(long, value_name = "AGENT", default_value = "conversation", value_parser = role)]
    role: Agent,
    /// How often all rows are read.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    epochs: u32,
    /// Rows of a step.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    batch: u32,
    /// The highest learning rate; it climbs in the first steps and then comes down.
    #[arg(long, value_name = "RATE", default_value_t = 2e-4, value_parser = rate)]
    rate: f32,
    /// The adapter's rank: a higher one learns more and makes a larger file.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    rank: u32,
    /// Decides the adapter's first numbers and the order of the rows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads that compute; one less than there are cores when left out, and at least one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Steps between two checkpoints.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint_every: u32,
    /// A benchmark that the rows must not hold: a row that is in it, or nearly so, ends the run before it begins.
    #[arg(long, value_name = "FILE")]
    benchmark: Option<PathBuf>,
    /// Go on with the run in FOLDER, as it began.
    #[arg(long, conflicts_with_all = ["data", "base", "role", "epochs", "batch", "rate", "rank", "seed"])]
    resume: bool,
    /// The configuration file that says where models are; `waltz.toml` in this folder is taken if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn role(name: &str) -> Result<Agent, String> {
    match name {
        "conversation" => Ok(Agent::Conversation),
        "feedback" => Ok(Agent::Feedback),
        _ => Err("expected `conversation` or `feedback`".to_owned()),
    }
}

fn rate(text: &str) -> Result<f32, String> {
    let rate = text.parse::<f32>().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "expected a number above 0 and at most 1".to_owned())
}

impl TrainSft {
    pub(crate) fn run(self) -> Result<(), Exit> {
        // Before any thread is started: threads inherit it.
        if let Err(error) = rustix::process::nice(NICE) {
            note(&format!("warning: the priority cannot be lowered: {error}"));
        }
        let failed = |error: waltz_train::Error| Exit::from(anyhow::Error::from(error));
        let resumed = self.resume.then(|| Folder::resume(&self.out)).transpose().map_err(failed)?;
        let plan = match &resumed {
            Some((_, plan)) => plan.clone(),
            None => self.plan()?,
        };
        if let Some(file) = &self.benchmark {
            let asked = asked(&plan.data, plan.agent).map_err(failed)?;
            let rows = asked.iter().map(|(line, text)| (*line, text.as_str()));
            let guarded = Guarded::read(file).map_err(failed)?;
            guarded.check(&format!("`{}`", plan.data.display()), rows).map_err(failed)?;
        }
        let gguf = self.base(&plan.base)?;
        let lesson = Lesson::read(&plan.data, plan.agent, &gguf).map_err(|error| match error {
            rows @ (waltz_train::Error::Rows { .. } | waltz_train::Error::Empty { .. }) => {
                Exit { code: 2, message: rows.to_string() }
            }
            other => failed(other),
        })?;
        let folder = match resumed {
            Some((folder, _)) => folder,
            None => Folder::begin(&self.out).map_err(failed)?,
        };
        note(&format!(
            "{} rows, {} tokens{}; the {} agent of {} learns",
            lesson.rows(),
            lesson.tokens,
            if lesson.left_out > 0 {
                format!(", {} sessions left out", lesson.left_out)
            } else {
                String::new()
            },
            plan.agent,
            plan.base,
        ));
        let effort = Effort { threads: self.threads(), checkpoint_every: self.checkpoint_every };
        let (_runtime, stop) = stop_on_signal()?;
        let mut pace = Pace::new();
        let end = learn(&folder, &plan, &gguf, &lesson, effort, &mut |progress| {
            pace.show(progress);
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        pace.bar.end();
        match end.map_err(failed)? {
            End::Finished(path) => {
                note(&format!("the {} agent's adapter for {} is ready:", plan.agent, plan.base));
                print(&path.display().to_string())
            }
            End::Stopped(step) => Err(Exit { code: 130, message: stopped(step, &folder) }),
        }
    }

    /// What a new run is. The path of the data is kept from the root on, so that the run can go on from anywhere.
    fn plan(&self) -> Result<Plan, Exit> {
        let data = self.data.clone().unwrap_or_default();
        Ok(Plan {
            base: self.base.clone(),
            data: std::path::absolute(&data).with_context(|| format!("cannot find `{}`", data.display()))?,
            agent: self.role,
            epochs: self.epochs,
            batch: self.batch as usize,
            rate: self.rate,
            rank: self.rank as usize,
            seed: self.seed,
        })
    }

    fn base(&self, name: &str) -> Result<Gguf, Exit> {
        let name: ModelName = model::parsed(name)?;
        let options = ConfigOptions { config: self.config.clone(), data: None };
        let models = model::models(&options.sources())?;
        // What is learned on other bytes than those that serve is lost.
        let opened =
            models.file(&name, ".gguf").and_then(|file| file.check().and_then(|()| Gguf::open(&file.path)));
        Ok(opened.map_err(anyhow::Error::from)?)
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(|| cores().saturating_sub(1).max(1), |threads| threads as usize)
    }
}

fn stopped(step: u32, folder: &Folder) -> String {
    let path = folder.path();
    let path = if path == Path::new("") { Path::new(".") } else { path };
    format!(
        "stopped after step {step}, and nothing is lost\n\nhint: waltz train sft --out {} --resume",
        path.display()
    )
}

/// A flag that Ctrl-C, SIGTERM or a closed terminal sets. Whoever asks twice does not wait for the checkpoint.
fn stop_on_signal() -> Result<(tokio::runtime::Runtime, Arc<AtomicBool>), Exit> {
    let runtime = runtime()?;
    let guard = runtime.enter();
    let mut signals = Stop::new()?;
    drop(guard);
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    runtime.spawn(async move {
        loop {
            signals.asked().await;
            if asked.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            note("\nstopping after this step; ask again to stop at once, without a checkpoint");
        }
    });
    Ok((runtime, stop))
}

/// Shows how far a run is, how fast, and how long it will take.
struct Pace {
    bar: Bar,
    began: Instant,
    tokens: usize,
    steps: u32,
}

impl Pace {
    fn new() -> Self {
        Self { bar: Bar::new(), began: Instant::now(), tokens: 0, steps: 0 }
    }

    fn show(&mut self, Progress { report, steps }: Progress) {
        self.tokens += report.tokens;
        self.steps += 1;
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let left = f64::from(steps - report.step) * seconds / f64::from(self.steps);
        let told = format!(
            "{steps} steps: loss {:.4}, {:.0} tokens/s, {} left",
            report.loss,
            self.tokens as f64 / seconds,
            duration(left)
        );
        self.bar.show("learn", u64::from(report.step), Some(u64::from(steps)), &told);
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        long if long >= 5_400.0 => format!("{:.1} h", long / 3_600.0),
        medium if medium >= 90.0 => format!("{:.0} min", medium / 60.0),
        short => format!("{short:.0} s"),
    }
}
