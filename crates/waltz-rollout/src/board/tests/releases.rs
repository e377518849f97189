//! Releases on a board: what moves them, what stops them, and what becomes of the candidate.

use waltz_exchange::release::ReleaseKind;
use waltz_exchange::variant::SafetyOutcome;

use super::*;

const WEEK: i64 = 7 * 86_400;
const SAFE: SafetyOutcome = SafetyOutcome {
    unsafe_answer: Some(false),
    overrefused: Some(false),
    feedback_triggered: false,
    overhead_ms: 3.0,
    critical: false,
};

fn release(board: &mut Board, variant: &str) {
    let (variant, profile) = (variant.to_owned(), "4week".to_owned());
    change_it(board, Change::Release { id: "rel-1".into(), variant, profile, digest: None }, 0).unwrap();
}

fn judged(board: &mut Board, variant: &str, success: bool, safety: SafetyOutcome) -> Vec<BoardEvent> {
    let outcome = VariantOutcome { safety: Some(safety), ..outcome(variant, success) };
    board.observe(&outcome, at(1), &Settings::default()).unwrap()
}

/// A board whose release has all but time.
fn proven() -> Board {
    let mut board = board(&["fast"]);
    release(&mut board, "fast");
    for step in 0..300 {
        judged(&mut board, "default", step % 10 != 0, SAFE);
        judged(&mut board, "fast", true, SAFE);
    }
    board
}

fn percent(board: &Board) -> u8 {
    board.release.as_ref().unwrap().percent(100)
}

fn status(board: &Board, name: &str) -> VariantStatus {
    board.entry(name).unwrap().variant.status
}

#[test]
fn a_falling_control_does_not_lift_the_candidate() {
    let mut board = board(&["fast"]);
    change_it(&mut board, Change::Apply("fast".into()), 0).unwrap();
    feed(&mut board, "fast", 300, 10, 0);
    add(&mut board, "new");
    release(&mut board, "new");
    feed(&mut board, "new", 30, 0, 0);
    let events = feed(&mut board, "fast", 60, 1, 1);
    assert_eq!(rollback_of(&events), Some(("fast", "default")), "{events:?}");
    assert!((0..100).all(|unit| served(&board, unit) == "default"));
    assert!(!board.release.as_ref().unwrap().is_active());
    assert_eq!(status(&board, "new"), VariantStatus::Standby, "nothing is held against it");
    assert_eq!(board.entry("new").unwrap().guard.standing(), Standing::Ok);
}

#[test]
fn a_release_that_evidence_ends_is_a_rollback() {
    let harmful = SafetyOutcome { unsafe_answer: Some(true), ..SAFE };
    let refusing = SafetyOutcome { overrefused: Some(true), ..SAFE };
    for (safety, fails, words) in
        [(SAFE, true, "below the control's"), (harmful, false, "ASR"), (refusing, false, "ORR")]
    {
        let mut board = board(&["fast"]);
        release(&mut board, "fast");
        let mut events = Vec::new();
        for step in 0..300 {
            for _ in 0..9 {
                events.extend(judged(&mut board, "default", step % 10 != 0, SAFE));
            }
            if status(&board, "fast") == VariantStatus::Live {
                events.extend(judged(&mut board, "fast", !fails || step % 3 == 0, safety));
            }
        }
        let rollbacks: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                BoardEvent::RolledBack(event) => Some(event),
                _ => None,
            })
            .collect();
        assert_eq!(rollbacks.len(), 1, "{words}");
        let rollback = rollbacks[0];
        assert_eq!((rollback.from_variant.as_str(), rollback.to_variant.as_str()), ("fast", "default"));
        assert!(rollback.reason.contains(words), "{}", rollback.reason);
        let rates = rollback.degradation_metrics;
        assert!(rates.baseline_success_rate > 0.7 && rates.sample_size > 0, "{rates:?}");
        assert_eq!(rates.recent_success_rate < 0.5, fails, "{rates:?}");
        assert_eq!(status(&board, "fast"), VariantStatus::RolledBack);
        // It can be reinstated, and then it starts without a record. The control has fallen too meanwhile, in one of
        // the cases: then a person looks first.
        change_it(&mut board, Change::Unfreeze, 9).unwrap();
        release(&mut board, "fast");
        assert_eq!(
            (status(&board, "fast"), board.entry("fast").unwrap().value.visits),
            (VariantStatus::Live, 0)
        );
        let asked = change_it(&mut board, Change::Steer(Command::Abort), 9).unwrap();
        assert_eq!(rollback_of(&asked), None, "a person's act is no rollback");
    }
}

