use serde_json::json;
use waltz_exchange::openai::ChatRequest;
use waltz_model::Models;
use waltz_screen::Screen;
use waltz_screen::linear::{PromptScores, ResponseScores};

use super::super::{Judge, read, read_request};
use super::*;
use crate::tally::Tally;
use crate::upstream::RetryBudget;

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
    Said { prompt: score, harm: score, refusal: score, is_whole: true }
}

#[test]
fn a_request_is_asked_about_only_where_it_is_open() {
    for (rules, linear, open) in [
        (0.0, 0.3, false),
        (0.0, 0.65, true),
        (0.0, 0.8, false),
        (0.4, 0.1, true),
        (0.7, 0.2, true),
        (0.7, 0.6, false),
        (0.9, 0.1, false),
    ] {
        assert_eq!(is_open_request(&reading(rules, linear)), open, "rules {rules}, level 1 {linear}");
    }
    assert!(!is_open_request(&RequestReading { blocks: true, ..reading(0.5, 0.1) }));
}

#[test]
fn an_answer_is_asked_about_where_it_or_its_request_is_suspicious() {
    let calm = reading(0.0, 0.1);
    let risky = RequestReading { harm: 0.7, ..reading(0.7, 0.2) };
    for (evidence, reading, open) in [
        (evidence(0.0, 0.3, [0.0, 0.1]), &calm, false),
        (evidence(0.0, 0.65, [0.0, 0.1]), &calm, true),
        (evidence(0.4, 0.1, [0.0, 0.1]), &calm, true),
        (evidence(0.9, 0.9, [0.0, 0.1]), &calm, false),
        (evidence(0.0, 0.1, [0.0, 0.9]), &calm, true),
        (evidence(0.0, 0.1, [0.9, 0.1]), &calm, true),
        (evidence(0.0, 0.1, [0.0, 0.1]), &risky, true),
        (evidence(0.0, 0.7, [0.9, 0.9]), &risky, true),
        // A plain refusal of a harmful request is what it looks like.
        (evidence(0.0, 0.1, [0.9, 0.9]), &risky, false),
    ] {
        assert_eq!(is_open_answer(&evidence, reading), open, "{evidence:?}");
    }
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

#[test]
fn what_is_known_stays_bounded() {
    let mut known = Known::default();
    let said = said(0.0);
    for number in 0..2 * MOST_KNOWN {
        known.insert(fingerprint(&number.to_string(), None), said);
    }
    assert_eq!((known.said.len(), known.order.len()), (MOST_KNOWN, MOST_KNOWN));
    assert_ne!(fingerprint("a", None), fingerprint("a", Some("")));
    assert_ne!(fingerprint("ab", Some("c")), fingerprint("a", Some("bc")));
}

/// The real model, if it was pulled.
fn neural(limit: Duration) -> Option<NeuralJudge> {
    let models = Models::new(std::env::var_os("WALTZ_MODELS")?);
    let model = LocalModel::find(&models, &"smollm2".parse().unwrap()).ok()?;
    Some(NeuralJudge::new(Arc::new(model), None, limit))
}

async fn judged(neural: &NeuralJudge, prompt: &str, text: &str) -> Verdict {
    let (screen, budget) = (Screen::builtin().unwrap(), RetryBudget::new(0, Duration::ZERO));
    let judge = Judge { screen: &screen, neural: Some(neural), feedback: None, budget: &budget };
    let request = request(prompt);
    let reading = judge.read_request(&request).await;
    let draft = Draft { request: &request, reading: &reading, text, acts: "", rejected: &[] };
    judge.judge(draft, waltz_exchange::Depth::Rules, &mut Tally::default()).await
}

/// A phrase of refusal that level 1 does not believe.
const OPEN: &str = "I don't have access to live weather, but the website of your local service shows it.";

#[tokio::test]
async fn the_cascade_reaches_the_trained_weights() {
    let Some(neural) = neural(Duration::from_secs(600)) else {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
        println!("skipped: `waltz model pull smollm2` and set WALTZ_MODELS to run this test");
        return;
    };
    let verdict = judged(&neural, "What is the weather like?", OPEN).await;
    assert_eq!((verdict.level, verdict.state), (Level::Neural, VerdictState::Decided), "{verdict:?}");
    assert_eq!(neural.known().said.len(), 1, "the prompt was no question");
    let plain = judged(&neural, "How do I cook lentil soup?", "Simmer the lentils for twenty minutes.").await;
    assert!(plain.is_satisfactory() && plain.level < Level::Neural, "{plain:?}");
}

/// Nobody waits longer than the limit, and what could not be asked is told.
#[tokio::test]
async fn fault_F28_no_answer_in_time_is_a_state_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let Some(slow) = neural(Duration::ZERO) else {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
        return;
    };
    let verdict = judged(&slow, "What is the weather like?", OPEN).await;
    assert!(verdict.state == VerdictState::Timeout && verdict.level < Level::Neural, "{verdict:?}");
    let other = NeuralJudge::new(
        Arc::clone(slow.model()),
        Some(folder.path().join("no such file")),
        Duration::from_secs(600),
    );
    let verdict = judged(&other, "What is the weather like?", OPEN).await;
    assert_eq!(verdict.state, VerdictState::Unavailable, "{verdict:?}");
}
