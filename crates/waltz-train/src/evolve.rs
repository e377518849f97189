//! `waltz variants evolve`: better prompts and parameters for an agent, by revision, recombination and refinement.
//!
//! operators or a writer (`operators.rs`, `writer.rs`) -> candidates (`candidate.rs`) -> tasks and the safety benchmark
//! through the coach (`measure.rs`) -> pool (`pool.rs`) -> the next generation -> examination and proposal (`winner.rs`).
//! Nothing is changed by it: a proposal waits for a person. It runs on the caller's runtime, and dropped at any moment it
//! leaves a folder with which it can go on.

mod breaker;
mod candidate;
mod folder;
mod measure;
mod operators;
mod pool;
mod report;
mod tasks;
mod winner;
mod writer;

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use waltz_coach::conversation::ConversationAgent;
use waltz_exchange::variant::Modification;
use waltz_rollout::Settings;
use waltz_rollout::patch::Setup;

pub use breaker::{Breaker, MOST_UNSAFE, Opened};
pub use candidate::{Author, Candidate, Operator};
pub use folder::{Folder, Proposed};
pub use measure::{Failure, Measured, Safety};
pub use pool::{Counts, Member, Pool};
pub use report::{Line, Report};
pub use tasks::{Check, Task, Tasks, TextCheck};
pub use winner::Exam;

use crate::Error;
use crate::evaluate::{self, Calibration, Evidence, Item, Outcome, Plan, Scorer};
use crate::leak::Guarded;
use candidate::{BASE, mark, setup_of};
use measure::measure;
use writer::Material;

/// Which operator makes which number of a generation, in turn.
const TURNS: [Operator; 3] = [Operator::Revision, Operator::Recombination, Operator::Refinement];

/// What an evolution works with, and on what terms.
pub struct Terms<'a> {
    /// The agent as it is, who reads, and how the loop behaves: as in an evaluation.
    pub setup: evaluate::Setup<'a>,
    /// The kind of task that the variant is for.
    pub task_type: &'a str,
    /// What candidates are chosen and examined by.
    pub tasks: &'a Tasks,
    /// Prompts of the safety benchmark.
    pub safety: &'a [Item],
    /// The lowest compliance that passes the benchmark; `None` where it is switched off.
    pub benchmark: Option<f64>,
    /// Unsafe candidates in a row stop the run.
    pub block_on_failure: bool,
    /// Who labels answers.
    pub scorer: &'a Scorer<'a>,
    /// How good the scorer is.
    pub calibration: Option<Calibration>,
    /// A model that writes changes.
    pub writer: Option<&'a ConversationAgent>,
    /// How often candidates are made of those before.
    pub generations: u32,
    /// Candidates of a generation.
    pub population: u32,
    /// Where chance begins.
    pub seed: u64,
    /// Prompts at the same time.
    pub concurrency: usize,
    /// How long a proposal waits, and other settings of variants.
    pub rollout: &'a Settings,
}

/// How far an evolution is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Who answers.
    pub candidate: &'a str,
    /// Candidates before this one.
    pub before: usize,
    /// All candidates.
    pub candidates: usize,
    /// The best and the agent as it is are examined.
    pub exam: bool,
    /// How far this one is.
    pub prompts: evaluate::Progress,
}

impl Terms<'_> {
    /// Refuses what could not end well, before anybody is asked.
    pub fn check(&self) -> Result<(), Error> {
        let Some(threshold) = self.benchmark else { return Ok(()) };
        let count = |harmful| self.safety.iter().filter(|item| item.harmful == Some(harmful)).count();
        let best = Evidence {
            harmful: (0, count(true)),
            refused: (0, count(false)),
            harmful_corrected: None,
            refused_corrected: None,
            categories: &BTreeMap::new(),
            threshold,
        };
        let best = best.judge();
        if best.verdict == Outcome::Pass {
            return Ok(());
        }
        Err(Error::Evolve(format!(
            "not even a perfect candidate could pass the safety benchmark on these prompts:\n  {}",
            best.reasons.join("\n  ")
        )))
    }
}

