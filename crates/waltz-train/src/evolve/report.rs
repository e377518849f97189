//! What an evolution tells: `report.json` and a table for a terminal.

use serde::Serialize;

use super::breaker::Opened;
use super::candidate::{Author, Candidate};
use super::folder::Proposed;
use super::measure::{Measured, Safety};
use super::pool::Counts;
use super::winner::Exam;
use crate::evaluate::Plan;

/// The form of `report.json`; a change that breaks readers gets a new number.
const VERSION: u32 = 1;

/// What came of an evolution.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The form.
    pub version: u32,
    /// What the run is.
    pub run: Plan,
    /// Every candidate, in the order of their making.
    pub candidates: Vec<Line>,
    /// What became of them.
    pub pool: Counts,
    /// Candidates that a writer was asked for.
    pub writer_asked: usize,
    /// Those that the operator had to make in its place.
    pub writer_failed: usize,
    /// What opened the circuit breaker; the run stopped there.
    pub breaker: Option<Opened>,
    /// How the best did on tasks that nothing was chosen by.
    pub exam: Option<Exam>,
    /// What is proposed.
    pub proposed: Option<Proposed>,
    /// The safety benchmark was switched off: every promotion needs a person.
    pub needs_person: bool,
    /// What came out, in a sentence.
    pub conclusion: String,
}

/// One candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Tasks that were done.
    pub done: usize,
    /// All tasks.
    pub tasks: usize,
    /// Whether it may be built on.
    pub safety: Safety,
    /// It entered the pool.
    pub entered: bool,
}

impl Line {
    pub(super) fn of(candidate: &Candidate, measured: &Measured, safety: &Safety, entered: bool) -> Self {
        let (done, tasks) = (measured.done.len(), measured.tasks);
        Self { candidate: candidate.clone(), done, tasks, safety: safety.clone(), entered }
    }
}

impl Report {
    pub(super) fn new(plan: &Plan, lines: Vec<Line>, pool: Counts, writes: bool, needs_person: bool) -> Self {
        let made = lines.iter().filter(|line| line.candidate.generation > 0);
        Self {
            version: VERSION,
            run: plan.clone(),
            writer_asked: if writes { made.count() } else { 0 },
            writer_failed: lines.iter().filter(|line| line.candidate.writer_error.is_some()).count(),
            candidates: lines,
            pool,
            breaker: None,
            exam: None,
            proposed: None,
            needs_person,
            conclusion: String::new(),
        }
    }

    /// The report in lines.
    pub fn table(&self) -> Vec<String> {
        let mut lines = vec![
            "| candidate | made by | of | changes | tasks done | safety | pool |".to_owned(),
            "|---|---|---|---|---|---|---|".to_owned(),
        ];
        for Line { candidate, done, tasks, safety, entered } in &self.candidates {
            let by = match candidate.author {
                Author::Rules => candidate.operator.as_str().to_owned(),
                Author::Writer => format!("{} (writer)", candidate.operator.as_str()),
            };
            lines.push(format!(
                "| {} | {by} | {} | {} | {done} of {tasks} | {} | {} |",
                candidate.id,
                candidate.parents.join(", "),
                candidate.patch.len(),
                safety.as_str(),
                if *entered { "in" } else { "kept out" }
            ));
        }
        let Counts { entered, not_safe, unproven, unanswered, pruned } = self.pool;
        lines.push(String::new());
        lines.push(format!(
            "{entered} entered the pool, {pruned} of them left it; kept out: {not_safe} unsafe, {unproven} unproven, {unanswered} unanswered"
        ));
        if self.writer_asked > 0 {
            lines.push(format!("writer: asked {} times, failed {}", self.writer_asked, self.writer_failed));
        }
        if let Some(exam) = &self.exam {
            lines.push(format!(
                "examination of {} on {} other tasks: {} done, {} by the agent as it is; {} only by the candidate, {} only by the agent (p = {:.3})",
                exam.candidate,
                exam.tasks,
                exam.candidate_done,
                exam.base_done,
                exam.only_candidate,
                exam.only_base,
                exam.p_value
            ));
        }
        if self.needs_person {
            lines.push("the safety benchmark was switched off: every promotion needs a person".to_owned());
        }
        lines.push(self.conclusion.clone());
        lines
    }
}
