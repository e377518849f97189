use super::*;

fn task(id: &str, depends_on: &[&str]) -> Task {
    Task {
        id: id.to_owned(),
        task_type: "code".to_owned(),
        depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
        ..Task::default()
    }
}

fn names(graph: &TaskGraph) -> Vec<Vec<&str>> {
    graph.levels().map(|level| level.iter().map(|task| task.id.as_str()).collect()).collect()
}

#[test]
fn tasks_stand_one_level_after_the_last_that_they_wait_for() {
    let tasks =
        vec![task("d", &["b", "c"]), task("a", &[]), task("b", &["a"]), task("c", &[]), task("e", &["a"])];
    let graph = TaskGraph::new(tasks).unwrap();
    assert_eq!(names(&graph), [vec!["a", "c"], vec!["b", "e"], vec!["d"]]);
}

#[test]
fn what_is_done_holds_nobody_up_and_is_not_planned_again() {
    let mut done = task("a", &["z"]);
    done.result = Some("here".to_owned());
    let graph =
        TaskGraph::new(vec![task("z", &[]), done, task("b", &["a"]), task("c", &["b", "z"])]).unwrap();
    assert_eq!(names(&graph), [vec!["z", "b"], vec!["c"]]);
}

#[test]
fn a_cycle_is_named_in_the_direction_of_results_from_the_task_that_was_written_first() {
    let cycle = |tasks: Vec<Task>| TaskGraph::new(tasks).unwrap_err();
    let two = vec![task("a", &["b"]), task("b", &["a"])];
    assert_eq!(cycle(two), GraphError::Cycle("a -> b -> a".to_owned()));
    let own = vec![task("x", &[]), task("a", &["x", "a"])];
    assert_eq!(cycle(own), GraphError::Cycle("a -> a".to_owned()));
    // A tail behind the cycle and a head before it are not part of it.
    let long = vec![
        task("tail", &["c"]),
        task("head", &[]),
        task("b", &["a", "head"]),
        task("c", &["b"]),
        task("a", &["c"]),
    ];
    assert_eq!(cycle(long), GraphError::Cycle("b -> c -> a -> b".to_owned()));
    assert_eq!(
        cycle(vec![task("a", &["b"]), task("b", &["a"])]).to_string(),
        "the tasks wait for each other: a -> b -> a"
    );
}

#[test]
fn names_must_be_sound_and_unique_and_dependencies_must_exist() {
    let error = |tasks: Vec<Task>| TaskGraph::new(tasks).unwrap_err().to_string();
    assert_eq!(error(vec![task("a", &[]), task("a", &[])]), "there are two tasks `a`");
    assert_eq!(error(vec![task("a", &["b"])]), "task `a` depends on `b`, which is no task of this graph");
    assert_eq!(error(vec![task("b", &[]), task("a", &["b", "b"])]), "task `a` depends on `b` twice");
    for bad in ["", "a b", "a\u{1b}[2J", "é", &"x".repeat(129)] {
        let told = error(vec![task("ok", &[]), task(bad, &[])]);
        assert!(told.starts_with("the id of task 2 must be") && !told.contains('\u{1b}'), "{told}");
    }
    let mut typeless = task("a", &[]);
    typeless.task_type = String::new();
    assert!(error(vec![typeless]).starts_with("`task_type` of task `a` must be"));
    let skilled = Task { skills: vec!["\u{7}".to_owned()], ..task("a", &[]) };
    assert!(error(vec![skilled]).starts_with("a skill of task `a` must be"));
    let named = Task { agent: Some(String::new()), ..task("a", &[]) };
    assert!(error(vec![named]).starts_with("`agent` of task `a` must be"));
    let odd = TaskGraph::parse(br#"{"tasks":[],"required_skills":["two words"]}"#).unwrap_err();
    assert!(odd.to_string().starts_with("a required skill must be"), "{odd}");
}

#[test]
fn json_is_read_strictly() {
    let good = br#"{"tasks":[{"id":"a","task_type":"t","metadata":{"n":1,"on":true,"s":"x"}}],"security":true,"required_skills":["sql"]}"#;
    let graph = TaskGraph::parse(good).unwrap();
    assert!(graph.wants_security() && graph.required_skills() == ["sql"]);
    assert_eq!(graph.task("a").unwrap().metadata["n"], Scalar::Number(1.0));
    assert!(graph.task("b").is_none());
    for bad in [
        &b"[]"[..],
        b"{}",
        br#"{"tasks":[{"id":"a"}]}"#,
        br#"{"tasks":[{"id":"a","task_type":"t","colour":1}]}"#,
        br#"{"tasks":[],"tasks":[]}"#,
    ] {
        let error = TaskGraph::parse(bad).unwrap_err();
        assert!(matches!(error, GraphError::Unreadable(_)), "{error}");
    }
    for (metadata, key) in
        [(r#"{"n":1,"a":null}"#, "a"), (r#"{"deep":{}}"#, "deep"), (r#"{"list":[]}"#, "list")]
    {
        let whole =
            format!(r#"{{"tasks":[{{"id":"x"}},{{"id":"y","task_type":"t","metadata":{metadata}}}]}}"#);
        let error = TaskGraph::parse(whole.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, format!("`metadata.{key}` of task `y` must be a text, a number, true or false"));
    }
    let nameless = br#"{"tasks":[{"metadata":{"a\u001b":null}}]}"#;
    let error = TaskGraph::parse(nameless).unwrap_err().to_string();
    assert!(error.starts_with("`metadata.a\u{fffd}` of task 1 must"), "{error}");
}

#[test]
fn a_chain_of_a_hundred_thousand_tasks_needs_no_deep_stack() {
    let count = 100_000;
    let id = |number: usize| format!("t{number}");
    let chain = |last: &str| -> Vec<Task> {
        let first = task("t0", &[last]);
        let rest = (1..count).map(|number| task(&id(number), &[&id(number - 1)]));
        std::iter::once(first).chain(rest).collect()
    };
    let error = TaskGraph::new(chain(&id(count - 1))).unwrap_err().to_string();
    assert!(error.contains(": t0 -> t1 -> ") && error.ends_with(" -> t37 -> (99962 more) -> t0"), "{error}");
    let mut tasks = chain("t0");
    tasks[0].depends_on.clear();
    assert_eq!(TaskGraph::new(tasks).unwrap().levels().count(), count);
}
