//! Carries out a plan: level by level, the tasks of a level at the same time, each by whatever `execute` does, with the
//! results of the tasks before it. A task that fails takes those that wait for it along, and nobody else.
//!
//! Whoever calls says how a task is executed. The gateway sends each through its request path, which drafts, judges,
//! coaches and records; other code can put [`Coach::around`](crate::rounds::Coach::around) around an agent of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Serialize, Serializer};
use waltz_exchange::Decision;
use waltz_route::{Assignment, Plan, Task, TaskGraph};

/// On what terms a plan is carried out.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Tasks at the same time, at most.
    pub parallel: usize,
    /// Task types whose answers must be guarded.
    pub critical_task_types: &'a [String],
    /// Bytes of results that are collected and handed on, in all: a graph in which everything waits for everything would
    /// otherwise make much of little.
    pub result_bytes: usize,
    /// Asked before a task begins: why nothing more may.
    pub halted: &'a (dyn Fn() -> Option<String> + Send + Sync),
}

/// A task on its way to its agent.
#[derive(Clone, Debug)]
pub struct Errand<'a> {
    /// The task.
    pub task: &'a Task,
    /// Who does it, and why.
    pub assignment: &'a Assignment,
    /// The coach must be around it.
    pub safety_critical: bool,
    /// What came of the tasks that it waited for: name and text.
    pub results: Vec<(&'a str, Arc<str>)>,
}

/// What an agent said, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The text.
    pub text: String,
    /// What the coach made of the draft.
    pub decision: Decision,
    /// How many coaching rounds there were.
    pub rounds: u32,
    /// Whether the text is safe; `None` when nobody read it.
    pub safe: Option<bool>,
    /// Why it is degraded, if it is.
    pub degraded: Option<String>,
    /// The id of the answer, for outcomes.
    pub response_id: Option<String>,
}

/// Why a task gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// A stable code.
    pub code: String,
    /// In words.
    pub message: String,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was done.
    Done,
    /// It was begun, and gave no answer.
    Failed,
    /// It was not begun: something that it waits for was not done, or nothing more may begin.
    Skipped,
    /// It was not begun, because it has no agent.
    Unassigned,
}

/// What became of a task, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    /// The task.
    pub task: String,
    /// Its agent.
    pub agent: Option<String>,
    /// What became of it.
    pub status: Status,
    /// Why it was not begun; empty for others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether its type is safety-critical.
    pub safety_critical: bool,
    /// What its agent said, as it was sent on.
    #[serde(serialize_with = "shared")]
    pub text: Option<Arc<str>>,
    /// What the coach made of the draft.
    pub decision: Option<Decision>,
    /// How many coaching rounds there were.
    pub rounds: u32,
    /// Whether the text is safe; `None` when nobody read it.
    pub safe: Option<bool>,
    /// Why the answer is degraded, if it is.
    pub degraded: Option<String>,
    /// The id of the answer, for outcomes.
    pub response_id: Option<String>,
    /// Why there is no answer.
    pub error: Option<Failure>,
}

/// What became of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Each task that was to be done, level by level.
    pub results: Vec<TaskReport>,
    /// Whether every text that was read is safe; `None` when none was read.
    pub final_safe: Option<bool>,
    /// Coaching rounds per text that was read.
    pub avg_coaching_rounds: f64,
}

/// What happens while a plan is carried out.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A task goes to its agent.
    Started(&'a Assignment),
    /// A task is over, or will not be begun.
    Ended(TaskReport),
}

