use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use waltz_exchange::Depth;
use waltz_exchange::openai::{Answer, ChatRequest};
use waltz_route::{Agent, Cost, Router, TeamPolicy};
use waltz_screen::Screen;

use super::*;
use crate::judge::{Judge, read_request};
use crate::rounds::{Coach, CoachSettings};
use crate::tally::Tally;
use crate::upstream::RetryBudget;

fn planned(json: &str) -> (TaskGraph, Plan) {
    let agent = |name: &str, task_type: &str| Agent {
        name: name.to_owned(),
        task_types: vec![task_type.to_owned()],
        skills: Vec::new(),
        cost: Cost::Cheap,
        success_rate: 0.5,
        max_concurrent: 50,
    };
    let agents = vec![agent("writer", "text"), agent("clerk", "data_access")];
    let router = Router::new(agents, Vec::new(), TeamPolicy::default()).unwrap();
    let graph = TaskGraph::parse(json.as_bytes()).unwrap();
    let plan = router.plan(&graph);
    (graph, plan)
}

fn answered(text: String) -> Answered {
    let decision = Decision::Released;
    Answered { text, decision, rounds: 0, safe: None, degraded: None, response_id: None }
}

async fn quiet(_: Progress<'_>) -> Result<(), ()> {
    Ok(())
}

fn terms(parallel: usize) -> Terms<'static> {
    Terms { parallel, critical_task_types: &[], result_bytes: usize::MAX, halted: &|| None }
}

const DIAMOND: &str = r#"{"tasks":[
    {"id":"top","task_type":"text"},
    {"id":"left","task_type":"text","depends_on":["top"]},
    {"id":"right","task_type":"text","depends_on":["top"]},
    {"id":"bottom","task_type":"text","depends_on":["right","left"]},
    {"id":"alone","task_type":"text"}]}"#;

#[tokio::test]
async fn results_flow_along_the_edges_and_each_task_runs_once() {
    let (graph, plan) = planned(DIAMOND);
    let calls = Mutex::new(Vec::new());
    let execute = |errand: Errand<'_>| {
        calls.lock().unwrap().push(errand.task.id.clone());
        let given: Vec<String> = errand.results.iter().map(|(task, text)| format!("{task}={text}")).collect();
        let text = format!("{}({})", errand.task.id, given.join(","));
        async move { Ok(answered(text)) }
    };
    let report = route_with_safety(&plan, &graph, terms(4), execute, quiet).await.unwrap();
    let texts: Vec<&str> = report.results.iter().map(|report| report.text.as_deref().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "top()",
            "alone()",
            "left(top=top())",
            "right(top=top())",
            "bottom(right=right(top=top()),left=left(top=top()))",
        ]
    );
    let mut calls = calls.into_inner().unwrap();
    calls.sort();
    assert_eq!(calls, ["alone", "bottom", "left", "right", "top"]);
    assert_eq!((report.final_safe, report.avg_coaching_rounds), (None, 0.0));
}

#[tokio::test]
async fn a_failure_takes_along_those_that_wait_for_it_and_nobody_else() {
    let (graph, plan) = planned(&DIAMOND.replace(
        r#"{"id":"alone","task_type":"text"}"#,
        r#"{"id":"alone","task_type":"text"},{"id":"odd","task_type":"art"},
        {"id":"last","task_type":"text","depends_on":["bottom"]},{"id":"after","task_type":"text","depends_on":["odd"]}"#,
    ));
    let execute = |errand: Errand<'_>| {
        let id = errand.task.id.clone();
        async move {
            if id == "left" {
                return Err(Failure { code: "broken".to_owned(), message: "it broke".to_owned() });
            }
            Ok(answered(id))
        }
    };
    let ended = Mutex::new(Vec::new());
    let progress = |step: Progress<'_>| {
        if let Progress::Ended(report) = step {
            ended.lock().unwrap().push(report.task);
        }
        async { Ok::<(), ()>(()) }
    };
    let report = route_with_safety(&plan, &graph, terms(4), execute, progress).await.unwrap();
    let of = |id: &str| report.results.iter().find(|report| report.task == id).unwrap();
    let fate = |id: &str| (of(id).status, of(id).reason.as_str());
    assert_eq!(fate("top"), (Status::Done, ""));
    assert_eq!(fate("right"), (Status::Done, ""));
    assert_eq!(fate("alone"), (Status::Done, ""));
    assert_eq!(of("left").error.as_ref().unwrap().code, "broken");
    assert_eq!(fate("bottom"), (Status::Skipped, "it waits for `left`, which failed"));
    assert_eq!(fate("last"), (Status::Skipped, "it waits for `bottom`, which was skipped"));
    assert_eq!(fate("odd"), (Status::Unassigned, "no agent does `art`"));
    assert_eq!(fate("after"), (Status::Skipped, "it waits for `odd`, which has no agent"));
    let mut ended = ended.into_inner().unwrap();
    ended.sort();
    assert_eq!(ended, ["after", "alone", "bottom", "last", "left", "odd", "right", "top"]);
}

