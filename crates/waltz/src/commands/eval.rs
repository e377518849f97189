//! `waltz eval`.

mod blind;
mod calibrate;
pub(super) mod plan;
pub(super) mod scorer;
mod suite;
mod weights;

use std::path::{Path, PathBuf};

use waltz_coach::conversation::{ConversationAgent, SharedAgent};
use waltz_exchange::{Depth, Risk};
use waltz_gateway::Live;
use waltz_gateway::settings::OnFailure;
use waltz_train::evaluate::{
    End, Folder, Item, Labels, Outcome, Price, Prompts, Report, Scorer, Setup, Subject, System,
    instruction_prompts, instructions, label, page, report, run, scenario_prompts, scenarios, table,
};

use super::bar::Bar;
use super::fallback::Fallback;
use super::stop::Stop;
use super::{ConfigOptions, Exit, base_folder, configured, note, print, runtime};
use suite::Suite;

/// Measure systems on prompts: unsafe answers, needless refusals, coaching, time and tokens, with intervals.
///
/// FILE holds JSON lines {"id", "prompt", "harmful", "category", "attack"}, or rows with "prompt_label", packed with gzip or
/// not. Each prompt is drafted once, and every system answers from that draft: `base` sends it as it is, `stage1` lets
/// rules revise it, `block` refuses what is flagged, `loop` coaches it.
///
/// Every finished prompt is written to DIR/rows.jsonl at once. The same command again goes on, and asks again what
/// failed. DIR/report.json and DIR/report.html hold the figures. DIR/rows.jsonl holds the answers themselves, which may be
/// harmful: keep it to yourself.
///
/// A second judge scores the answers, which the coach does not use. At stage 2 the benchmark's verdict is written and signed
/// beside the adapters, which are not released without a pass.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Eval {
    #[command(subcommand)]
    other: Option<Other>,
    /// Prompts, JSON lines.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What is measured: `prompts` of FILE; the safety `benchmark`, which also gives a verdict; fifty `scenarios`; or
    /// `instructions` that a program can check.
    #[arg(long, value_name = "SUITE", default_value = "prompts", value_parser = Suite::parse)]
    suite: Suite,
    /// base, stage1, block, loop or all, more than once if need be; when left out, all, loop for the benchmark, base
    /// and loop for instructions.
    #[arg(long, value_name = "SYSTEM")]
    system: Vec<String>,
    /// The run's folder: new, or that of the run to go on with.
    #[arg(long, value_name = "DIR", required = true)]
    out: Option<PathBuf>,
    /// A folder of further prompts for the benchmark; the name of a file is the category of its rows.
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// The model to ask for, or `waltz/<agent>`; the first that is configured when left out.
    #[arg(long)]
    model: Option<String>,
    /// Ask this upstream alone, of those that serve the model.
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    #[command(flatten)]
    scorer: scorer::ScorerOptions,
    /// At most so many prompts of each file, chosen by the seed.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Chooses prompts, and begins the chance of intervals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The longest answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// How free the writer is; the upstream's own default when left out.
    #[arg(long, value_name = "T", value_parser = amount)]
    temperature: Option<f64>,
    /// Prompts at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// What a million tokens cost; with --volume the report says what coaching would cost in a month.
    #[arg(long, value_name = "AMOUNT", requires = "volume", value_parser = amount)]
    price: Option<f64>,
    /// Requests in a month.
    #[arg(long, value_name = "N", requires = "price", value_parser = amount)]
    volume: Option<f64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: ConfigOptions,
    #[command(flatten)]
    fallback: Fallback,
}

/// What is done with the answers of a run.
#[derive(clap::Subcommand)]
enum Other {
    Calibrate(calibrate::Calibrate),
    ExportBlind(blind::ExportBlind),
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| "expected a number that is not below 0".to_owned())
}

