mod releases;
mod reports;

use waltz_exchange::variant::{Complexity, OutcomeClass, RequestContext, VariantOutcome};

use super::*;
use crate::RollbackMode;
use crate::guard::Standing;
use crate::release::Command;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn outcome(variant: &str, success: bool) -> VariantOutcome {
    VariantOutcome {
        variant: variant.into(),
        class: if success { OutcomeClass::Success } else { OutcomeClass::Failure },
        quality: Some(f64::from(u8::from(success))),
        duration_ms: 0.0,
        errors: 0,
        subject: None,
        context: RequestContext { complexity: Complexity::Low, ..RequestContext::default() },
        safety: None,
    }
}

fn board(variants: &[&str]) -> Board {
    let mut board = Board::new("architect", "api-design", "seed");
    for name in variants {
        add(&mut board, name);
    }
    board
}

fn add(board: &mut Board, name: &str) {
    let change = Change::Add { name: name.into(), patch: Vec::new(), live: true, prior: None };
    change_it(board, change, 0).unwrap();
}

fn change_it(board: &mut Board, change: Change, seconds: i64) -> Result<Vec<BoardEvent>, Error> {
    let version = board.version;
    board.change(change, "ann", version, at(seconds), &Settings::default())
}

/// Feeds `n` outcomes of a variant, of which one in `one_in` fails; 0 means none.
fn feed(board: &mut Board, variant: &str, n: usize, one_in: usize, seconds: i64) -> Vec<BoardEvent> {
    let settings = Settings::default();
    let mut events = Vec::new();
    for step in 1..=n {
        let success = one_in == 0 || step % one_in != 0;
        events.extend(board.observe(&outcome(variant, success), at(seconds), &settings).unwrap());
    }
    events
}

fn rollback_of(events: &[BoardEvent]) -> Option<(&str, &str)> {
    events.iter().find_map(|event| match event {
        BoardEvent::RolledBack(event) => Some((event.from_variant.as_str(), event.to_variant.as_str())),
        _ => None,
    })
}

fn served(board: &Board, unit: usize) -> String {
    board.choose(&unit.to_string(), &RequestContext::default(), &Settings::default()).variant
}

#[test]
fn a_proven_variant_is_applied_and_really_serves() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 20, 3, 0);
    let events = feed(&mut board, "fast", 9, 0, 0);
    assert!(
        matches!(&events[..], [BoardEvent::Decided { decision, .. }] if decision.action == Action::HumanApproval)
    );
    let events = feed(&mut board, "fast", 1, 0, 0);
    assert!(
        matches!(&events[..], [BoardEvent::Applied { variant, from_variant, .. }] if variant == "fast" && from_variant == "default")
    );
    assert!((0..200).all(|unit| served(&board, unit) == "fast"));
    assert_eq!(board.entry("default").unwrap().variant.status, VariantStatus::Standby);
    assert_eq!(board.decision("fast", at(0), &Settings::default()).unwrap().reasoning, "It serves already");
}

