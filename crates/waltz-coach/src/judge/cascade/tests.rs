use serde_json::json;
use waltz_screen::Screen;
use waltz_screen::linear::{PromptScores, ResponseScores};

use super::super::{read, read_request};
use super::*;

fn request(prompt: &str) -> ChatRequest {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]});
    ChatRequest::parse(body.to_string().as_bytes()).unwrap()
}

fn reading(rules: f32, linear: f32) -> RequestReading {
    RequestReading {
        rules,
        linear: PromptScores { harm: linear, ..PromptScores::default() },
        ..RequestReading::default()
    }
}

fn evidence(rules: f32, linear: f32, refusals: [f32; 2]) -> Evidence {
    let linear = ResponseScores { harm: linear, refusal: refusals[1], ..ResponseScores::default() };
    Evidence { rules, refusal: refusals[0], linear, ..Evidence::default() }
}

/// One score for everything, of a text that was read as a whole.
fn said(score: f32) -> Said {
    Said { prompt: score, harm: score, refusal: score, injection: score, is_whole: true }
}

#[test]
fn a_request_is_asked_about_unless_a_rule_or_level_1_settles_it() {
    let judge = LinearJudge::builtin().unwrap();
    let floor = floors(&judge)[0];
    assert!(floor > 0.0 && floor < THRESHOLD, "{floor}");
    for (rules, linear, open) in [
        (0.0, floor - 0.001, false),
        (0.0, floor, true),
        (0.0, 0.99, true),
        (0.4, 0.0, true),
        (0.9, 0.9, false),
    ] {
        assert_eq!(is_open_request(&judge, &reading(rules, linear)), open, "rules {rules}, level 1 {linear}");
    }
    assert!(!is_open_request(&judge, &RequestReading { blocks: true, ..reading(0.5, 0.9) }));
    assert!(is_open_request(&judge, &RequestReading { disguised: true, ..reading(0.0, 0.0) }));
}

#[test]
fn an_answer_is_asked_about_where_it_or_its_request_is_suspicious_or_it_may_refuse() {
    let judge = LinearJudge::builtin().unwrap();
    let [_, floor, _] = floors(&judge);
    let calm = reading(0.0, 0.0);
    let doubtful = RequestReading { harm: 0.35, ..reading(0.3, 0.2) };
    let risky = RequestReading { harm: 0.7, ..reading(0.7, 0.2) };
    for (evidence, reading, open) in [
        (evidence(0.0, 0.49, [0.0, 0.0]), &calm, false),
        (evidence(0.0, 0.5, [0.0, 0.0]), &calm, true),
        (evidence(0.0, floor - 0.001, [0.0, 0.0]), &doubtful, false),
        (evidence(0.0, floor, [0.0, 0.0]), &doubtful, true),
        (evidence(0.4, 0.0, [0.0, 0.0]), &calm, true),
        (evidence(0.9, 0.9, [0.0, 0.0]), &calm, false),
        (evidence(0.0, 0.0, [0.0, FOUND]), &calm, true),
        (evidence(0.0, 0.0, [0.9, 0.0]), &calm, true),
        (evidence(0.0, 0.0, [0.0, 0.0]), &risky, true),
    ] {
        assert_eq!(is_open_answer(&judge, &evidence, reading), open, "{evidence:?}");
    }
}

#[test]
fn a_conversation_is_read_with_its_turns_marked_and_a_single_turn_as_it_is() {
    assert_eq!(conversation(&request("hello")), "hello");
    let body = json!({"model": "m", "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "second"},
    ]});
    let long = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    assert_eq!(conversation(&long), "[user turn 2] first\n[assistant turn 3] answer\n[user turn 4] second");
}

#[test]
fn it_outweighs_a_rule_that_is_not_sure_and_is_never_as_sure_as_one() {
    assert_eq!(harm(0.9, 0.0, true), HARD - 0.01);
    assert!(harm(0.1, 0.75, true) < THRESHOLD && harm(0.1, 0.75, false) == 0.75);
    // A weak finding takes nothing from what it says.
    assert_eq!((harm(0.57, 0.0, true), harm(0.57, 0.3, true)), (0.57, 0.57));
    let mut open = reading(0.6, 0.1);
    open.issues.push(Issue {
        category: Category::HATE_SPEECH,
        severity: 0.6,
        description: "words".to_owned(),
        evidence: None,
        mitigation: String::new(),
    });
    let mut lifted = open.clone();
    add_to_request(&mut lifted, said(0.1));
    assert!(
        lifted.harm < THRESHOLD && lifted.issues.is_empty() && lifted.categories.is_empty(),
        "{lifted:?}"
    );
    for unread in [(Said { is_whole: false, ..said(0.1) }, false), (said(0.1), true)] {
        let mut kept = RequestReading { disguised: unread.1, ..open.clone() };
        add_to_request(&mut kept, unread.0);
        assert!(kept.harm == 0.6 && kept.issues.len() == 1, "nothing was lifted that was not read: {kept:?}");
    }
    add_to_request(&mut open, said(0.8));
    assert_eq!(open.categories.keys().collect::<Vec<_>>(), [&Category::HATE_SPEECH]);
    assert!(open.harm >= THRESHOLD && open.level == Level::Neural && open.risk == waltz_exchange::Risk::High);
}

#[test]
fn what_an_answer_gives_away_stands_whatever_it_says() {
    let screen = Screen::builtin().unwrap();
    let request = request("What is on file?");
    let reading = read_request(&screen, &request);
    let text = "The card is 4539 1488 0343 6467.";
    let draft = Draft { request: &request, reading: &reading, text, acts: "", rejected: &[] };
    let (verdict, evidence) = read(&screen, draft);
    assert!(verdict.is_unsafe && evidence.firm.len() == 1, "{verdict:?}");
    let after = added(verdict.clone(), draft, evidence, said(0.0));
    assert!(after.is_unsafe, "{after:?}");
    assert_eq!((after.issues, after.categories), (verdict.issues, verdict.categories));
}

/// The heads know nothing of what an operator forbids.
#[test]
fn a_rule_of_the_operator_stands_whatever_it_says() {
    let rules = r#"
        [[rule]]
        id = "own.asked"
        category = "trade_secrets"
        severity = 0.6
        side = "prompt"
        means = "asks about the project"
        all = [["nightjar"]]

        [[rule]]
        id = "own.told"
        category = "trade_secrets"
        severity = 0.6
        side = "response"
        means = "tells about the project"
        all = [["nightjar"]]
    "#;
    let screen = Screen::with_rules(&waltz_screen::Rules::parse(rules).unwrap()).unwrap();
    let request = request("What is Project Nightjar?");
    let mut reading = read_request(&screen, &request);
    assert!(reading.harm >= THRESHOLD && reading.firm.len() == 1 && reading.rules < THRESHOLD, "{reading:?}");
    add_to_request(&mut reading, said(0.0));
    assert!(reading.harm >= THRESHOLD && reading.issues == reading.firm, "{reading:?}");
    let text = "Project Nightjar begins in May.";
    let draft = Draft { request: &request, reading: &reading, text, acts: "", rejected: &[] };
    let (verdict, evidence) = read(&screen, draft);
    assert!(added(verdict, draft, evidence, said(0.0)).is_unsafe);
}
