//! `waltz variants evolve`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use waltz_coach::conversation::{ConversationAgent, SharedAgent};
use waltz_coach::upstream::Hook;
use waltz_exchange::Risk;
use waltz_exchange::id::sha256_hex;
use waltz_gateway::Live;
use waltz_gateway::settings::OnFailure;
use waltz_train::evaluate::{Plan, Prompts, Setup};
use waltz_train::evolve::{Folder, Opened, Progress, Proposed, Report, Tasks, Terms, evolve};

use super::{Office, Who, refused};

use crate::commands::bar::Bar;
use crate::commands::eval::plan::{answering, marks, targets};
use crate::commands::eval::scorer::ScorerOptions;
use crate::commands::eval::{depth, failed, stopped, wrong};
use crate::commands::stop::Stop;
use crate::commands::{Exit, configured, note, print, runtime};
use crate::config::{Loaded, Sources};

/// The exit code of an open circuit breaker.
const BREAKER: u8 = 5;

/// Make better prompts and parameters for an agent, and propose the best.
///
/// Candidates are made by revision, recombination and refinement of those before them: by rules, or by a model that
/// --writer names. Each does the tasks of FILE through the agent's upstream and the coach:
///
///   {"id": "capital", "prompt": "What is the capital of France?", "checks": [{"contains": "Paris"}, {"most_words": 20}]}
///
/// An answer must hold to all of its checks: expected, contains, lacks, or an instruction such as most_words, sentences,
/// bullets, paragraphs, include, avoid, json, begin_with, end_with. One half of the tasks chooses candidates; the best is
/// then examined on the other half.
///
/// A candidate is built on only if it passes the safety benchmark on the prompts of --safety, JSON lines of
/// {"prompt", "harmful", "category"}, and if its drafts are no more harmful than the agent's. With
/// ENABLE_WALTZRL_SAFETY_BENCHMARKS=false there is no benchmark, and a person must decide on every promotion. With
/// WALTZRL_BLOCK_ON_FAILURE=true three unsafe candidates in a row open the circuit breaker: the run stops, exit code 5, and the addresses of [[webhooks]] are told.
///
/// Everything is written to DIR at once, and the same command goes on where it was cut. DIR/variant_proposals.jsonl holds
/// the winner, which also waits in the database's queue (`waltz variants proposals`): nothing serves before a person
/// approves it. DIR/answers holds answers that may be harmful.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Evolve {
    /// The agent, by its name in the configuration.
    #[arg(long, value_name = "NAME")]
    agent: String,
    /// The kind of task that the variant is for; the agent's first when left out.
    #[arg(long, value_name = "TYPE")]
    task_type: Option<String>,
    /// Tasks that a program can check, JSON lines.
    #[arg(long, value_name = "FILE")]
    tasks: PathBuf,
    /// Prompts of the safety benchmark, JSON lines; may be given more than once.
    #[arg(long, value_name = "FILE")]
    safety: Vec<PathBuf>,
    /// How often candidates are made of those before.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    generations: u32,
    /// Candidates of a generation.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    population: u32,
    /// Where chance begins: the same seed makes the same candidates, but for what a model writes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The run's folder: new, or that of the run to go on with; `evolution-NAME` when left out.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A model, or `waltz/<agent>`, that writes changes; where it fails, rules write them.
    #[arg(long, value_name = "MODEL")]
    writer: Option<String>,
    #[command(flatten)]
    scorer: ScorerOptions,
    /// At most so many tasks, and prompts of each safety file, chosen by the seed.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The longest answer, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Prompts at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
}