#[test]
fn choices_follow_their_logged_chances() {
    let mut board = board(&["fast", "slow"]);
    feed(&mut board, "default", 30, 4, 0);
    let settings = Settings::default();
    let first = board.choose("0", &RequestContext::default(), &settings);
    assert!((first.candidates.values().sum::<f64>() - 1.0).abs() < 1e-9 && first.candidates.len() == 3);
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    let n = 20_000;
    for unit in 0..n {
        *counts.entry(served(&board, unit)).or_default() += 1.0 / n as f64;
    }
    for (name, chance) in &first.candidates {
        assert!(*chance >= 0.05 && (counts[name] - chance).abs() < 0.012, "{name}: {counts:?} {first:?}");
    }
    assert_eq!(served(&board, 7), served(&board, 7));
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F05_failures_of_the_infrastructure_punish_nobody() {
    let mut board = board(&[]);
    feed(&mut board, "default", 50, 10, 0);
    let before = board.clone();
    let broken =
        VariantOutcome { class: OutcomeClass::Infrastructure, errors: 3, ..outcome("default", false) };
    for _ in 0..500 {
        assert_eq!(board.observe(&broken, at(1), &Settings::default()), Ok(Vec::new()));
    }
    let entry = board.entries.get_mut("default").unwrap();
    assert_eq!(std::mem::take(&mut entry.value.infrastructure), 500);
    assert_eq!(board, before);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F64_nothing_goes_to_a_variant_after_its_rollback() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 20, 3, 0);
    feed(&mut board, "fast", 110, 0, 0);
    assert_eq!(board.serving, "fast");
    let mut calls = 0;
    let settings = Settings::default();
    let events = loop {
        calls += 1;
        let events = board.observe(&outcome("fast", false), at(7200), &settings).unwrap();
        if rollback_of(&events).is_some() {
            break events;
        }
        assert!(calls < 20, "no rollback");
    };
    assert_eq!(rollback_of(&events), Some(("fast", "default")));
    assert!(calls <= 8, "{calls}");
    assert!((0..1000).all(|unit| served(&board, unit) == "default"));
    let BoardEvent::RolledBack(event) =
        events.into_iter().find(|event| matches!(event, BoardEvent::RolledBack(_))).unwrap()
    else {
        panic!("no event")
    };
    assert!(
        event.rollback_id.starts_with("rb-19700101-") && event.rollback_id.len() == 20,
        "{}",
        event.rollback_id
    );
    assert!(event.reason.contains("Success rate dropped from 100% to"), "{}", event.reason);
    assert!(event.degradation_metrics.recent_success_rate < 0.8);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F65_missing_targets_lead_to_the_safe_default_and_then_to_a_freeze() {
    let mut board = board(&["fast", "good"]);
    feed(&mut board, "default", 20, 3, 0);
    feed(&mut board, "good", 8, 4, 0);
    feed(&mut board, "fast", 110, 0, 0);
    assert_eq!(board.serving, "fast");
    // The best other one is taken, unless it is gone.
    let mut without = board.clone();
    change_it(&mut without, Change::Retire("good".into()), 7200).unwrap();
    assert_eq!(rollback_of(&feed(&mut without, "fast", 20, 1, 7200)), Some(("fast", "default")));
    assert_eq!(rollback_of(&feed(&mut board, "fast", 20, 1, 7200)), Some(("fast", "good")));
    // It falls too, within the cooldown: no way back to the first, but to the safe default.
    feed(&mut board, "good", 100, 0, 7300);
    assert_eq!(rollback_of(&feed(&mut board, "good", 30, 1, 7400)), Some(("good", "default")));
    // And when that falls, there is nothing left: the board freezes and says so once.
    feed(&mut board, "default", 200, 0, 7500);
    let events = feed(&mut board, "default", 60, 1, 9000);
    let frozen = events.iter().filter(|event| matches!(event, BoardEvent::Frozen { .. })).count();
    assert_eq!((frozen, rollback_of(&events), board.serving.as_str()), (1, None, "default"));
    assert!((0..100).all(|unit| served(&board, unit) == "default"));
    change_it(&mut board, Change::Unfreeze, 10_000).unwrap();
    assert_eq!(
        (board.frozen.clone(), board.entry("default").unwrap().guard.standing()),
        (None, Standing::Ok)
    );
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F65_too_many_rollbacks_within_a_day_freeze_the_board() {
    let mut board = board(&["a", "b", "c", "d", "e"]);
    feed(&mut board, "default", 50, 2, 0);
    for (hour, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let now = hour as i64 * 7200;
        if board.entry(name).unwrap().variant.status == VariantStatus::Standby {
            change_it(&mut board, Change::Enter((*name).into()), now).unwrap();
        }
        change_it(&mut board, Change::Apply((*name).into()), now).unwrap();
        feed(&mut board, name, 120, 0, now);
        let events = feed(&mut board, name, 30, 1, now + 60);
        assert!(rollback_of(&events).is_some(), "{name}");
        let frozen = events.iter().any(|event| matches!(event, BoardEvent::Frozen { .. }));
        assert_eq!(frozen, hour == 3, "{name}");
    }
    assert_eq!(board.serving, "default");
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F82_a_pause_takes_effect_at_the_next_choice() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 50, 2, 0);
    let release =
        Change::Release { id: "rel-1".into(), variant: "fast".into(), profile: "4week".into(), digest: None };
    change_it(&mut board, release, 0).unwrap();
    let met = (0..1000).filter(|unit| served(&board, *unit) == "fast").count();
    assert!((60..140).contains(&met), "{met}");
    let events = change_it(&mut board, Change::Pause, 1).unwrap();
    assert_eq!(events, [BoardEvent::Changed { change: Change::Pause, by: "ann".into() }]);
    assert!((0..1000).all(|unit| served(&board, unit) == "default"));
    change_it(&mut board, Change::Resume, 2).unwrap();
    assert_eq!(
        (0..1000).filter(|unit| served(&board, *unit) == "fast").count(),
        met,
        "the same units as before"
    );
}

#[test]
fn a_release_on_the_board_ends_by_serving_or_by_retreat() {
    for (steps, status, serving) in
        [(3, VariantStatus::Live, "fast"), (0, VariantStatus::RolledBack, "default")]
    {
        let mut board = board(&["fast"]);
        feed(&mut board, "default", 50, 10, 0);
        let release = Change::Release {
            id: "rel-1".into(),
            variant: "fast".into(),
            profile: "4week".into(),
            digest: None,
        };
        change_it(&mut board, release.clone(), 0).unwrap();
        assert!(change_it(&mut board, release, 0).is_err(), "one at a time");
        assert!(change_it(&mut board, Change::Retire("fast".into()), 0).is_err());
        for _ in 0..steps {
            change_it(&mut board, Change::Steer(Command::Promote), 1).unwrap();
        }
        if steps == 0 {
            change_it(&mut board, Change::Steer(Command::Abort), 1).unwrap();
        }
        assert_eq!((board.entry("fast").unwrap().variant.status, board.serving.as_str()), (status, serving));
        assert!((0..100).all(|unit| served(&board, unit) == serving));
    }
}

#[test]
fn a_bad_challenger_loses_its_traffic_by_comparison() {
    let mut board = board(&["bad"]);
    let mut events = Vec::new();
    for step in 0..400 {
        events.extend(feed(&mut board, "default", 1, usize::from(step % 10 == 0), 0));
        if board.entry("bad").unwrap().variant.status == VariantStatus::Live {
            events.extend(feed(&mut board, "bad", 1, usize::from(step % 2 == 0), 0));
        }
    }
    assert_eq!(rollback_of(&events), Some(("bad", "default")));
    assert!(board.frozen.is_none());
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F67_a_change_for_an_older_version_is_refused() {
    let mut board = board(&["fast"]);
    let version = board.version;
    let settings = Settings::default();
    board.change(Change::Apply("fast".into()), "ann", version, at(0), &settings).unwrap();
    let second = board.change(Change::Apply("default".into()), "bob", version, at(0), &settings);
    assert!(matches!(second, Err(Error::Stale { .. })));
    assert_eq!(board.serving, "fast");
}

#[test]
fn a_board_goes_on_where_it_was_written_down() {
    let mut board = board(&["fast", "slow"]);
    feed(&mut board, "default", 150, 7, 0);
    feed(&mut board, "slow", 40, 5, 0);
    let text = serde_json::to_string(&board).unwrap();
    let mut restored: Board = serde_json::from_str(&text).unwrap();
    assert_eq!(restored, board);
    assert_eq!(feed(&mut restored, "fast", 30, 0, 9), feed(&mut board, "fast", 30, 0, 9));
    assert_eq!(restored, board);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut board = board(&["fast"]);
    assert!(board.observe(&outcome("ghost", true), at(0), &Settings::default()).is_err());
    let mut nan = outcome("default", true);
    nan.quality = Some(f64::NAN);
    let before = board.clone();
    assert!(board.observe(&nan, at(0), &Settings::default()).is_err());
    for change in [
        Change::Apply("ghost".into()),
        Change::Apply("default".into()),
        Change::Retire("default".into()),
        Change::Add { name: "fast".into(), patch: Vec::new(), live: false, prior: None },
        Change::Steer(Command::Hold),
        Change::Release { id: "r".into(), variant: "fast".into(), profile: "never".into(), digest: None },
    ] {
        assert!(change_it(&mut board, change.clone(), 0).is_err(), "{change:?}");
    }
    assert_eq!(board, before, "what was refused changed nothing");
}

#[test]
fn a_candidate_that_the_window_condemns_takes_its_release_with_it() {
    let mut board = board(&["fast"]);
    feed(&mut board, "default", 50, 10, 0);
    let release =
        Change::Release { id: "rel-1".into(), variant: "fast".into(), profile: "4week".into(), digest: None };
    change_it(&mut board, release, 0).unwrap();
    let mut settings = Settings::default();
    settings.rollback.mode = RollbackMode::Window;
    let mut events = Vec::new();
    for step in 0..60 {
        events.extend(board.observe(&outcome("fast", step < 45), at(1), &settings).unwrap());
    }
    assert_eq!(rollback_of(&events), Some(("fast", "default")));
    assert!(!board.release.as_ref().unwrap().is_active(), "{events:?}");
    assert!((0..1000).all(|unit| served(&board, unit) == "default"));
}
