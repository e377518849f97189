//! Laws of task graphs that anybody sends, and of the plans that are made of them.

use std::collections::BTreeMap;

use waltz_route::{Agent, Cost, Router, Rule, Scalar, TaskGraph, TeamPolicy};

/// Any bytes are a graph that can be planned, or an error that can be shown to people.
pub fn law(data: &[u8]) {
    let graph = match TaskGraph::parse(data) {
        Ok(graph) => graph,
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && told.len() < 8_000, "{}", told.len());
            assert!(!told.contains(char::is_control), "{told:?}");
            return;
        }
    };
    let Ok(router) = Router::new(agents(), rules(), TeamPolicy::default()) else {
        unreachable!("the law's own agents are sound")
    };
    let plan = router.plan(&graph);
    assert_eq!(plan, router.plan(&graph), "a plan is a function of its graph");
    let mut level_of: BTreeMap<&str, usize> = BTreeMap::new();
    let assigned = plan.assignments.iter().map(|entry| (&entry.task, entry.level, &entry.reason));
    let unassigned = plan.unassigned.iter().map(|entry| (&entry.task, entry.level, &entry.reason));
    for (task, level, reason) in assigned.chain(unassigned) {
        assert!(level < plan.levels && !reason.is_empty(), "{task}");
        assert!(level_of.insert(task, level).is_none(), "{task} twice");
    }
    assert_eq!(level_of.len() + plan.completed.len(), graph.tasks().len());
    for task in graph.tasks() {
        let Some(level) = level_of.get(task.id.as_str()) else { continue };
        let before = task.depends_on.iter().filter_map(|id| level_of.get(id.as_str()));
        assert!(before.into_iter().all(|before| before < level), "{}", task.id);
    }
}

fn agents() -> Vec<Agent> {
    let agent = |name: &str, task_type: &str, max_concurrent| Agent {
        name: name.to_owned(),
        task_types: vec![task_type.to_owned()],
        skills: vec!["sql".to_owned()],
        cost: Cost::Medium,
        success_rate: 0.5,
        max_concurrent,
    };
    vec![agent("one", "code", 1), agent("two", "code", 2), agent("three", "test", 1)]
}

fn rules() -> Vec<Rule> {
    vec![Rule {
        id: "large".to_owned(),
        task_type: "code".to_owned(),
        conditions: BTreeMap::from([("size".to_owned(), Scalar::Number(3.0))]),
        agent: "three".to_owned(),
        priority: 1,
        explanation: "so it is".to_owned(),
    }]
}