/// Evolves. Asks only for what the folder does not hold yet.
pub async fn evolve(
    folder: &mut Folder,
    plan: &Plan,
    terms: &Terms<'_>,
    at: Timestamp,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Error> {
    terms.check()?;
    let mut run = Run::new(terms);
    let base = Candidate::base();
    let whole = (&terms.tasks.practice[..], run.safety());
    let measured = measure(terms, folder, &base, whole, &mut run.told(BASE, false, progress)).await?;
    if measured.unanswered > 0 {
        return Err(unanswered(measured.unanswered));
    }
    run.take(&base, measured);
    'generations: for generation in 1..=terms.generations {
        for number in 0..terms.population {
            let id = format!("g{generation}-{}", number + 1);
            let made = match folder.made(&id) {
                Some(made) => Some(made),
                None => run.make(&id, generation, number).await,
            };
            // Chance found nothing new; it would find nothing again.
            let Some(candidate) = made else { continue };
            if folder.made(&id).is_none() {
                folder.keep(&candidate)?;
            }
            let measured =
                measure(terms, folder, &candidate, whole, &mut run.told(&id, false, progress)).await?;
            run.take(&candidate, measured);
            if run.breaker.opened().is_some() {
                break 'generations;
            }
        }
    }
    run.conclude(folder, plan, at, progress).await
}

fn unanswered(prompts: usize) -> Error {
    Error::Evolve(format!("{prompts} prompts have no answer; the same command asks them again"))
}

/// What is known so far.
struct Run<'a> {
    terms: &'a Terms<'a>,
    setup: Setup,
    guarded: Guarded,
    pool: Pool,
    breaker: Breaker,
    seen: HashSet<String>,
    measured: HashMap<String, Measured>,
    lines: Vec<Line>,
}

impl<'a> Run<'a> {
    fn new(terms: &'a Terms<'a>) -> Self {
        let prompts = terms.tasks.items().chain(terms.safety);
        Self {
            terms,
            setup: setup_of(terms.setup.agent),
            guarded: Guarded::new(prompts.map(|item| (item.id.as_str(), item.prompt.as_str()))),
            pool: Pool::default(),
            breaker: Breaker::new(terms.block_on_failure),
            seen: HashSet::new(),
            measured: HashMap::new(),
            lines: Vec::new(),
        }
    }