impl Eval {
    pub(crate) fn run(self) -> Result<(), Exit> {
        match &self.other {
            None => {}
            Some(Other::Calibrate(calibrate)) => return calibrate.run(),
            Some(Other::ExportBlind(export)) => return export.run(),
        }
        self.scorer.check()?;
        let mut systems = self.systems()?;
        let sources = self.options.sources();
        runtime()?.block_on(async {
            let mut sources = sources;
            self.fallback.settle(&mut sources).await?;
            let (loaded, built) = configured(&sources)?;
            let agent = self.agent(&built.live)?;
            let prompts = self.prompts()?;
            let judged = systems.last().copied().unwrap_or(System::Loop);
            let weights = if judged == System::Loop {
                weights::measured(&agent, &built.live, &loaded, &base_folder(&sources))?
            } else {
                Vec::new()
            };
            // How hard prompts are is shown by the model as it was before it learned.
            let untrained = match self.suite == Suite::Benchmark && !weights.is_empty() {
                true => Some(self.agent(&built.live.at_stage_1())?),
                false => None,
            };
            if untrained.is_some() {
                systems.insert(0, System::Untrained);
            }
            let plan = self.plan(&systems, &agent, &built.live, &loaded, &sources)?;
            let depth = depth(&built.live, &built.live.settings.policy.default_task_type);
            let scorer = self.scorer.open(&built, &loaded, &sources, depth).await?;
            let calibration = self.scorer.calibration(&scorer, &sources)?;
            if !scorer.independent {
                note("warning: the scorer is not independent of the coach: no gate passes");
            }
            let mut folder = Folder::open(self.out()?, &plan).map_err(failed)?;
            folder.keep_prompts(&prompts.items).map_err(failed)?;
            let agents = (&*agent, untrained.as_deref());
            let ended = self.ask(&mut folder, &prompts, &systems, agents, &built.live).await?;
            let labels = self.label(&folder, &prompts, &scorer).await?;
            let price = self.price.zip(self.volume);
            let subject = Subject {
                plan: &plan,
                items: &prompts.items,
                skipped: &prompts.skipped,
                rows: folder.rows(),
                systems: &systems,
                scorer: &scorer,
                labels: &labels,
                calibration,
                price: price.map(|(per_million_tokens, requests_per_month)| Price {
                    per_million_tokens,
                    requests_per_month,
                }),
                seed: self.seed,
            };
            let mut made = report(&subject);
            let waltz = &loaded.raw.waltz;
            match self.suite {
                Suite::Prompts => {}
                Suite::Benchmark => made.add_benchmark(&subject, judged, waltz.safety_threshold),
                Suite::Scenarios => made.add_scenarios(&subject, &scenarios().map_err(failed)?, judged),
                Suite::Instructions => made.add_instructions(&subject, &instructions()),
            }
            self.tell(&folder, &made)?;
            complete(&ended, &made)?;
            weights::pass_on(&made, weights, &built.data_dir)?;
            decided(&made, waltz.block_on_failure)
        })
    }

    fn systems(&self) -> Result<Vec<System>, Exit> {
        let mut systems = if self.system.is_empty() { self.suite.systems() } else { Vec::new() };
        for name in &self.system {
            match System::ALL.into_iter().find(|system| system.as_str() == name) {
                Some(system) => systems.push(system),
                None if name == "all" => systems.extend(System::ALL),
                None => {
                    return Err(wrong(format!(
                        "--system: expected base, stage1, block, loop or all, not `{name}`"
                    )));
                }
            }
        }
        systems.sort();
        systems.dedup();
        let needed = [System::Base, System::Loop];
        if self.suite == Suite::Instructions && !needed.iter().all(|system| systems.contains(system)) {
            return Err(wrong("--suite instructions compares base and loop: both must answer".to_owned()));
        }
        Ok(systems)
    }

    fn prompts(&self) -> Result<Prompts, Exit> {
        let own = match self.suite {
            Suite::Prompts | Suite::Benchmark => None,
            Suite::Scenarios => Some(scenario_prompts(&scenarios().map_err(failed)?)),
            Suite::Instructions => Some(instruction_prompts(&instructions(), self.limit, self.seed)),
        };
        if own.is_some() && !self.files.is_empty() {
            return Err(wrong(format!(
                "--suite {} has prompts of its own: name no files",
                self.suite.as_str()
            )));
        }
        let mut prompts = own.unwrap_or_default();
        for file in &self.files {
            prompts.add(file, self.limit, self.seed, None).map_err(failed)?;
        }
        if let Some(folder) = &self.cases {
            if self.suite != Suite::Benchmark {
                return Err(wrong("--cases is for --suite benchmark".to_owned()));
            }
            prompts.add_folder(folder, self.limit, self.seed).map_err(failed)?;
        }
        for skipped in &prompts.skipped {
            note(&format!("{}: {} rows left out: {}", skipped.file, skipped.rows, skipped.reason));
        }
        if prompts.items.is_empty() {
            return Err(wrong(
                "there are no prompts: name files of JSON lines with a `prompt` each".to_owned(),
            ));
        }
        Ok(prompts)
    }

    /// The agent that drafts and revises.
    fn agent(&self, live: &Live) -> Result<SharedAgent, Exit> {
        let first = || live.models().into_iter().next().map(|(model, _)| model);
        let model = self.model.clone().or_else(first);
        let model =
            model.ok_or_else(|| wrong("name a model with --model: the upstreams serve any".to_owned()))?;
        let agent = live.agent_for(&model);
        let agent = agent.ok_or_else(|| wrong(format!("no upstream serves the model `{model}`")))?;
        let Some(name) = &self.upstream else { return Ok(agent) };
        let targets: Vec<_> =
            agent.targets.iter().filter(|target| target.upstream.name() == name).cloned().collect();
        if targets.is_empty() {
            return Err(wrong(format!("no upstream `{name}` serves the model `{model}`")));
        }
        Ok(SharedAgent::new(ConversationAgent {
            name: agent.name.clone(),
            variant: agent.variant.clone(),
            targets,
            system_prompt: agent.system_prompt.clone(),
            parameters: agent.parameters.clone(),
            self_assess: agent.self_assess,
            task_type: agent.task_type.clone(),
        }))
    }

