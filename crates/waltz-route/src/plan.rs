//! A plan: every task of a graph with its agent and the reason, or with the reason why it has none.

use serde::Serialize;

use crate::graph::TaskGraph;
use crate::router::{Ask, Load, Router};
use crate::team;

/// Who does what, level by level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Whether every task that is to be done has an agent, and the team what it must have.
    pub complete: bool,
    /// Tasks with agents, in an order in which they can be done.
    pub assignments: Vec<Assignment>,
    /// Tasks without one.
    pub unassigned: Vec<Unassigned>,
    /// Tasks that were done before.
    pub completed: Vec<String>,
    /// How many levels there are; the tasks of one level can be done at the same time.
    pub levels: usize,
    /// What the team lacks, in words.
    pub team_faults: Vec<String>,
}

/// A task with its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assignment {
    /// The task.
    pub task: String,
    /// When it is due: after all lower levels.
    pub level: usize,
    /// Who does it.
    pub agent: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// Why, in words.
    pub reason: String,
}

/// A task without an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unassigned {
    /// The task.
    pub task: String,
    /// When it would be due.
    pub level: usize,
    /// Why, in words.
    pub reason: String,
}

impl Router {
    /// Assigns every task that is to be done. No agent gets more tasks of one level than it takes at the same time;
    /// with each level the count begins anew.
    pub fn plan(&self, graph: &TaskGraph) -> Plan {
        let mut assignments = Vec::with_capacity(graph.tasks().len());
        let mut unassigned = Vec::new();
        let mut levels = 0;
        for (level, tasks) in graph.levels().enumerate() {
            levels = level + 1;
            let mut load = Load::default();
            for task in tasks {
                let ask = Ask {
                    agent: task.agent.as_deref(),
                    task_type: &task.task_type,
                    metadata: &task.metadata,
                    written: false,
                    skills: &task.skills,
                };
                match self.choose(ask, &mut load) {
                    Ok(chosen) => assignments.push(Assignment {
                        task: task.id.clone(),
                        level,
                        agent: chosen.agent.to_owned(),
                        rule: chosen.rule.map(str::to_owned),
                        reason: chosen.reason,
                    }),
                    Err(reason) => unassigned.push(Unassigned { task: task.id.clone(), level, reason }),
                }
            }
        }
        let done = graph.tasks().iter().filter(|task| task.result.is_some());
        let completed = done.map(|task| task.id.clone()).collect();
        let team_faults = team::of_plan(self, graph, &assignments);
        let complete = unassigned.is_empty() && team_faults.is_empty();
        Plan { complete, assignments, unassigned, completed, levels, team_faults }
    }
}
