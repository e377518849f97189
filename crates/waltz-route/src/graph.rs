//! Tasks and what they wait for. A graph that was made can be planned: its names are sound and unique, every
//! dependency exists, and nothing waits for itself.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use waltz_exchange::json;

use crate::rule::Scalar;

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name, unique in its graph.
    pub id: String,
    /// The kind of task.
    pub task_type: String,
    /// What is to be done, in words; what its agent is told.
    #[serde(default)]
    pub description: String,
    /// Tasks that must be done before; their results are handed to this one.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// What rules can ask for.
    #[serde(default)]
    pub metadata: BTreeMap<String, Scalar>,
    /// What its agent must know.
    #[serde(default)]
    pub skills: Vec<String>,
    /// The agent that must do it, whatever rules say.
    #[serde(default)]
    pub agent: Option<String>,
    /// What came of it before: a task with a result is done, and its result is handed on.
    #[serde(default)]
    pub result: Option<String>,
}

/// Tasks in an order in which they can be done.
#[derive(Clone, Debug)]
pub struct TaskGraph {
    tasks: Vec<Task>,
    required_skills: Vec<String>,
    security: bool,
    positions: HashMap<String, usize>,
    levels: Vec<Vec<usize>>,
}

/// Why tasks cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Not a graph at all.
    #[error("the task graph cannot be read: {0}")]
    Unreadable(String),
    /// A name that cannot be printed, logged and pointed at safely.
    #[error("{what} must be 1 to 128 letters, digits or any of . _ : -, not {name:?}")]
    Name {
        /// What is named.
        what: String,
        /// The name.
        name: String,
    },
    /// A value of a task's metadata that no rule can ask for.
    #[error("`metadata.{key}` of {task} must be a text, a number, true or false")]
    Metadata {
        /// Which task.
        task: String,
        /// The key.
        key: String,
    },
    /// Two tasks of one name.
    #[error("there are two tasks `{0}`")]
    DuplicateTask(String),
    /// One dependency twice.
    #[error("task `{task}` depends on `{dependency}` twice")]
    DuplicateDependency {
        /// The task that waits.
        task: String,
        /// What it waits for.
        dependency: String,
    },
    /// A dependency that is no task.
    #[error("task `{task}` depends on `{dependency}`, which is no task of this graph")]
    UnknownDependency {
        /// The task that waits.
        task: String,
        /// What it waits for.
        dependency: String,
    },
    /// Tasks that wait for each other, in the order in which results would flow.
    #[error("the tasks wait for each other: {0}")]
    Cycle(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    tasks: Vec<Task>,
    #[serde(default)]
    required_skills: Vec<String>,
    #[serde(default)]
    security: bool,
}

impl TaskGraph {
    /// Reads a graph from JSON: `{"tasks": [...], "required_skills": [...], "security": true}`.
    pub fn parse(bytes: &[u8]) -> Result<Self, GraphError> {
        let object = json::parse_object(bytes).map_err(unreadable)?;
        Self::from_object(object)
    }

    /// Reads a graph from an object that was parsed already.
    pub fn from_object(object: Map<String, Value>) -> Result<Self, GraphError> {
        check_metadata(&object)?;
        let Written { tasks, required_skills, security } = json::read(object).map_err(unreadable)?;
        for skill in &required_skills {
            check_name(|| "a required skill".to_owned(), skill)?;
        }
        Ok(Self { required_skills, security, ..Self::new(tasks)? })
    }

    /// Checks tasks and puts them in order.
    pub fn new(tasks: Vec<Task>) -> Result<Self, GraphError> {
        let mut positions = HashMap::with_capacity(tasks.len());
        for (position, task) in tasks.iter().enumerate() {
            check_name(|| format!("the id of task {}", position + 1), &task.id)?;
            check_name(|| format!("`task_type` of task `{}`", task.id), &task.task_type)?;
            for skill in &task.skills {
                check_name(|| format!("a skill of task `{}`", task.id), skill)?;
            }
            if let Some(agent) = &task.agent {
                check_name(|| format!("`agent` of task `{}`", task.id), agent)?;
            }
            if positions.insert(task.id.clone(), position).is_some() {
                return Err(GraphError::DuplicateTask(task.id.clone()));
            }
        }
        let before = dependencies(&tasks, &positions)?;
        let levels = levels(&tasks, &before)?;
        Ok(Self { tasks, required_skills: Vec::new(), security: false, positions, levels })
    }

    /// All tasks, as they were written.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// A task by its name.
    pub fn task(&self, id: &str) -> Option<&Task> {
        self.positions.get(id).and_then(|position| self.tasks.get(*position))
    }

    /// Tasks that are to be done, level by level: each waits only for tasks of earlier levels and for such as are done.
    pub fn levels(&self) -> impl Iterator<Item = Vec<&Task>> {
        self.levels.iter().map(|level| level.iter().map(|position| &self.tasks[*position]).collect())
    }

    /// Skills that somebody in the team must have.
    pub fn required_skills(&self) -> &[String] {
        &self.required_skills
    }

    /// Whether the work as a whole asks for a security agent in the team.
    pub fn wants_security(&self) -> bool {
        self.security
    }
}

