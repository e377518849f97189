use super::*;
use crate::agent::Cost;
use crate::graph::{Task, TaskGraph};

fn agent(name: &str, task_types: &[&str], success_rate: f64) -> Agent {
    Agent {
        name: name.to_owned(),
        task_types: task_types.iter().map(|&word| word.to_owned()).collect(),
        skills: vec![format!("{name}-skill")],
        cost: Cost::Medium,
        success_rate,
        max_concurrent: 2,
    }
}

fn rule(id: &str, agent: &str, priority: i64) -> Rule {
    Rule {
        id: id.to_owned(),
        task_type: "code".to_owned(),
        conditions: BTreeMap::new(),
        agent: agent.to_owned(),
        priority,
        explanation: format!("{agent} writes code"),
    }
}

fn router(agents: Vec<Agent>, rules: Vec<Rule>) -> Router {
    Router::new(agents, rules, TeamPolicy::default()).unwrap()
}

const NONE: &BTreeMap<String, Scalar> = &BTreeMap::new();

fn code() -> Ask<'static> {
    Ask { agent: None, task_type: "code", metadata: NONE, written: false, skills: &[] }
}

fn choose(router: &Router, ask: Ask<'_>, load: &mut Load) -> (String, String) {
    match router.choose(ask, load) {
        Ok(chosen) => (chosen.agent.to_owned(), chosen.reason),
        Err(reason) => ("-".to_owned(), reason),
    }
}

#[test]
fn the_rule_of_the_highest_priority_wins_and_full_agents_are_passed_over() {
    let agents = vec![agent("a", &[], 0.1), agent("b", &[], 0.2), agent("c", &["code"], 0.9)];
    let router = router(agents, vec![rule("low", "b", 5), rule("high", "a", 15), rule("later", "c", 15)]);
    let mut load = Load::default();
    let mut who = || choose(&router, code(), &mut load);
    assert_eq!(who(), ("a".to_owned(), "rule `high` (priority 15): a writes code".to_owned()));
    assert_eq!(who().0, "a");
    let (third, reason) = who();
    assert_eq!(third, "c");
    assert_eq!(
        reason,
        "rule `later` (priority 15): c writes code; rule `high` wants `a`, which is full (2 of 2)"
    );
    assert_eq!([who().0, who().0, who().0], ["c", "b", "b"].map(str::to_owned));
    let (none, reason) = who();
    assert_eq!(none, "-");
    assert!(reason.starts_with("no agent that does `code` can take it: rule `high` wants `a`"), "{reason}");
    assert!(reason.ends_with("`c` is full (2 of 2)"), "{reason}");
}