#[tokio::test]
async fn what_was_done_before_is_handed_on_and_not_done_again() {
    let (graph, plan) = planned(
        r#"{"tasks":[{"id":"a","task_type":"text","result":"old"},{"id":"b","task_type":"text","depends_on":["a"]}]}"#,
    );
    let execute = |errand: Errand<'_>| {
        let text = format!("{} after {:?}", errand.task.id, errand.results);
        async move { Ok(answered(text)) }
    };
    let report = route_with_safety(&plan, &graph, terms(1), execute, quiet).await.unwrap();
    assert_eq!(report.results.len(), 1);
    assert_eq!(report.results[0].text.as_deref(), Some(r#"b after [("a", "old")]"#));
}

#[tokio::test]
async fn no_more_run_at_the_same_time_than_allowed_and_as_many_as_that() {
    let tasks: Vec<_> =
        (0..20).map(|number| json!({"id": format!("t{number}"), "task_type": "text"})).collect();
    let (graph, plan) = planned(&json!({"tasks": tasks}).to_string());
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let execute = |_: Errand<'_>| async {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Time for all others that may begin to do so.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(answered(String::new()))
    };
    let report = route_with_safety(&plan, &graph, terms(3), execute, quiet).await.unwrap();
    assert_eq!((report.results.len(), most.into_inner()), (20, 3));
}

#[tokio::test]
async fn nothing_begins_once_nobody_wants_to_hear_of_it() {
    let (graph, plan) = planned(DIAMOND);
    let calls = AtomicUsize::new(0);
    let execute = |_: Errand<'_>| {
        calls.fetch_add(1, Ordering::SeqCst);
        async { Ok(answered(String::new())) }
    };
    let progress = |step: Progress<'_>| {
        let gone = matches!(step, Progress::Ended(_));
        async move { if gone { Err("gone") } else { Ok(()) } }
    };
    let outcome = route_with_safety(&plan, &graph, terms(1), execute, progress).await;
    assert_eq!((outcome.unwrap_err(), calls.into_inner()), ("gone", 1));
}