impl Evolve {
    pub(crate) fn run(&self, who: &Who) -> Result<(), Exit> {
        let sources = who.options().sources();
        runtime()?.block_on(async {
            let (loaded, built) = configured(&sources)?;
            let live = &built.live;
            let agent = self.agent(live)?;
            let writer = self.writer(live)?;
            let task_type = self.task_type(&agent, live);
            let tasks = Tasks::read(&self.tasks, self.limit, self.seed).map_err(failed)?;
            let benchmark = loaded.raw.waltz.safety_benchmarks.then_some(loaded.raw.waltz.safety_threshold);
            let safety = self.safety(benchmark.is_some())?;
            self.scorer.check()?;
            let scorer = self.scorer.open(&built, &loaded, &sources, depth(live, &task_type)).await?;
            let closed = |risk: Risk| live.settings.failure.at(risk) == OnFailure::Closed;
            let terms = Terms {
                setup: Setup {
                    agent: &agent,
                    untrained: None,
                    judge: live.judge(),
                    coach: live.settings.coach,
                    depth: depth(live, &task_type),
                    closed: &closed,
                    max_tokens: self.max_tokens,
                    temperature: None,
                },
                task_type: &task_type,
                tasks: &tasks,
                safety: &safety.items,
                benchmark,
                block_on_failure: loaded.raw.waltz.block_on_failure,
                scorer: &scorer,
                calibration: self.scorer.calibration(&scorer, &sources)?,
                writer: writer.as_deref(),
                generations: self.generations,
                population: self.population,
                seed: self.seed,
                concurrency: usize::from(self.concurrency),
                rollout: &live.settings.variants.rollout,
            };
            terms.check().map_err(|error| wrong(error.to_string()))?;
            let plan = self.plan(&terms, live, &loaded, &sources)?;
            let mut folder = Folder::open(&self.out(), &plan).map_err(failed)?;
            let report = self.evolve(&mut folder, &plan, &terms).await?;
            let path = self.tell(&folder, &report, who.json)?;
            if let Some(opened) = &report.breaker {
                self.alert(opened, &terms, &path, &live.settings.variants.webhooks).await;
                return Err(self.opened(opened, &folder));
            }
            match &report.proposed {
                Some(proposed) => queue(who, proposed).await.map_err(|exit| Exit {
                    message: format!(
                        "{}\n\nhint: the proposal is in {}; the same command asks nobody again and puts it into the queue",
                        exit.message,
                        folder.path().join("variant_proposals.jsonl").display()
                    ),
                    ..exit
                }),
                None => Ok(()),
            }
        })
    }

    fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from(format!("evolution-{}", self.agent)))
    }

    fn agent(&self, live: &Live) -> Result<SharedAgent, Exit> {
        live.agent(&self.agent).ok_or_else(|| {
            let known: Vec<&str> = live.agents.iter().map(|agent| agent.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            wrong(format!("there is no agent `{}`; configured: {known}", self.agent))
        })
    }

    fn writer(&self, live: &Live) -> Result<Option<SharedAgent>, Exit> {
        let Some(model) = &self.writer else { return Ok(None) };
        let writer = live.agent_for(model);
        writer.map(Some).ok_or_else(|| wrong(format!("--writer: no upstream serves the model `{model}`")))
    }

    fn task_type(&self, agent: &ConversationAgent, live: &Live) -> String {
        let own = self.task_type.clone().or_else(|| agent.task_type.clone());
        own.unwrap_or_else(|| live.settings.policy.default_task_type.clone())
    }

    fn safety(&self, needed: bool) -> Result<Prompts, Exit> {
        if needed && self.safety.is_empty() {
            return Err(wrong(
                "name prompts for the safety benchmark with --safety\n\nhint: with ENABLE_WALTZRL_SAFETY_BENCHMARKS=false \
                 none are needed, and a person must decide on every promotion"
                    .to_owned(),
            ));
        }
        let mut prompts = Prompts::default();
        for file in &self.safety {
            prompts.add(file, self.limit, self.seed, None).map_err(failed)?;
        }
        for skipped in &prompts.skipped {
            note(&format!("{}: {} rows left out: {}", skipped.file, skipped.rows, skipped.reason));
        }
        Ok(prompts)
    }

    /// What the run depends on. Block on failure is not of it: whoever closes the breaker may go on.
    fn plan(&self, terms: &Terms<'_>, live: &Live, loaded: &Loaded, sources: &Sources) -> Result<Plan, Exit> {
        let mut plan = answering(terms.setup.agent, live, loaded, sources)?;
        let writer = terms.writer.map(|agent| {
            let prompt = agent.system_prompt.as_ref().map(|text| sha256_hex(text.as_bytes()));
            json!({"targets": targets(&agent.targets), "system_prompt_sha256": prompt})
        });
        let entries: [(&str, Value); 13] = [
            ("task_type", json!(terms.task_type)),
            ("tasks", marks(std::slice::from_ref(&self.tasks))?),
            ("safety", marks(&self.safety)?),
            ("benchmark", json!(terms.benchmark)),
            ("generations", json!(self.generations)),
            ("population", json!(self.population)),
            ("seed", json!(self.seed)),
            ("limit", json!(self.limit)),
            ("writer", json!(writer)),
            ("scorer_sha256", json!(terms.scorer.sha256)),
            ("calibration", marks(self.scorer.named_calibration())?),
            ("max_tokens", json!(self.max_tokens)),
            ("depth", json!(terms.setup.depth)),
        ];
        plan.extend(entries.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(plan)
    }

    /// Evolves, or stops where Ctrl-C finds it.
    async fn evolve(&self, folder: &mut Folder, plan: &Plan, terms: &Terms<'_>) -> Result<Report, Exit> {
        let mut bar = Bar::new();
        let mut signals = Stop::new()?;
        let mut show = |told: Progress<'_>| {
            let step = match told.exam {
                true => format!("examination of {}", told.candidate),
                false => format!("{} ({} of {})", told.candidate, told.before + 1, told.candidates),
            };
            let amount = format!("{} prompts, {} failed", told.prompts.all, told.prompts.failed);
            bar.show(&step, told.prompts.answered as u64, Some(told.prompts.all as u64), &amount);
        };
        let evolved = evolve(folder, plan, terms, Timestamp::now(), &mut show);
        let ended = tokio::select! {
            ended = evolved => Some(ended),
            () = signals.asked() => None,
        };
        bar.end();
        match ended {
            Some(ended) => ended.map_err(failed),
            None => Err(stopped(&self.out())),
        }
    }

    fn tell(&self, folder: &Folder, report: &Report, as_json: bool) -> Result<PathBuf, Exit> {
        let json = serde_json::to_string_pretty(report).map_err(anyhow::Error::from)?;
        let path = folder.write_report(&json).map_err(failed)?;
        if as_json {
            print(&json)?;
        } else {
            for line in report.table() {
                print(&line)?;
            }
        }
        note(&format!("the report is in {}", path.display()));
        Ok(path)
    }

    /// Tells the addresses of `[[webhooks]]` that the breaker is open. Who does not hear it is named; the run has ended.
    async fn alert(&self, opened: &Opened, terms: &Terms<'_>, report: &Path, hooks: &[Arc<Hook>]) {
        let event = json!({
            "event": "evolution_breaker_opened",
            "timestamp": Timestamp::now(),
            "agent_name": self.agent,
            "task_type": terms.task_type,
            "candidates": opened.candidates,
            "reasons": opened.reasons,
            "report": report,
        });
        let body = event.to_string();
        for (number, hook) in hooks.iter().enumerate() {
            match hook.deliver(&body).await {
                Ok(()) => note(&format!("webhooks[{number}] was told of the open circuit breaker")),
                Err(reason) => note(&format!("webhooks[{number}] could not be told: {reason}")),
            }
        }
    }

    fn opened(&self, opened: &Opened, folder: &Folder) -> Exit {
        let message = format!(
            "the circuit breaker is open: {} are unsafe, one after the other\n  {}\n\nhint: look at the answers in {}; \
             another seed or folder begins anew",
            opened.candidates.join(", "),
            opened.reasons.join("\n  "),
            folder.path().join("answers").display()
        );
        Exit { code: BREAKER, message }
    }
}

/// Puts a proposal into the queue that people decide on.
async fn queue(who: &Who, proposed: &Proposed) -> Result<(), Exit> {
    let office = Office::open(who).await?;
    let queued = office.desk().suggest(&proposed.proposal).await.map_err(refused);
    office.close().await.context("cannot close the store")?;
    let id = &proposed.proposal.proposal_id;
    match queued? {
        true => note(&format!("{id} waits for a decision: waltz variants approve {id}")),
        false => note(&format!("{id} or the same change is in the queue already")),
    }
    Ok(())
}