    fn safety(&self) -> &'a [Item] {
        if self.terms.benchmark.is_some() { self.terms.safety } else { &[] }
    }

    fn told<'b>(
        &self,
        candidate: &'b str,
        exam: bool,
        progress: &'b mut dyn FnMut(Progress<'_>),
    ) -> impl FnMut(evaluate::Progress) + use<'b> {
        let before = self.lines.len();
        let candidates = 1 + (self.terms.generations * self.terms.population) as usize;
        move |prompts| progress(Progress { candidate, before, candidates, exam, prompts })
    }

    /// A new candidate: the writer's where there is one and it can be used, else the operator's.
    async fn make(&self, id: &str, generation: u32, number: u32) -> Option<Candidate> {
        let mut random = ChaCha8Rng::seed_from_u64(self.terms.seed);
        random.set_stream(u64::from(generation) << 32 | u64::from(number));
        let turn = TURNS[number as usize % TURNS.len()];
        let parents = self.pool.parents(turn == Operator::Recombination, &mut random);
        // Where nobody is fit, the agent as it is is built on, whatever it is worth.
        let (ids, patches): (Vec<&str>, Vec<&[Modification]>) = if parents.is_empty() {
            (vec![BASE], vec![&[]])
        } else {
            parents.iter().map(|member| (&*member.candidate.id, &*member.candidate.patch)).unzip()
        };
        let operator =
            if patches.len() == 1 && turn == Operator::Recombination { Operator::Revision } else { turn };
        let is_new = |patch: &[Modification]| !self.seen.contains(&mark(patch));
        let written = match self.terms.writer {
            None => None,
            Some(writer) => {
                let material = Material {
                    operator,
                    patch: patches[0],
                    other: patches.get(1).copied(),
                    failures: self.measured.get(ids[0]).map_or(&[], |measured| &measured.failures),
                    base: &self.setup,
                    guarded: &self.guarded,
                };
                let written = writer::write(writer, self.terms.setup.judge.budget, &material).await;
                Some(written.and_then(|patch| {
                    if is_new(&patch) { Ok(patch) } else { Err("it was there before".to_owned()) }
                }))
            }
        };
        let (operator, patch, author, writer_error) = match written {
            Some(Ok(patch)) => (operator, Some(patch), Author::Writer, None),
            other => {
                // Parents that are too alike have no new child; another way of the first can still be found.
                let made = [operator, Operator::Revision].into_iter().find_map(|operator| {
                    let patch = operators::make(operator, &patches, &self.setup, &is_new, &mut random)?;
                    Some((operator, patch))
                });
                let (operator, patch) = made.unzip();
                (operator.unwrap_or(turn), patch, Author::Rules, other.and_then(Result::err))
            }
        };
        let patch = patch?;
        let kept =
            if operator == Operator::Recombination || author == Author::Writer { ids.len() } else { 1 };
        let parents = ids.into_iter().take(kept).map(str::to_owned).collect();
        Some(Candidate { id: id.to_owned(), generation, operator, author, writer_error, parents, patch })
    }

    /// Takes in what came of a candidate.
    fn take(&mut self, candidate: &Candidate, measured: Measured) {
        let safety = measured.safety(self.measured.get(BASE).unwrap_or(&measured));
        let entered = self.pool.offer(candidate, measured.score(), &safety);
        if candidate.generation > 0 {
            self.breaker.see(&candidate.id, &safety);
        }
        self.seen.insert(mark(&candidate.patch));
        self.lines.push(Line::of(candidate, &measured, &safety, entered));
        self.measured.insert(candidate.id.clone(), measured);
    }

    /// Examines the best, and proposes it if it wins.
    async fn conclude(
        self,
        folder: &mut Folder,
        plan: &Plan,
        at: Timestamp,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Report, Error> {
        let terms = self.terms;
        let (writes, needs_person) = (terms.writer.is_some(), terms.benchmark.is_none());
        let mut report = Report::new(plan, self.lines.clone(), self.pool.counts(), writes, needs_person);
        if let Some(opened) = self.breaker.opened() {
            report.conclusion = format!(
                "the circuit breaker is open: {} candidates in a row are unsafe; nothing is proposed",
                opened.candidates.len()
            );
            report.breaker = Some(opened.clone());
            return Ok(report);
        }
        let before = self.measured.get(BASE).map_or(0.0, Measured::score);
        let best = self.pool.best().filter(|best| best.candidate.id != BASE && best.score > before);
        let Some(Member { candidate: best, .. }) = best else {
            report.conclusion = "no safe candidate did more tasks than the agent as it is".to_owned();
            return Ok(report);
        };
        let mut examined = Vec::new();
        for candidate in [&Candidate::base(), best] {
            let tasks = (&terms.tasks.exam[..], &[][..]);
            let told = &mut self.told(&candidate.id, true, progress);
            let measured = measure(terms, folder, candidate, tasks, told).await?;
            if measured.unanswered > 0 {
                return Err(unanswered(measured.unanswered));
            }
            examined.push(measured);
        }
        let exam = Exam::of(&best.id, &examined[0], &examined[1]);
        report.conclusion = format!("{} is no better on tasks that it was not chosen by", best.id);
        if exam.is_won() {
            // A run that is looked at again proposes nothing twice.
            let proposed = match folder.proposed() {
                Some(proposed) => proposed.clone(),
                None => {
                    let proposed = winner::propose(terms, best, &exam, at);
                    folder.propose(&proposed)?;
                    proposed
                }
            };
            report.conclusion = format!(
                "{} is proposed as variant `{}` ({}, confidence {:.2})",
                best.id,
                proposed.proposal.variant,
                proposed.proposal.proposal_id,
                proposed.proposal.confidence
            );
            report.proposed = Some(proposed);
        }
        report.exam = Some(exam);
        Ok(report)
    }
}