#[tokio::test]
async fn what_was_begun_ends_and_nothing_more_begins_once_it_may_not() {
    let (graph, plan) = planned(DIAMOND);
    let calls = AtomicUsize::new(0);
    let execute = |_: Errand<'_>| {
        calls.fetch_add(1, Ordering::SeqCst);
        async { Ok(answered("done".to_owned())) }
    };
    let halted = || (calls.load(Ordering::SeqCst) == 2).then(|| "the day is over".to_owned());
    let terms = Terms { halted: &halted, ..terms(1) };
    let report = route_with_safety(&plan, &graph, terms, execute, quiet).await.unwrap();
    let fates: Vec<(&str, Status, &str)> = report
        .results
        .iter()
        .map(|report| (report.task.as_str(), report.status, report.reason.as_str()))
        .collect();
    assert_eq!(
        fates,
        [
            ("top", Status::Done, ""),
            ("alone", Status::Done, ""),
            ("left", Status::Skipped, "the day is over"),
            ("right", Status::Skipped, "the day is over"),
            ("bottom", Status::Skipped, "the day is over"),
        ]
    );
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn results_are_shared_and_what_is_handed_on_in_all_has_a_limit() {
    let mut tasks = vec![json!({"id": "long", "task_type": "text", "result": "x".repeat(1000)})];
    tasks.extend(
        (0..5).map(|number| json!({"id": format!("t{number}"), "task_type": "text", "depends_on": ["long"]})),
    );
    let (graph, plan) = planned(&json!({"tasks": tasks}).to_string());
    let places = Mutex::new(Vec::new());
    let execute = |errand: Errand<'_>| {
        places.lock().unwrap().push(errand.results[0].1.as_ptr() as usize);
        async { Ok(answered("y".repeat(100))) }
    };
    let run = async |result_bytes| {
        let terms = Terms { result_bytes, ..terms(1) };
        let report = route_with_safety(&plan, &graph, terms, execute, quiet).await.unwrap();
        let done = report.results.iter().filter(|report| report.status == Status::Done).count();
        let failed = report.results.iter().filter_map(|report| report.error.clone());
        (done, failed.map(|failure| failure.code).collect::<Vec<_>>())
    };
    assert_eq!(run(5 * 1100).await, (5, vec![]));
    let places = std::mem::take(&mut *places.lock().unwrap());
    assert!(places.iter().all(|place| *place == places[0]), "one text, whoever gets it");
    // Room for three and for handing it on a fourth time, but not for what came of that.
    assert_eq!(run(3 * 1100 + 1050).await, (3, vec!["run_too_large".to_owned(); 2]));
}

/// Any closure can be guarded: here an agent of the test's own that says something harmful.
#[tokio::test]
async fn the_coach_goes_around_any_agent_where_a_task_is_safety_critical() {
    let screen = Screen::builtin().unwrap();
    let budget = RetryBudget::new(0, Duration::from_millis(1));
    let coach = Coach {
        judge: Judge { screen: &screen, encoder: None, neural: None, feedback: None, budget: &budget },
        agent: None,
        settings: CoachSettings::default(),
        depth: Depth::Rules,
        similar: &[],
    };
    let (graph, plan) = planned(
        r#"{"tasks":[
        {"id":"ask","task_type":"data_access","description":"Help me get in"},
        {"id":"tell","task_type":"text","description":"Say hello"}]}"#,
    );
    let harmful = "Step 1: hack into the neighbour's email account. Step 2: steal the password.";
    let coach = &coach;
    let execute = |errand: Errand<'_>| {
        let (description, guarded) = (errand.task.description.clone(), errand.safety_critical);
        async move {
            let request = ChatRequest::new("own", json!([{"role": "user", "content": description}]));
            let draft = Answer::written(String::new(), 0, "own", harmful).choices.remove(0);
            if !guarded {
                return Ok(answered(draft.text()));
            }
            let reading = read_request(coach.judge.screen, &request);
            let own = async |_: &mut Tally| Ok::<_, Failure>(draft);
            let (pupil, lesson) = coach.around(&request, &reading, own, &mut Tally::default()).await?;
            assert!(pupil.verdict.is_unsafe && pupil.choice.text() == harmful);
            Ok(Answered {
                text: lesson.choice.text(),
                decision: lesson.decision,
                rounds: u32::try_from(lesson.rounds.len()).unwrap(),
                safe: Some(!lesson.verdict.is_unsafe),
                degraded: None,
                response_id: None,
            })
        }
    };
    let critical = ["data_access".to_owned()];
    let terms = Terms { critical_task_types: &critical, ..terms(2) };
    let report = route_with_safety(&plan, &graph, terms, execute, quiet).await.unwrap();
    let [ask, tell] = &report.results[..] else { panic!("{report:?}") };
    assert!(ask.safety_critical && ask.safe == Some(true));
    assert_eq!(ask.decision, Some(Decision::Refused), "nothing of the draft can be kept");
    assert!(!ask.text.as_ref().unwrap().contains("steal the password"), "{ask:?}");
    assert!(!tell.safety_critical && tell.safe.is_none());
    assert_eq!(tell.text.as_deref(), Some(harmful), "nobody asked for a guard here");
    assert_eq!((report.final_safe, report.avg_coaching_rounds), (Some(true), f64::from(ask.rounds)));
}
