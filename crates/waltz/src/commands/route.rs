//! `waltz route`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use waltz_route::{Plan, TaskGraph};

use super::{ConfigOptions, Exit, configured_part, note, print};

/// Plan a task graph: who does each task, and why.
///
/// Reads {"tasks": [{"id", "task_type", "depends_on", ...}]} from FILE and prints level, task, agent and reason of each.
/// Agents and rules come from the configuration. Nothing is asked of anybody.
#[derive(clap::Args)]
pub(crate) struct RouteFile {
    /// The task graph, JSON; standard input when `-`.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: ConfigOptions,
}

impl RouteFile {
    pub(crate) fn run(self) -> Result<(), Exit> {
        let router = configured_part(&self.options.sources(), |check, loaded| check.router(&loaded.raw))?;
        let (name, bytes) = read(&self.file)?;
        let graph = TaskGraph::parse(&bytes)
            .map_err(|error| Exit { code: 2, message: format!("`{name}`: {error}") })?;
        let plan = router.plan(&graph);
        if self.json {
            return print(&format!("{:#}", json!(plan)));
        }
        for line in table(&plan) {
            print(&line)?;
        }
        for task in &plan.completed {
            note(&format!("done before: {task}"));
        }
        for fault in &plan.team_faults {
            note(&format!("warning: {fault}"));
        }
        if !plan.unassigned.is_empty() {
            note(&format!("warning: tasks without an agent: {}", plan.unassigned.len()));
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<(String, Vec<u8>), Exit> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes)
            .context("cannot read standard input")?;
        return Ok(("standard input".to_owned(), bytes));
    }
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read `{name}`"))?;
    Ok((name, bytes))
}

/// One line a task, level by level; a task without an agent has `-`.
fn table(plan: &Plan) -> Vec<String> {
    let mut rows: Vec<[&str; 3]> = Vec::new();
    let mut levels: Vec<usize> = Vec::new();
    for entry in &plan.assignments {
        rows.push([&entry.task, &entry.agent, &entry.reason]);
        levels.push(entry.level);
    }
    for entry in &plan.unassigned {
        rows.push([&entry.task, "-", &entry.reason]);
        levels.push(entry.level);
    }
    let width = |column: usize, title: &str| {
        rows.iter().map(|row| row[column].len()).chain([title.len()]).max().unwrap_or(0)
    };
    let (task_width, agent_width) = (width(0, "task"), width(1, "agent"));
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|row| levels[*row]);
    let mut lines = vec![format!("level  {:task_width$}  {:agent_width$}  reason", "task", "agent")];
    for row in order {
        let [task, agent, reason] = rows[row];
        lines.push(format!("{:>5}  {task:task_width$}  {agent:agent_width$}  {reason}", levels[row]));
    }
    lines
}
