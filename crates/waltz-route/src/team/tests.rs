use super::*;
use crate::agent::Cost;

fn router() -> Router {
    let agent = |name: &str, task_type: &str, skills: &[&str]| Agent {
        name: name.to_owned(),
        task_types: vec![task_type.to_owned()],
        skills: skills.iter().map(|&skill| skill.to_owned()).collect(),
        cost: Cost::Medium,
        success_rate: 0.5,
        max_concurrent: 9,
    };
    let agents = vec![
        agent("books", "finance", &["sums"]),
        agent("guard", "security", &["audit"]),
        agent("pen", "text", &[]),
    ];
    let team =
        TeamPolicy { security_task_types: vec!["finance".to_owned()], security_skill: "audit".to_owned() };
    Router::new(agents, Vec::new(), team).unwrap()
}

#[test]
fn a_team_has_known_members_once_each_and_the_skills_it_needs() {
    let wanted = ["sums".to_owned(), "law".to_owned()];
    assert!(check(&router(), &["books", "guard"], &wanted[..1], Some("so it is")).is_empty());
    assert_eq!(
        check(&router(), &["books", "books", "ghost"], &wanted, Some("the work asks for security")),
        [
            "`books` is in the team twice",
            "`ghost` is no agent",
            "nobody in the team [books] has the skills [law]",
            "the work asks for security, so that the team needs an agent with the skill `audit`; nobody in [books] has it",
        ]
    );
    assert_eq!(check(&router(), &[], &[], None), ["the team has no members"]);
}

#[test]
fn a_plan_needs_a_security_agent_where_a_task_or_the_work_demands_one() {
    let faults = |json: &str| {
        let plan = router().plan(&TaskGraph::parse(json.as_bytes()).unwrap());
        assert_eq!(plan.complete, plan.team_faults.is_empty());
        plan.team_faults.join("\n")
    };
    let finance = r#"{"id":"pay","task_type":"finance"}"#;
    let security = r#"{"id":"look","task_type":"security"}"#;
    let alone = faults(&format!(r#"{{"tasks":[{finance}]}}"#));
    assert!(alone.starts_with("task `pay` is of type `finance`, so that the team needs"), "{alone}");
    assert_eq!(faults(&format!(r#"{{"tasks":[{finance},{security}]}}"#)), "");
    let text = r#"{"id":"write","task_type":"text"}"#;
    assert_eq!(faults(&format!(r#"{{"tasks":[{text}]}}"#)), "");
    assert!(
        faults(&format!(r#"{{"tasks":[{text}],"security":true}}"#)).starts_with("the work asks for security")
    );
    // What is done already demands nothing any more.
    let paid = r#"{"id":"pay","task_type":"finance","result":"paid"}"#;
    assert_eq!(faults(&format!(r#"{{"tasks":[{paid},{text}]}}"#)), "");
    assert_eq!(faults(r#"{"tasks":[]}"#), "");
}