#[test]
fn nothing_moves_while_nothing_may_and_that_is_no_time() {
    let settings = Settings::default();
    let frozen = |board: &mut Board| {
        board.frozen = Some("a test".into());
        board.stand(None, at(10));
    };
    let paused = |board: &mut Board| {
        change_it(board, Change::Pause, 10).unwrap();
    };
    let held = |board: &mut Board| {
        assert!(board.stand(Some(at(10)), at(500)));
        assert!(!board.stand(Some(at(10)), at(600)), "nothing new");
    };
    let stops: [&dyn Fn(&mut Board); 3] = [&frozen, &paused, &held];
    for stop in stops {
        let mut board = proven();
        stop(&mut board);
        assert_eq!(board.tick(at(2 * WEEK), &settings), []);
        assert_eq!(board.observe_shadow(&SAFE, at(2 * WEEK), &settings), []);
        for (variant, _) in board.clone().entries {
            let outcome = VariantOutcome { safety: Some(SAFE), ..outcome(&variant, true) };
            assert_eq!(board.observe(&outcome, at(2 * WEEK), &settings), Ok(Vec::new()));
        }
        assert_eq!(percent(&board), 10);
        // What follows a restart knows it too.
        let text = serde_json::to_string(&board).unwrap();
        let mut board: Board = serde_json::from_str(&text).unwrap();
        board.frozen = None;
        change_it(&mut board, Change::Resume, 2 * WEEK).unwrap();
        board.stand(None, at(2 * WEEK));
        let started = board.release.as_ref().unwrap().release.step_started_at;
        assert_eq!(started, at(2 * WEEK - 10), "only the first ten seconds count");
        assert_eq!(board.tick(at(3 * WEEK - 11), &settings), []);
        assert_eq!(board.tick(at(3 * WEEK), &settings).len(), 1);
        assert_eq!(percent(&board), 25);
    }
}

#[test]
fn nothing_is_applied_while_everything_is_paused() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 20, 3, 0);
    board.stand(Some(at(0)), at(0));
    let events = feed(&mut board, "fast", 30, 0, 1);
    assert!(events.iter().all(|event| matches!(event, BoardEvent::Decided { .. })), "{events:?}");
    let decision = board.decision("fast", at(1), &Settings::default()).unwrap();
    assert!(decision.reasoning.contains("everything is paused"), "{}", decision.reasoning);
    board.stand(None, at(2));
    assert!(matches!(&feed(&mut board, "fast", 1, 0, 2)[..], [BoardEvent::Applied { .. }]));
}

#[test]
fn an_incident_reaches_the_release_whatever_the_outcome_is() {
    let critical = SafetyOutcome { critical: true, ..SAFE };
    let broken = |safety| VariantOutcome {
        class: OutcomeClass::Infrastructure,
        safety: Some(safety),
        ..outcome("fast", false)
    };
    for stop in [false, true] {
        let mut board = proven();
        if stop {
            change_it(&mut board, Change::Pause, 2).unwrap();
        }
        let events = board.observe(&broken(critical), at(3), &Settings::default()).unwrap();
        assert!(
            matches!(&events[..], [BoardEvent::Release(event)] if event.to_status == ReleaseStatus::Held),
            "{events:?}"
        );
    }
}

