//! Reports of clients beside what the judge says.

use super::*;
use crate::reward;

fn reported(variant: &str, success: bool, subject: Option<&str>) -> VariantOutcome {
    VariantOutcome { subject: subject.map(str::to_owned), ..outcome(variant, success) }
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F46_thousands_of_thumbs_of_one_subject_apply_nothing() {
    for subject in [Some("fan"), None] {
        let mut board = board(&["hyped"]);
        feed(&mut board, "default", 20, 3, 0);
        let (settings, mut capped) = (Settings::default(), 0);
        for _ in 0..5000 {
            let praise = reported("hyped", true, subject);
            for event in board.report(&praise, None, at(0), &settings).unwrap() {
                assert!(!matches!(event, BoardEvent::Applied { .. } | BoardEvent::Decided { .. }));
                capped += usize::from(matches!(event, BoardEvent::SubjectCapped { .. }));
            }
        }
        assert_eq!((board.entry("hyped").unwrap().value.visits, capped), (2, 1));
        assert_eq!(board.serving, "default");
    }
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F46_thousands_of_thumbs_down_of_one_subject_roll_nothing_back() {
    // The best record that there can be is the easiest to spoil.
    for subject in [Some("foe"), None] {
        let mut board = board(&["other"]);
        change_it(&mut board, Change::Apply("other".into()), 0).unwrap();
        feed(&mut board, "other", 1500, 0, 0);
        let (settings, mut events) = (Settings::default(), Vec::new());
        for _ in 0..5000 {
            events.extend(board.report(&reported("other", false, subject), None, at(1), &settings).unwrap());
        }
        assert_eq!((rollback_of(&events), board.serving.as_str()), (None, "other"), "{events:?}");
        assert_eq!(board.entry("other").unwrap().value.visits, 1502);
        // Three subjects are more than one.
        for subject in ["one", "two", "three"] {
            events.extend(
                board.report(&reported("other", false, Some(subject)), None, at(1), &settings).unwrap(),
            );
        }
        assert_eq!(rollback_of(&events), Some(("other", "default")));
    }
}

#[test]
fn the_judge_is_not_capped_so_that_a_collapse_for_one_subject_is_seen() {
    let mut board = board(&["other"]);
    change_it(&mut board, Change::Apply("other".into()), 0).unwrap();
    feed(&mut board, "other", 200, 10, 0);
    let settings = Settings::default();
    let mut events = Vec::new();
    for _ in 0..40 {
        events.extend(board.observe(&reported("other", false, Some("one")), at(1), &settings).unwrap());
    }
    assert_eq!(rollback_of(&events), Some(("other", "default")));
}

#[test]
fn a_report_on_a_judged_answer_corrects_the_mean_and_is_no_evidence() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 40, 10, 0);
    let settings = Settings::default();
    let before = board.clone();
    let served = outcome("default", true);
    let events = board.report(&reported("default", false, Some("a")), Some(&served), at(1), &settings);
    assert_eq!(events, Ok(Vec::new()));
    let (now, then) = (&board.entry("default").unwrap().value, &before.entry("default").unwrap().value);
    assert_eq!((now.visits, now.successes, now.sum, now.corrected), (40, 36, then.sum, 1));
    let lost = reward(&served).unwrap().unwrap() - reward(&outcome("default", false)).unwrap().unwrap();
    assert!((then.q() - now.q() - lost / 40.0).abs() < 1e-9);
    let mut same = board.clone();
    same.entries.get_mut("default").unwrap().value = then.clone();
    same.subjects = before.subjects.clone();
    assert_eq!(same, before, "nothing but the mean has changed");
    // Where the judge said nothing, the report is the outcome.
    let infrastructure = VariantOutcome { class: OutcomeClass::Infrastructure, ..served };
    for unjudged in [None, Some(&infrastructure)] {
        let visits = board.entry("default").unwrap().value.visits;
        let subject = visits.to_string();
        board.report(&reported("default", true, Some(&subject)), unjudged, at(1), &settings).unwrap();
        assert_eq!(board.entry("default").unwrap().value.visits, visits + 1);
    }
    // What was forgotten cannot be corrected, and no sum leaves its bounds.
    board.entries.get_mut("default").unwrap().value = Value::default();
    board
        .report(&reported("default", true, Some("z")), Some(&outcome("default", false)), at(1), &settings)
        .unwrap();
    let value = &board.entry("default").unwrap().value;
    assert_eq!((value.visits, value.q(), value.rewards()), (0, 0.0, 0.0));
}
