//! Chooses the agent of one task: the one that was named, else by rule, else by capability. Whoever is full or does not
//! know what is needed is passed over, and the reason says so.

use std::collections::{BTreeMap, HashMap};

use crate::agent::Agent;
use crate::rule::{Rule, Scalar};
use crate::team::TeamPolicy;

/// Agents and rules that fit together.
#[derive(Clone, Debug, Default)]
pub struct Router {
    agents: Vec<Agent>,
    rules: Vec<Rule>,
    team: TeamPolicy,
    positions: HashMap<String, usize>,
    /// Positions of rules by task type, highest priority first.
    rules_of: HashMap<String, Vec<usize>>,
    /// Positions of agents by task type.
    agents_of: HashMap<String, Vec<usize>>,
}

/// What is wrong with an agent or a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which list it is in.
    pub section: Section,
    /// Its place there.
    pub index: usize,
    /// Its field.
    pub field: &'static str,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// A list that a router is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The agents.
    Agents,
    /// The rules.
    Rules,
}

/// A task that wants an agent.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The agent that must do it.
    pub agent: Option<&'a str>,
    /// The kind of task.
    pub task_type: &'a str,
    /// What rules can ask for.
    pub metadata: &'a BTreeMap<String, Scalar>,
    /// The metadata can hold nothing but texts, as that of chat requests: numbers and booleans are written as such.
    pub written: bool,
    /// What the agent must know.
    pub skills: &'a [String],
}

/// An agent and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The rule that chose it, if one did.
    pub rule: Option<&'a str>,
    /// Why, in words.
    pub reason: String,
}

/// How many tasks each agent has at present.
#[derive(Clone, Debug, Default)]
pub struct Load {
    taken: Vec<usize>,
}