#[test]
fn a_suspect_candidate_holds_its_release() {
    let settings = Settings::default();
    let mut board = proven();
    // Three failures among twenty breach the window, and are no evidence yet.
    for _ in 0..3 {
        judged(&mut board, "fast", false, SAFE);
    }
    assert_eq!(board.entry("fast").unwrap().guard.standing(), Standing::Suspect);
    assert_eq!(board.tick(at(WEEK), &settings), []);
    for _ in 0..40 {
        judged(&mut board, "fast", true, SAFE);
    }
    assert_eq!(board.tick(at(WEEK), &settings).len(), 1, "a clean window clears it");
}

#[test]
fn a_capped_release_never_serves_everybody() {
    let mut settings = Settings::default();
    settings.release.cap = 5;
    let mut board = proven();
    for day in 0..100 {
        assert_eq!(board.tick(at(day * 86_400), &settings), []);
    }
    let version = board.version;
    let forced = board.change(Change::Steer(Command::Promote), "ann", version, at(WEEK), &settings);
    assert!(forced.unwrap_err().to_string().contains("the operator's limit is 5 %"));
    let met = |unit: usize| board.choose(&unit.to_string(), &RequestContext::default(), &settings).variant;
    let share = (0..4000).filter(|unit| met(*unit) == "fast").count();
    assert!((140..260).contains(&share), "{share}");
}

#[test]
fn a_stricter_rule_acts_on_what_is_known() {
    // A window that is breached acts once the mode says so.
    let mut board = board(&["fast"]);
    change_it(&mut board, Change::Apply("fast".into()), 0).unwrap();
    feed(&mut board, "fast", 60, 0, 0);
    feed(&mut board, "fast", 3, 1, 0);
    let mut settings = Settings::default();
    assert_eq!(board.clone().tick(at(1), &settings), []);
    settings.rollback.mode = RollbackMode::Window;
    assert_eq!(rollback_of(&board.tick(at(1), &settings)), Some(("fast", "default")));
    // And so does evidence that was not enough for the older threshold.
    let mut board = super::board(&["fast"]);
    change_it(&mut board, Change::Apply("fast".into()), 0).unwrap();
    feed(&mut board, "fast", 200, 10, 0);
    feed(&mut board, "fast", 5, 1, 0);
    let mut settings = Settings::default();
    assert_eq!((board.clone().tick(at(1), &settings), board.serving.as_str()), (Vec::new(), "fast"));
    settings.rollback.alpha = 0.9;
    settings.rollback.horizon = 1.0;
    assert_eq!(rollback_of(&board.tick(at(1), &settings)), Some(("fast", "default")));
    // Beside what serves, too.
    let mut board = super::board(&["bad"]);
    for step in 0..12 {
        feed(&mut board, "default", 1, 0, 0);
        feed(&mut board, "bad", 1, usize::from(step % 2 == 0), 0);
    }
    assert_eq!(status(&board, "bad"), VariantStatus::Live);
    settings.rollback.horizon = 1000.0;
    assert_eq!(rollback_of(&board.tick(at(1), &settings)), Some(("bad", "default")));
}

#[test]
fn who_begins_anew_keeps_what_was_believed_and_nothing_that_was_learned() {
    let prior = Some(crate::Prior { mean: 0.8, weight: 4.0 });
    let mut settings = Settings::default();
    settings.choose.rule = crate::ChooseRule::Linucb;
    let mut board = super::board(&[]);
    let new = Change::Add { name: "fast".into(), patch: Vec::new(), live: true, prior };
    change_it(&mut board, new, 0).unwrap();
    for _ in 0..10 {
        board.observe(&outcome("fast", false), at(0), &settings).unwrap();
    }
    let mut unfrozen = board.clone();
    board.retreat("fast");
    change_it(&mut board, Change::Enter("fast".into()), 1).unwrap();
    change_it(&mut unfrozen, Change::Apply("fast".into()), 1).unwrap();
    unfrozen.frozen = Some("a test".into());
    change_it(&mut unfrozen, Change::Unfreeze, 1).unwrap();
    for board in [board, unfrozen] {
        let entry = board.entry("fast").unwrap();
        assert_eq!(entry.value, Value { prior, ..Value::default() });
        assert!(entry.linear.is_none());
    }
}