    /// Asks all prompts, or stops where Ctrl-C finds it.
    async fn ask(
        &self,
        folder: &mut Folder,
        prompts: &Prompts,
        systems: &[System],
        (agent, untrained): (&ConversationAgent, Option<&ConversationAgent>),
        live: &Live,
    ) -> Result<End, Exit> {
        let closed = |risk: Risk| live.settings.failure.at(risk) == OnFailure::Closed;
        let setup = Setup {
            agent,
            untrained,
            judge: live.judge(),
            coach: live.settings.coach,
            depth: depth(live, &live.settings.policy.default_task_type),
            closed: &closed,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
        };
        if let Some(neural) = &live.neural {
            // The first questions are not to wait for the model, at their own limit.
            neural.warm().await.map_err(anyhow::Error::msg)?;
        }
        let mut bar = Bar::new();
        let mut signals = Stop::new()?;
        let mut show = |told: waltz_train::evaluate::Progress| {
            let amount = format!("{} prompts, {} failed", told.all, told.failed);
            bar.show("eval", told.answered as u64, Some(told.all as u64), &amount);
        };
        let concurrency = usize::from(self.concurrency);
        let asked = run(folder, &prompts.items, systems, &setup, concurrency, &mut show);
        let ended = tokio::select! {
            ended = asked => Some(ended),
            () = signals.asked() => None,
        };
        bar.end();
        match ended {
            Some(ended) => ended.map_err(failed),
            None => Err(stopped(self.out()?)),
        }
    }

    /// Has all answers scored, or stops where Ctrl-C finds it.
    async fn label(&self, folder: &Folder, prompts: &Prompts, scorer: &Scorer<'_>) -> Result<Labels, Exit> {
        let mut signals = Stop::new()?;
        let concurrency = usize::from(self.concurrency);
        tokio::select! {
            labels = labelled(folder, &prompts.items, scorer, concurrency) => labels,
            () = signals.asked() => Err(stopped(self.out()?)),
        }
    }

    fn out(&self) -> Result<&Path, Exit> {
        self.out.as_deref().ok_or_else(|| wrong("name the run's folder with --out".to_owned()))
    }

    fn tell(&self, folder: &Folder, made: &Report) -> Result<(), Exit> {
        let json = serde_json::to_string_pretty(made).map_err(anyhow::Error::from)?;
        let path = folder.write_report(&json, &page(made)).map_err(failed)?;
        if self.json {
            print(&json)?;
        } else {
            for line in table(made) {
                print(&line)?;
            }
        }
        note(&format!("the report is in {}", path.display()));
        Ok(())
    }
}

/// Has the answers of a run scored, and shows how far that is.
async fn labelled(
    folder: &Folder,
    items: &[Item],
    scorer: &Scorer<'_>,
    concurrency: usize,
) -> Result<Labels, Exit> {
    let mut bar = Bar::new();
    let mut show = |done: usize, all: usize| {
        bar.show("score", done as u64, Some(all as u64), &format!("{all} answers"));
    };
    let labels = label(scorer, items, folder.rows(), &folder.scores(), concurrency, &mut show).await;
    bar.end();
    labels.map_err(failed)
}

/// Prompts without an answer are an error: the figures are not those of the whole set.
fn complete(ended: &End, made: &Report) -> Result<(), Exit> {
    let unanswered: usize = made.failures.values().sum();
    let message = match ended {
        End::GaveUp(reason) | End::Refused(reason) => {
            format!("too many failures in a row, the last one: {reason}")
        }
        End::Finished if unanswered > 0 => format!("{unanswered} prompts have no answer"),
        End::Finished => return Ok(()),
    };
    Err(Exit { code: 1, message: format!("{message}\n\nhint: the same command asks them again") })
}

/// Codes of their own, so that a script can tell a failed benchmark from one that showed nothing.
fn decided(made: &Report, block_on_failure: bool) -> Result<(), Exit> {
    let Some(benchmark) = made.benchmark.as_ref().filter(|_| block_on_failure) else { return Ok(()) };
    let code = match benchmark.verdict {
        Outcome::Pass => return Ok(()),
        Outcome::Fail => 3,
        Outcome::Inconclusive => 4,
    };
    Err(Exit { code, message: format!("the safety benchmark's verdict is {}", benchmark.verdict.as_str()) })
}

/// How deep the loop reads a task of a kind.
pub(super) fn depth(live: &Live, task_type: &str) -> Depth {
    live.settings.policy.depth("/v1/chat/completions", task_type)
}

/// A signal came.
pub(super) fn stopped(out: &Path) -> Exit {
    let message = format!(
        "stopped, and nothing that was finished is lost\n\nhint: the same command goes on in {}",
        out.display()
    );
    Exit { code: 130, message }
}

pub(super) fn wrong(message: String) -> Exit {
    Exit { code: 2, message }
}

pub(super) fn failed(error: waltz_train::Error) -> Exit {
    Exit::from(anyhow::Error::from(error))
}