impl Router {
    /// Checks agents and rules, and names everything that is wrong with them.
    pub fn new(agents: Vec<Agent>, rules: Vec<Rule>, team: TeamPolicy) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut positions = HashMap::new();
        for (index, agent) in agents.iter().enumerate() {
            let mut fault = |field, message| {
                faults.push(Fault { section: Section::Agents, index, field, message });
            };
            if positions.insert(agent.name.clone(), index).is_some() {
                fault("name", format!("`{}` is taken already", agent.name));
            }
            if !(0.0..=1.0).contains(&agent.success_rate) {
                fault("success_rate", "must be a number from 0 to 1".to_owned());
            }
            if agent.max_concurrent == 0 {
                fault("max_concurrent", "must be at least 1".to_owned());
            }
        }
        for (index, rule) in rules.iter().enumerate() {
            let mut fault = |field, message| {
                faults.push(Fault { section: Section::Rules, index, field, message });
            };
            if rules[..index].iter().any(|earlier| earlier.id == rule.id) {
                fault("id", format!("`{}` is taken already", rule.id));
            }
            if !positions.contains_key(&rule.agent) {
                let known: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
                fault("agent", format!("must be one of [{}], not `{}`", known.join(", "), rule.agent));
            }
            if rule.explanation.trim().is_empty() || rule.explanation.contains(char::is_control) {
                fault(
                    "explanation",
                    "must say why, in one line: it is the reason that plans give".to_owned(),
                );
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut rules_of: HashMap<String, Vec<usize>> = HashMap::new();
        for (position, rule) in rules.iter().enumerate() {
            rules_of.entry(rule.task_type.clone()).or_default().push(position);
        }
        for found in rules_of.values_mut() {
            // Stable, so that of equals the one that was written first goes first.
            found.sort_by_key(|position| std::cmp::Reverse(rules[*position].priority));
        }
        let mut agents_of: HashMap<String, Vec<usize>> = HashMap::new();
        for (position, agent) in agents.iter().enumerate() {
            for task_type in &agent.task_types {
                let found = agents_of.entry(task_type.clone()).or_default();
                if !found.contains(&position) {
                    found.push(position);
                }
            }
        }
        Ok(Self { agents, rules, team, positions, rules_of, agents_of })
    }

    /// An agent by its name.
    pub fn agent(&self, name: &str) -> Option<&Agent> {
        self.positions.get(name).and_then(|position| self.agents.get(*position))
    }

    /// What a team must have.
    pub fn team_policy(&self) -> &TeamPolicy {
        &self.team
    }

    /// The agent of a task, given what agents have to do already; or why there is none. Whoever is chosen has one task
    /// more from then on.
    pub fn choose(&self, ask: Ask<'_>, load: &mut Load) -> Result<Chosen<'_>, String> {
        let mut passed: Vec<String> = Vec::new();
        let found = match ask.agent {
            Some(name) => self.named(name, ask, load)?,
            None => match self.by_rule(ask, load, &mut passed) {
                Some(found) => found,
                None => self.by_capability(ask, load, &mut passed)?,
            },
        };
        let (position, rule, mut reason) = found;
        if !passed.is_empty() {
            reason = format!("{reason}; {}", told(&passed, "; "));
        }
        load.add(position);
        let rule = rule.map(|rule| self.rules[rule].id.as_str());
        Ok(Chosen { agent: &self.agents[position].name, rule, reason })
    }

    /// The agent that a rule prefers for a request on its own, or `None`.
    pub fn choose_by_rule(&self, ask: Ask<'_>) -> Option<Chosen<'_>> {
        let (position, rule, reason) = self.by_rule(ask, &Load::default(), &mut Vec::new())?;
        let rule = rule.map(|rule| self.rules[rule].id.as_str());
        Some(Chosen { agent: &self.agents[position].name, rule, reason })
    }

    fn named(&self, name: &str, ask: Ask<'_>, load: &Load) -> Result<Found, String> {
        let Some(position) = self.positions.get(name).copied() else {
            return Err(format!("the task names `{name}`, which is no agent"));
        };
        match self.obstacle(position, ask, load) {
            None => Ok((position, None, "the task names it".to_owned())),
            Some(obstacle) => Err(format!("the task names `{name}`, which {obstacle}")),
        }
    }

    fn by_rule(&self, ask: Ask<'_>, load: &Load, passed: &mut Vec<String>) -> Option<Found> {
        for position in self.rules_of.get(ask.task_type)? {
            let rule = &self.rules[*position];
            if !rule.matches(ask.metadata, ask.written) {
                continue;
            }
            let agent = self.positions.get(&rule.agent).copied()?;
            match self.obstacle(agent, ask, load) {
                None => {
                    let Rule { id, priority, explanation, .. } = rule;
                    let reason = format!("rule `{id}` (priority {priority}): {explanation}");
                    return Some((agent, Some(*position), reason));
                }
                Some(obstacle) => {
                    passed.push(format!("rule `{}` wants `{}`, which {obstacle}", rule.id, rule.agent));
                }
            }
        }
        None
    }

    /// The best of those who do such tasks: by success rate, then by load, then by cost, then as they were written.
    fn by_capability(&self, ask: Ask<'_>, load: &Load, passed: &mut Vec<String>) -> Result<Found, String> {
        let able = self.agents_of.get(ask.task_type).map_or(&[][..], Vec::as_slice);
        let mut best: Option<usize> = None;
        let mut free = 0;
        for position in able.iter().copied() {
            if let Some(obstacle) = self.obstacle(position, ask, load) {
                passed.push(format!("`{}` {obstacle}", self.agents[position].name));
                continue;
            }
            free += 1;
            if best.is_none_or(|best| self.is_better(position, best, load)) {
                best = Some(position);
            }
        }
        let Some(best) = best else {
            let mut reason = match able.len() {
                0 => format!("no agent does `{}`", ask.task_type),
                _ => format!("no agent that does `{}` can take it", ask.task_type),
            };
            if !passed.is_empty() {
                reason = format!("{reason}: {}", told(passed, "; "));
            }
            return Err(reason);
        };
        let Agent { success_rate, max_concurrent, .. } = &self.agents[best];
        let reason = format!(
            "does `{}`: success rate {success_rate:.2}, load {} of {max_concurrent}, best of {free}",
            ask.task_type,
            load.of(best)
        );
        Ok((best, None, reason))
    }

    fn is_better(&self, left: usize, right: usize, load: &Load) -> bool {
        let (one, other) = (&self.agents[left], &self.agents[right]);
        let by_rate = one.success_rate.total_cmp(&other.success_rate).reverse();
        by_rate.then(load.of(left).cmp(&load.of(right))).then(one.cost.cmp(&other.cost)).is_lt()
    }

    /// Why an agent cannot take a task.
    fn obstacle(&self, position: usize, ask: Ask<'_>, load: &Load) -> Option<String> {
        let agent = &self.agents[position];
        let missing: Vec<&str> =
            ask.skills.iter().filter(|skill| !agent.skills.contains(skill)).map(String::as_str).collect();
        if !missing.is_empty() {
            return Some(format!("lacks the skills [{}]", told(&missing, ", ")));
        }
        let (taken, most) = (load.of(position), agent.max_concurrent);
        (taken >= most).then(|| format!("is full ({taken} of {most})"))
    }
}

/// The most of a list that a reason tells.
const MOST_TOLD: usize = 6;

/// The beginning of a list in words, and how much more there is.
pub(crate) fn told<T: AsRef<str>>(list: &[T], between: &str) -> String {
    let mut words: Vec<&str> = list.iter().take(MOST_TOLD).map(AsRef::as_ref).collect();
    let more = format!("{} more", list.len().saturating_sub(MOST_TOLD));
    if list.len() > MOST_TOLD {
        words.push(&more);
    }
    words.join(between)
}

/// An agent's position, that of the rule that chose it, and the reason.
type Found = (usize, Option<usize>, String);

impl Load {
    fn of(&self, position: usize) -> usize {
        self.taken.get(position).copied().unwrap_or(0)
    }

    fn add(&mut self, position: usize) {
        if self.taken.len() <= position {
            self.taken.resize(position + 1, 0);
        }
        self.taken[position] += 1;
    }
}

#[cfg(test)]
#[path = "router/tests.rs"]
mod tests;
