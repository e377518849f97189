//! Laws of plans, over random agents, rules and graphs.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use waltz_route::{Agent, Cost, GraphError, Plan, Router, Rule, Scalar, Task, TaskGraph, TeamPolicy};

fn words() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned)
}

fn agents() -> impl Strategy<Value = Vec<Agent>> {
    let one = (
        prop::collection::vec(words(), 0..3),
        prop::collection::vec(words(), 0..3),
        0..3_usize,
        0..3_u8,
        1..4_usize,
    );
    prop::collection::vec(one, 0..6).prop_map(|rows| {
        let mut agents = Vec::new();
        for (task_types, skills, cost, rate, max_concurrent) in rows {
            agents.push(Agent {
                name: format!("agent{}", agents.len()),
                task_types,
                skills,
                cost: [Cost::Cheap, Cost::Medium, Cost::Expensive][cost],
                success_rate: f64::from(rate) / 2.0,
                max_concurrent,
            });
        }
        agents
    })
}

/// Tasks that wait only for earlier ones, written down in any order.
fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let one = (
        words(),
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        words(),
        any::<Option<bool>>(),
        0..5_u8,
    );
    prop::collection::vec(one, 0..30)
        .prop_map(|rows| {
            let mut tasks: Vec<Task> = Vec::new();
            for (index, (task_type, before, fact, skilled, kind)) in rows.into_iter().enumerate() {
                let mut depends_on: Vec<String> = if index == 0 {
                    Vec::new()
                } else {
                    before.iter().map(|chosen| format!("t{}", chosen.index(index))).collect()
                };
                depends_on.sort();
                depends_on.dedup();
                tasks.push(Task {
                    id: format!("t{index}"),
                    task_type,
                    depends_on,
                    metadata: BTreeMap::from([("fact".to_owned(), Scalar::Text(fact.clone()))]),
                    skills: if skilled == Some(true) { vec![fact] } else { Vec::new() },
                    agent: (kind == 0).then(|| "agent1".to_owned()),
                    result: (kind == 1).then(|| "done".to_owned()),
                    ..Task::default()
                });
            }
            tasks
        })
        .prop_shuffle()
}

fn rules(agents: &[Agent], drawn: &[(String, String, usize, i64)]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (index, (task_type, fact, agent, priority)) in drawn.iter().enumerate() {
        if let Some(agent) = agents.get(*agent) {
            let condition = ("fact".to_owned(), Scalar::Text(fact.clone()));
            rules.push(Rule {
                id: format!("rule{index}"),
                task_type: task_type.clone(),
                conditions: if index % 2 == 0 { BTreeMap::new() } else { BTreeMap::from([condition]) },
                agent: agent.name.clone(),
                priority: *priority,
                explanation: "so it is".to_owned(),
            });
        }
    }
    rules
}

fn level_of(plan: &Plan) -> HashMap<&str, usize> {
    let assigned = plan.assignments.iter().map(|entry| (entry.task.as_str(), entry.level));
    assigned.chain(plan.unassigned.iter().map(|entry| (entry.task.as_str(), entry.level))).collect()
}

proptest! {
    #[test]
    fn every_task_has_its_place_and_its_reason(
        agents in agents(),
        drawn in prop::collection::vec((words(), words(), 0..6_usize, 0..3_i64), 0..6),
        tasks in tasks(),
    ) {
        let rules = rules(&agents, &drawn);
        let router = Router::new(agents.clone(), rules.clone(), TeamPolicy::default()).unwrap();
        let graph = TaskGraph::new(tasks.clone()).unwrap();
        let plan = router.plan(&graph);
        prop_assert_eq!(&plan, &router.plan(&graph), "the same plan every time");

        // Once each: assigned, unassigned or done before.
        let mut seen: Vec<&str> = plan.assignments.iter().map(|entry| entry.task.as_str()).collect();
        seen.extend(plan.unassigned.iter().map(|entry| entry.task.as_str()));
        seen.extend(plan.completed.iter().map(String::as_str));
        seen.sort_unstable();
        let mut all: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        all.sort_unstable();
        prop_assert_eq!(seen, all);
        prop_assert!(plan.assignments.iter().all(|entry| !entry.reason.is_empty()));
        prop_assert!(plan.unassigned.iter().all(|entry| !entry.reason.is_empty()));

        // Along every edge between tasks that are to be done, the level rises; each waits no longer than it must.
        let levels = level_of(&plan);
        for task in &tasks {
            let Some(level) = levels.get(task.id.as_str()) else { continue };
            let before = task.depends_on.iter().filter_map(|id| levels.get(id.as_str()));
            let due = before.map(|before| before + 1).max().unwrap_or(0);
            prop_assert_eq!(*level, due, "{}", &task.id);
        }
        prop_assert_eq!(plan.levels, levels.values().max().map_or(0, |last| last + 1));
        prop_assert!(plan.assignments.is_sorted_by_key(|entry| entry.level));

        // Nobody has more of one level than it takes, and everybody has the skills and a right to the task.
        let mut load: HashMap<(usize, &str), usize> = HashMap::new();
        for entry in &plan.assignments {
            *load.entry((entry.level, entry.agent.as_str())).or_default() += 1;
            let task = graph.task(&entry.task).unwrap();
            let agent = router.agent(&entry.agent).unwrap();
            prop_assert!(task.skills.iter().all(|skill| agent.skills.contains(skill)));
            let by_rule = entry.rule.as_ref().map(|id| rules.iter().find(|rule| rule.id == *id).unwrap());
            match (&task.agent, by_rule) {
                (Some(named), _) => prop_assert_eq!(named, &entry.agent),
                (None, Some(rule)) => {
                    prop_assert!(rule.agent == entry.agent && rule.task_type == task.task_type);
                    prop_assert!(rule.matches(&task.metadata, false));
                }
                (None, None) => prop_assert!(agent.task_types.contains(&task.task_type)),
            }
        }
        for ((_, name), count) in &load {
            prop_assert!(*count <= router.agent(name).unwrap().max_concurrent);
        }

        // Nobody stays without an agent while one could take the task.
        for entry in &plan.unassigned {
            let task = graph.task(&entry.task).unwrap();
            let spare = |agent: &&Agent| {
                let taken = load.get(&(entry.level, agent.name.as_str())).copied().unwrap_or(0);
                taken < agent.max_concurrent && task.skills.iter().all(|skill| agent.skills.contains(skill))
            };
            let able = |agent: &&Agent| match &task.agent {
                Some(named) => agent.name == *named,
                None => agent.task_types.contains(&task.task_type),
            };
            prop_assert!(agents.iter().filter(able).find(spare).is_none(), "{}", &entry.reason);
        }
    }

    #[test]
    fn a_cycle_is_always_found_and_is_one(tasks in tasks(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        prop_assume!(!tasks.is_empty());
        let mut tasks = tasks;
        let (from, to) = (from.index(tasks.len()), to.index(tasks.len()));
        let dependency = tasks[to].id.clone();
        if !tasks[from].depends_on.contains(&dependency) {
            tasks[from].depends_on.push(dependency);
        }
        match TaskGraph::new(tasks.clone()) {
            Ok(_) => prop_assert!(from != to),
            Err(GraphError::Cycle(text)) => {
                let names: Vec<&str> = text.split(" -> ").collect();
                prop_assert!(names.len() >= 2 && names.first() == names.last(), "{text}");
                for pair in names.windows(2) {
                    let after = tasks.iter().find(|task| task.id == pair[1]).unwrap();
                    prop_assert!(after.depends_on.iter().any(|id| id == pair[0]), "{text}");
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
}