/// An error that is fit to be shown: parsers quote what they were given.
fn unreadable(error: impl std::fmt::Display) -> GraphError {
    GraphError::Unreadable(printable(&error.to_string(), 500))
}

/// Finds metadata that is neither text nor number nor boolean; a parser would not say where it stands.
fn check_metadata(object: &Map<String, Value>) -> Result<(), GraphError> {
    let tasks = object.get("tasks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (position, task) in tasks.iter().enumerate() {
        let metadata = task.get("metadata").and_then(Value::as_object);
        let odd = |(_, value): &(&String, &Value)| value.is_null() || value.is_array() || value.is_object();
        if let Some((key, _)) = metadata.into_iter().flatten().find(odd) {
            let id = task.get("id").and_then(Value::as_str);
            let task =
                id.map_or(format!("task {}", position + 1), |id| format!("task `{}`", printable(id, 128)));
            return Err(GraphError::Metadata { task, key: printable(key, 128) });
        }
    }
    Ok(())
}

/// The beginning of a text from outside, as an error can show it.
fn printable(text: &str, most: usize) -> String {
    text.chars().take(most).map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn check_name(what: impl FnOnce() -> String, name: &str) -> Result<(), GraphError> {
    if waltz_exchange::id::is_name(name) {
        return Ok(());
    }
    Err(GraphError::Name { what: what(), name: printable(name, 128) })
}

/// For each task the positions of those that it waits for.
fn dependencies(tasks: &[Task], positions: &HashMap<String, usize>) -> Result<Vec<Vec<usize>>, GraphError> {
    let mut before = Vec::with_capacity(tasks.len());
    for task in tasks {
        let mut seen = HashSet::with_capacity(task.depends_on.len());
        let mut found = Vec::with_capacity(task.depends_on.len());
        for dependency in &task.depends_on {
            let names = || (task.id.clone(), printable(dependency, 128));
            let Some(position) = positions.get(dependency) else {
                let (task, dependency) = names();
                return Err(GraphError::UnknownDependency { task, dependency });
            };
            if !seen.insert(*position) {
                let (task, dependency) = names();
                return Err(GraphError::DuplicateDependency { task, dependency });
            }
            found.push(*position);
        }
        before.push(found);
    }
    Ok(before)
}

/// Tasks by how many others must be done one after the other before them; in each level as they were written.
fn levels(tasks: &[Task], before: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, GraphError> {
    let mut after = vec![Vec::new(); tasks.len()];
    let mut waiting: Vec<usize> = before.iter().map(Vec::len).collect();
    for (position, dependencies) in before.iter().enumerate() {
        for dependency in dependencies {
            after[*dependency].push(position);
        }
    }
    let mut ready: Vec<usize> = (0..tasks.len()).filter(|position| waiting[*position] == 0).collect();
    let mut depth = vec![0; tasks.len()];
    let mut reached = 0;
    while let Some(position) = ready.pop() {
        reached += 1;
        // What is done already holds nobody up.
        let next = depth[position] + usize::from(tasks[position].result.is_none());
        for follower in &after[position] {
            if tasks[position].result.is_none() {
                depth[*follower] = depth[*follower].max(next);
            }
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    if reached < tasks.len() {
        return Err(GraphError::Cycle(cycle(tasks, before, &waiting)));
    }
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for (position, task) in tasks.iter().enumerate() {
        if task.result.is_none() {
            if levels.len() <= depth[position] {
                levels.resize(depth[position] + 1, Vec::new());
            }
            levels[depth[position]].push(position);
        }
    }
    Ok(levels)
}

/// The most tasks of a cycle that an error names.
const MOST_NAMED: usize = 40;

/// One cycle among tasks that wait for ever, as `a -> b -> a`: a's result goes to b, and b's to a.
fn cycle(tasks: &[Task], before: &[Vec<usize>], waiting: &[usize]) -> String {
    // From any task that waits for ever, one that it waits for does so too; such a walk must come back to itself.
    let stuck = |position: &usize| waiting[*position] > 0;
    let mut walk: Vec<usize> = Vec::new();
    let mut seen_at: HashMap<usize, usize> = HashMap::new();
    let mut next = (0..tasks.len()).find(stuck);
    while let Some(position) = next {
        if let Some(first) = seen_at.insert(position, walk.len()) {
            walk.drain(..first);
            break;
        }
        walk.push(position);
        next = before[position].iter().copied().find(stuck);
    }
    // The walk went against the flow of results.
    walk.reverse();
    let first = walk.iter().enumerate().min_by_key(|(_, position)| **position).map_or(0, |(index, _)| index);
    walk.rotate_left(first);
    walk.extend(walk.first().copied());
    let mut names: Vec<String> = walk.iter().map(|position| tasks[*position].id.clone()).collect();
    if names.len() > MOST_NAMED {
        // Enough to find it; an error is read by people.
        let rest = names.split_off(MOST_NAMED - 2);
        names.push(format!("({} more)", rest.len() - 1));
        names.extend(rest.last().cloned());
    }
    names.join(" -> ")
}

#[cfg(test)]
#[path = "graph/tests.rs"]
mod tests;
