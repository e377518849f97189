//! Checks the sections that say who does which task, and makes the router of them.

use std::time::Duration;

use waltz_gateway::settings::RunLimits;
use waltz_route::{Agent, Cost, Router, Rule, Scalar, Section, TeamPolicy};

use super::Check;
use crate::config::raw::{self, RawConfig};

impl Check<'_> {
    /// The router, or every mistake in agents, rules and teams.
    pub(crate) fn router(&mut self, raw: &RawConfig) -> Option<Router> {
        for (index, agent) in raw.agents.iter().enumerate() {
            self.agent_words(index, agent);
        }
        for (index, rule) in raw.rules.iter().enumerate() {
            self.rule_words(index, rule);
        }
        self.words("routing.security_task_types", &raw.routing.security_task_types);
        self.word("routing.security_skill", &raw.routing.security_skill);
        let team = TeamPolicy {
            security_task_types: raw.routing.security_task_types.clone(),
            security_skill: raw.routing.security_skill.clone(),
        };
        let agents = raw.agents.iter().map(agent).collect();
        let rules = raw.rules.iter().map(rule).collect();
        match Router::new(agents, rules, team) {
            Ok(router) => Some(router),
            Err(faults) => {
                for fault in faults {
                    let section = match fault.section {
                        Section::Agents => "agents",
                        Section::Rules => "rules",
                    };
                    self.mistake(format!("{section}[{}].{}", fault.index, fault.field), fault.message);
                }
                None
            }
        }
    }

    /// The limits of runs.
    pub(super) fn run_limits(&mut self, raw: &raw::Routing) -> RunLimits {
        self.within("routing.max_tasks", u64::from(raw.max_tasks), 1, 10_000);
        self.within("routing.max_parallel", u64::from(raw.max_parallel), 1, 1_000);
        self.within("routing.max_planned_tasks", u64::from(raw.max_planned_tasks), 1, 100_000);
        self.within("routing.max_result_bytes", raw.max_result_bytes, 1024, 1 << 30);
        self.within("routing.run_timeout_ms", raw.run_timeout_ms, 1, 86_400_000);
        RunLimits {
            tasks: raw.max_tasks as usize,
            parallel: raw.max_parallel as usize,
            planned_tasks: raw.max_planned_tasks as usize,
            result_bytes: usize::try_from(raw.max_result_bytes).unwrap_or(usize::MAX),
            time: Duration::from_millis(raw.run_timeout_ms),
        }
    }

    fn agent_words(&mut self, index: usize, agent: &raw::Agent) {
        let at = |field: &str| format!("agents[{index}].{field}");
        self.word(&at("name"), &agent.name);
        self.words(&at("task_types"), &agent.task_types);
        self.words(&at("skills"), &agent.skills);
        if let Some(task_type) = &agent.task_type {
            self.mistake(at("task_type"), format!("is now `task_types = [\"{task_type}\"]`, a list"));
        }
    }

    fn rule_words(&mut self, index: usize, rule: &raw::Rule) {
        let at = |field: &str| format!("rules[{index}].{field}");
        self.word(&at("id"), &rule.id);
        self.word(&at("task_type"), &rule.task_type);
        for (name, value) in &rule.conditions {
            if matches!(value, raw::Scalar::Number(number) if !number.is_finite()) {
                self.mistake(format!("{}.{name}", at("conditions")), "must be a finite number");
            }
        }
    }

    fn words(&mut self, key: &str, words: &[String]) {
        for (index, word) in words.iter().enumerate() {
            self.word(&format!("{key}[{index}]"), word);
        }
    }
}

fn agent(raw: &raw::Agent) -> Agent {
    Agent {
        name: raw.name.clone(),
        task_types: raw.task_types.clone(),
        skills: raw.skills.clone(),
        cost: match raw.cost {
            raw::Cost::Cheap => Cost::Cheap,
            raw::Cost::Medium => Cost::Medium,
            raw::Cost::Expensive => Cost::Expensive,
        },
        success_rate: raw.success_rate,
        max_concurrent: raw.max_concurrent as usize,
    }
}

fn rule(raw: &raw::Rule) -> Rule {
    let scalar = |value: &raw::Scalar| match value {
        raw::Scalar::Bool(value) => Scalar::Bool(*value),
        raw::Scalar::Number(value) => Scalar::Number(*value),
        raw::Scalar::Text(value) => Scalar::Text(value.clone()),
    };
    Rule {
        id: raw.id.clone(),
        task_type: raw.task_type.clone(),
        conditions: raw.conditions.iter().map(|(name, value)| (name.clone(), scalar(value))).collect(),
        agent: raw.agent.clone(),
        priority: raw.priority,
        explanation: raw.explanation.clone(),
    }
}