/// Carries out a plan. `progress` is told of every step; its error ends everything, and what has not begun never does.
pub async fn route_with_safety<'a, E, A, P, N, X>(
    plan: &'a Plan,
    graph: &'a TaskGraph,
    terms: Terms<'a>,
    execute: E,
    progress: P,
) -> Result<Report, X>
where
    E: Fn(Errand<'a>) -> A,
    A: Future<Output = Result<Answered, Failure>>,
    P: Fn(Progress<'a>) -> N,
    N: Future<Output = Result<(), X>>,
{
    let mut ended = Ended::before(graph, terms.result_bytes);
    let mut results: Vec<TaskReport> = Vec::new();
    let place: HashMap<&str, usize> =
        graph.tasks().iter().enumerate().map(|(place, task)| (task.id.as_str(), place)).collect();
    for level in 0..plan.levels {
        let mut reports: Vec<TaskReport> = Vec::new();
        for entry in of_level(&plan.unassigned, level, |entry| entry.level) {
            let mut report = TaskReport::blank(&entry.task, None, Status::Unassigned);
            report.reason.clone_from(&entry.reason);
            report.safety_critical = graph.task(&entry.task).is_some_and(|task| terms.is_critical(task));
            progress(Progress::Ended(report.clone())).await?;
            reports.push(report);
        }
        let mut due = of_level(&plan.assignments, level, |entry| entry.level).iter();
        let mut under_way = FuturesUnordered::new();
        loop {
            // Made as places become free: a task holds what it is handed only while it is done.
            while under_way.len() < terms.parallel.max(1)
                && let Some(assignment) = due.next()
            {
                let Some(task) = graph.task(&assignment.task) else { continue };
                under_way.push(carry_out((task, assignment), terms, &ended, &execute, &progress));
            }
            let Some(report) = under_way.next().await else { break };
            reports.push(report?);
        }
        drop(under_way);
        reports.iter().for_each(|report| ended.note(report));
        // In the order of the graph, whoever came first.
        reports.sort_by_key(|report| place.get(report.task.as_str()).copied());
        results.extend(reports);
    }
    Ok(Report::new(results))
}

/// The entries of one level; a plan has them level by level.
fn of_level<T>(entries: &[T], level: usize, level_of: impl Fn(&T) -> usize) -> &[T] {
    let begin = entries.partition_point(|entry| level_of(entry) < level);
    let end = entries.partition_point(|entry| level_of(entry) <= level);
    &entries[begin..end]
}

async fn carry_out<'a, E, A, P, N, X>(
    (task, assignment): (&'a Task, &'a Assignment),
    terms: Terms<'a>,
    ended: &Ended,
    execute: &E,
    progress: &P,
) -> Result<TaskReport, X>
where
    E: Fn(Errand<'a>) -> A,
    A: Future<Output = Result<Answered, Failure>>,
    P: Fn(Progress<'a>) -> N,
    N: Future<Output = Result<(), X>>,
{
    let mut report = TaskReport::blank(&task.id, Some(&assignment.agent), Status::Skipped);
    report.safety_critical = terms.is_critical(task);
    match (terms.halted)().map_or_else(|| ended.results_for(task), Err) {
        Err(reason) => report.reason = reason,
        Ok(results) => {
            progress(Progress::Started(assignment)).await?;
            let handed = results.iter().map(|(_, text)| text.len()).sum();
            let errand = Errand { task, assignment, safety_critical: report.safety_critical, results };
            let outcome = match ended.make_room(handed) {
                Ok(()) => execute(errand).await,
                Err(failure) => Err(failure),
            };
            report.note(outcome.and_then(|answered| ended.make_room(answered.text.len()).map(|()| answered)));
        }
    }
    progress(Progress::Ended(report.clone())).await?;
    Ok(report)
}

/// What is known of tasks that are over: a text, or what became of them instead.
struct Ended {
    texts: HashMap<String, Result<Arc<str>, Status>>,
    /// Bytes of results that there is room for yet, of so many.
    room: AtomicUsize,
    most: usize,
}

impl Ended {
    /// Tasks that were done before the plan was made.
    fn before(graph: &TaskGraph, most: usize) -> Self {
        let text = |task: &Task| task.result.as_deref().map(Arc::from);
        let done = graph.tasks().iter().filter_map(|task| Some((task.id.clone(), Ok(text(task)?))));
        Self { texts: done.collect(), room: AtomicUsize::new(most), most }
    }

    fn note(&mut self, report: &TaskReport) {
        let text = report.text.clone().ok_or(report.status);
        self.texts.insert(report.task.clone(), text);
    }

    /// Takes bytes from the room for results, or says that there is not so much.
    fn make_room(&self, bytes: usize) -> Result<(), Failure> {
        let taken =
            self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes));
        taken.map(drop).map_err(|_| Failure {
            code: "run_too_large".to_owned(),
            message: format!(
                "the results of this run, with each handing on, are more than {} bytes",
                self.most
            ),
        })
    }

    /// The results that a task waits for, or why it cannot be begun.
    fn results_for<'a>(&self, task: &'a Task) -> Result<Vec<(&'a str, Arc<str>)>, String> {
        let mut results = Vec::with_capacity(task.depends_on.len());
        for id in &task.depends_on {
            let fate = match self.texts.get(id) {
                Some(Ok(text)) => {
                    results.push((id.as_str(), Arc::clone(text)));
                    continue;
                }
                Some(Err(Status::Failed)) => "failed",
                Some(Err(Status::Unassigned)) => "has no agent",
                _ => "was skipped",
            };
            return Err(format!("it waits for `{id}`, which {fate}"));
        }
        Ok(results)
    }
}

impl Terms<'_> {
    fn is_critical(&self, task: &Task) -> bool {
        self.critical_task_types.contains(&task.task_type)
    }
}

impl TaskReport {
    fn blank(task: &str, agent: Option<&str>, status: Status) -> Self {
        Self {
            task: task.to_owned(),
            agent: agent.map(str::to_owned),
            status,
            reason: String::new(),
            safety_critical: false,
            text: None,
            decision: None,
            rounds: 0,
            safe: None,
            degraded: None,
            response_id: None,
            error: None,
        }
    }

    fn note(&mut self, outcome: Result<Answered, Failure>) {
        match outcome {
            Ok(Answered { text, decision, rounds, safe, degraded, response_id }) => {
                self.status = Status::Done;
                self.text = Some(text.into());
                self.decision = Some(decision);
                (self.rounds, self.safe) = (rounds, safe);
                (self.degraded, self.response_id) = (degraded, response_id);
            }
            Err(failure) => {
                self.status = Status::Failed;
                self.error = Some(failure);
            }
        }
    }
}

/// A text that reports, events and the tasks after it share.
fn shared<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

impl Report {
    fn new(results: Vec<TaskReport>) -> Self {
        let read: Vec<(bool, u32)> =
            results.iter().filter_map(|report| Some((report.safe?, report.rounds))).collect();
        let rounds: f64 = read.iter().map(|(_, rounds)| f64::from(*rounds)).sum();
        Self {
            final_safe: (!read.is_empty()).then(|| read.iter().all(|(safe, _)| *safe)),
            avg_coaching_rounds: if read.is_empty() { 0.0 } else { rounds / read.len() as f64 },
            results,
        }
    }
}

#[cfg(test)]
#[path = "route/tests.rs"]
mod tests;