#[test]
fn all_conditions_of_a_rule_must_hold_and_a_missing_key_is_none_that_does() {
    let mut picky = rule("picky", "a", 10);
    picky.conditions = BTreeMap::from([
        ("language".to_owned(), Scalar::Text("rust".to_owned())),
        ("files".to_owned(), Scalar::Number(2.0)),
    ]);
    let router = router(vec![agent("a", &[], 0.5), agent("b", &["code"], 0.5)], vec![picky]);
    let facts = |text: &str| serde_json::from_str::<BTreeMap<String, Scalar>>(text).unwrap();
    for (metadata, expected) in [
        (r#"{"language":"rust","files":2,"more":true}"#, "a"),
        (r#"{"language":"rust","files":"2"}"#, "b"),
        (r#"{"language":"go","files":2}"#, "b"),
        (r#"{"language":"rust"}"#, "b"),
        ("{}", "b"),
    ] {
        let metadata = facts(metadata);
        let ask = Ask { metadata: &metadata, ..code() };
        assert_eq!(choose(&router, ask, &mut Load::default()).0, expected, "{metadata:?}");
        assert_eq!(router.choose_by_rule(ask).map(|chosen| chosen.agent), (expected == "a").then_some("a"));
    }
}

#[test]
fn where_metadata_is_text_a_number_or_a_boolean_is_what_it_reads_as() {
    let mut picky = rule("picky", "a", 10);
    picky.conditions = BTreeMap::from([
        ("files".to_owned(), Scalar::Number(2.0)),
        ("urgent".to_owned(), Scalar::Bool(true)),
        ("word".to_owned(), Scalar::Text("3".to_owned())),
    ]);
    let router = router(vec![agent("a", &[], 0.5)], vec![picky]);
    for (metadata, expected) in [
        (r#"{"files":"2","urgent":"true","word":"3"}"#, true),
        (r#"{"files":"2.0","urgent":true,"word":"3"}"#, true),
        (r#"{"files":"two","urgent":"true","word":"3"}"#, false),
        (r#"{"files":"2","urgent":"yes","word":"3"}"#, false),
        (r#"{"files":"true","urgent":"2","word":"3"}"#, false),
        (r#"{"files":"2","urgent":"true","word":3}"#, false),
    ] {
        let metadata: BTreeMap<String, Scalar> = serde_json::from_str(metadata).unwrap();
        let ask = Ask { metadata: &metadata, written: true, ..code() };
        assert_eq!(router.choose_by_rule(ask).is_some(), expected, "{metadata:?}");
        assert!(router.choose_by_rule(Ask { written: false, ..ask }).is_none(), "{metadata:?}");
    }
}

#[test]
fn without_a_rule_success_rate_decides_then_load_then_cost_then_order() {
    let mut cheap = agent("cheap", &["code"], 0.8);
    cheap.cost = Cost::Cheap;
    let agents = vec![
        agent("weak", &["code"], 0.7),
        agent("dear", &["code"], 0.8),
        cheap,
        agent("other", &["x"], 1.0),
    ];
    let router = router(agents, Vec::new());
    let mut load = Load::default();
    let order: Vec<String> = (0..7).map(|_| choose(&router, code(), &mut load).0).collect();
    assert_eq!(order, ["cheap", "dear", "cheap", "dear", "weak", "weak", "-"]);
    let (_, reason) = choose(&router, code(), &mut Load::default());
    assert_eq!(reason, "does `code`: success rate 0.80, load 0 of 2, best of 3");
    let (_, reason) = choose(&router, Ask { task_type: "art", ..code() }, &mut load);
    assert_eq!(reason, "no agent does `art`");
}

#[test]
fn whoever_lacks_a_skill_is_passed_over_rule_or_not() {
    let agents = vec![agent("a", &["code"], 0.9), agent("b", &["code"], 0.1)];
    let router = router(agents, vec![rule("r", "a", 1)]);
    let skills = ["b-skill".to_owned()];
    let (who, reason) = choose(&router, Ask { skills: &skills, ..code() }, &mut Load::default());
    assert_eq!(who, "b");
    assert!(reason.contains("rule `r` wants `a`, which lacks the skills [b-skill]"), "{reason}");
}

#[test]
fn a_reason_stays_short_however_many_were_passed_over() {
    let agents = (0..50).map(|number| agent(&format!("a{number}"), &["code"], 0.5)).collect();
    let router = router(agents, Vec::new());
    let skills: Vec<String> = (0..1000).map(|number| format!("skill{number}")).collect();
    let (_, reason) = choose(&router, Ask { skills: &skills, ..code() }, &mut Load::default());
    assert!(reason.ends_with("; 44 more") && reason.contains("skill5, 994 more]"), "{reason}");
    assert!(reason.len() < 1_000, "{reason}");
}

#[test]
fn a_named_agent_is_taken_or_nobody_is() {
    let router = router(vec![agent("a", &["code"], 0.9), agent("b", &[], 0.1)], vec![rule("r", "a", 1)]);
    let mut load = Load::default();
    let ask = Ask { agent: Some("b"), ..code() };
    assert_eq!(choose(&router, ask, &mut load), ("b".to_owned(), "the task names it".to_owned()));
    choose(&router, ask, &mut load);
    assert_eq!(choose(&router, ask, &mut load).1, "the task names `b`, which is full (2 of 2)");
    let stranger = Ask { agent: Some("nobody"), ..code() };
    assert_eq!(choose(&router, stranger, &mut load).1, "the task names `nobody`, which is no agent");
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let mut wrong = agent("a", &[], f64::NAN);
    wrong.max_concurrent = 0;
    let mut silent = rule("r", "nobody", 1);
    silent.explanation = " ".to_owned();
    let faults = Router::new(
        vec![agent("a", &[], 0.5), wrong],
        vec![rule("r", "a", 1), silent],
        TeamPolicy::default(),
    )
    .unwrap_err();
    let told: Vec<(Section, usize, &str)> =
        faults.iter().map(|fault| (fault.section, fault.index, fault.field)).collect();
    let (agents, rules) = (Section::Agents, Section::Rules);
    assert_eq!(
        told,
        [
            (agents, 1, "name"),
            (agents, 1, "success_rate"),
            (agents, 1, "max_concurrent"),
            (rules, 1, "id"),
            (rules, 1, "agent"),
            (rules, 1, "explanation"),
        ]
    );
    assert_eq!(faults[4].message, "must be one of [a, a], not `nobody`");
}

#[test]
fn the_count_begins_anew_with_each_level() {
    let router = router(vec![agent("a", &["code"], 0.5)], Vec::new());
    let task = |id: &str, before: &[&str]| Task {
        id: id.to_owned(),
        task_type: "code".to_owned(),
        depends_on: before.iter().map(|id| (*id).to_owned()).collect(),
        ..Task::default()
    };
    let tasks = vec![task("1", &[]), task("2", &[]), task("3", &["1"]), task("4", &["2"]), task("5", &[])];
    let plan = router.plan(&TaskGraph::new(tasks).unwrap());
    let done: Vec<&str> = plan.assignments.iter().map(|assignment| assignment.task.as_str()).collect();
    assert_eq!(done, ["1", "2", "3", "4"]);
    assert_eq!(plan.unassigned[0].task, "5");
    assert_eq!(plan.unassigned[0].reason, "no agent that does `code` can take it: `a` is full (2 of 2)");
    assert!(!plan.complete && plan.levels == 2);
}
