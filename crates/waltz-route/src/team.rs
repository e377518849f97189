//! What the agents of a plan must have between them.

use crate::agent::Agent;
use crate::graph::TaskGraph;
use crate::plan::Assignment;
use crate::router::{Router, told};

/// When a team needs a security agent, and who is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamPolicy {
    /// Task types that may not be done without one.
    pub security_task_types: Vec<String>,
    /// The skill that makes an agent one.
    pub security_skill: String,
}

impl Default for TeamPolicy {
    fn default() -> Self {
        Self { security_task_types: Vec::new(), security_skill: "security".to_owned() }
    }
}

/// What a team lacks: members that nobody knows or that are named twice, skills, a security agent where `security` says
/// why one is needed.
pub fn check(
    router: &Router,
    members: &[&str],
    required_skills: &[String],
    security: Option<&str>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if members.is_empty() {
        faults.push("the team has no members".to_owned());
    }
    let mut team: Vec<&Agent> = Vec::with_capacity(members.len());
    for (position, name) in members.iter().enumerate() {
        if members[..position].contains(name) {
            faults.push(format!("`{name}` is in the team twice"));
            continue;
        }
        match router.agent(name) {
            Some(agent) => team.push(agent),
            None => faults.push(format!("`{name}` is no agent")),
        }
    }
    let names: Vec<&str> = team.iter().map(|agent| agent.name.as_str()).collect();
    let names = told(&names, ", ");
    let lacks = |skill: &String| !team.iter().any(|agent| agent.skills.contains(skill));
    let missing: Vec<&String> = required_skills.iter().filter(|skill| lacks(skill)).collect();
    if !missing.is_empty() {
        faults.push(format!("nobody in the team [{names}] has the skills [{}]", told(&missing, ", ")));
    }
    let skill = &router.team_policy().security_skill;
    if let Some(why) = security
        && lacks(skill)
    {
        let need = format!("so that the team needs an agent with the skill `{skill}`");
        faults.push(format!("{why}, {need}; nobody in [{names}] has it"));
    }
    faults
}

/// What the agents of a plan lack. A plan in which nobody has anything to do lacks nothing.
pub(crate) fn of_plan(router: &Router, graph: &TaskGraph, assignments: &[Assignment]) -> Vec<String> {
    let mut members: Vec<&str> = Vec::new();
    for assignment in assignments {
        if !members.contains(&assignment.agent.as_str()) {
            members.push(&assignment.agent);
        }
    }
    if members.is_empty() {
        return Vec::new();
    }
    let critical = |task_type: &String| router.team_policy().security_task_types.contains(task_type);
    let demanding = graph.tasks().iter().find(|task| task.result.is_none() && critical(&task.task_type));
    let security = match demanding {
        Some(task) => Some(format!("task `{}` is of type `{}`", task.id, task.task_type)),
        None => graph.wants_security().then(|| "the work asks for security".to_owned()),
    };
    check(router, &members, graph.required_skills(), security.as_deref())
}

#[cfg(test)]
#[path = "team/tests.rs"]
mod tests;