#[test]
fn what_would_only_stand_still_or_fall_again_is_refused() {
    let mut board = super::board(&["fast"]);
    board.frozen = Some("a test".into());
    let before = board.clone();
    let release =
        Change::Release { id: "rel-1".into(), variant: "fast".into(), profile: "4week".into(), digest: None };
    let refused = change_it(&mut board, release.clone(), 0).unwrap_err().to_string();
    assert_eq!(refused, "release `rel-1` cannot start: the board is frozen (a test); unfreeze it first");
    assert_eq!(board, before);
    change_it(&mut board, Change::Unfreeze, 0).unwrap();
    change_it(&mut board, release, 0).unwrap();
    change_it(&mut board, Change::SafeDefault("fast".into()), 0).unwrap();
    change_it(&mut board, Change::SafeDefault("default".into()), 0).unwrap();
    board.retreat("fast");
    let refused = change_it(&mut board, Change::SafeDefault("fast".into()), 0).unwrap_err();
    assert!(matches!(refused, Error::WrongVariant { status: "rolled_back", .. }), "{refused}");
    assert_eq!(board.safe_default, "default");
    change_it(&mut board, Change::Enter("fast".into()), 0).unwrap();
    change_it(&mut board, Change::SafeDefault("fast".into()), 0).unwrap();
}

/// A board of the program itself.
fn program() -> Board {
    let mut board = Board::new("waltz", "weights", "seed");
    introduce(&mut board, "one").unwrap();
    board
}

fn introduce(board: &mut Board, variant: &str) -> Result<Vec<BoardEvent>, Error> {
    let (id, profile) = (format!("rel-{variant}"), "4week".to_owned());
    change_it(board, Change::Introduce { id, variant: variant.to_owned(), profile }, 0)
}

#[test]
fn a_new_version_takes_the_place_of_what_serves_and_of_what_is_on_its_way() {
    let mut board = program();
    assert_eq!(board.release.as_ref().unwrap().release.kind, ReleaseKind::Weights);
    while board.release.as_ref().unwrap().is_active() {
        change_it(&mut board, Change::Steer(Command::Promote), 0).unwrap();
    }
    assert_eq!(board.serving, "one");
    feed(&mut board, "one", 300, 0, 0);
    introduce(&mut board, "two").unwrap();
    assert_eq!((board.serving.as_str(), percent(&board)), ("default", 10));
    introduce(&mut board, "three").unwrap();
    assert_eq!(status(&board, "two"), VariantStatus::Standby, "nothing is held against it");
    assert_eq!(board.release.as_ref().unwrap().release.candidate, "three");
    // What was there before does not come back by itself.
    let before = board.clone();
    assert!(introduce(&mut board, "one").is_err());
    assert_eq!(board, before);
    // Nor is it fallen back on: it is not in memory any more.
    feed(&mut board, "default", 300, 0, 0);
    let events = feed(&mut board, "default", 60, 1, 1);
    assert!(matches!(events.last(), Some(BoardEvent::Frozen { .. })), "{events:?}");
    assert_eq!(board.serving, "default");
}

#[test]
fn clients_cannot_take_rules_out_of_service() {
    for (kind, falls) in [("policy", false), ("judge", false), ("weights", true)] {
        let mut board = Board::new("waltz", kind, "seed");
        introduce(&mut board, "new").unwrap();
        while board.release.as_ref().unwrap().is_active() {
            change_it(&mut board, Change::Steer(Command::Promote), 0).unwrap();
        }
        feed(&mut board, "new", 300, 0, 0);
        let events = feed(&mut board, "new", 60, 1, 1);
        assert_eq!(rollback_of(&events).is_some(), falls, "{kind}: {events:?}");
        assert_eq!(board.serving == "new", !falls, "{kind}");
        assert!(board.frozen.is_none(), "{kind}");
    }
}
