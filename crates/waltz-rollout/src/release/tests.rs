use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;

const SAFE: SafetyOutcome = SafetyOutcome {
    unsafe_answer: Some(false),
    overrefused: Some(false),
    feedback_triggered: false,
    overhead_ms: 3.0,
    critical: false,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn start(profile: &str) -> ReleaseRun {
    let candidate = Candidate {
        id: "rel-1".into(),
        kind: ReleaseKind::Variant,
        scope: "architect/api-design".into(),
        candidate: "new".into(),
        control: "default".into(),
        seed: "seed-1".into(),
        digest: None,
    };
    ReleaseRun::start(candidate, profile, at(0), &ReleaseSettings::default()).unwrap()
}

/// Gives the control enough outcomes of 0.9 to be measured.
fn measure_control(run: &mut ReleaseRun, settings: &ReleaseSettings) {
    for step in 0..100 {
        run.observe(Side::Control, step % 10 != 0, None, at(0), settings);
    }
}

/// Gives each of `units` an outcome of its side, every `every` seconds; ends with the release.
fn drive(
    run: &mut ReleaseRun,
    random: &mut ChaCha8Rng,
    units: usize,
    every: i64,
    rate: f64,
    safety: SafetyOutcome,
) -> Vec<ReleaseEvent> {
    let settings = ReleaseSettings::default();
    let begin = run.release.step_started_at.as_second();
    let mut events = Vec::new();
    for step in 0..units {
        let now = at(begin + step as i64 * every);
        let unit = random.random_range(0..50_000_u32).to_string();
        if run.percent(100) == 0 {
            events.extend(run.observe_safety(&safety, now, &settings));
        }
        let (side, rate) =
            if run.meets_candidate(&unit, 100) { (Side::Candidate, rate) } else { (Side::Control, 0.9) };
        events.extend(run.observe(side, random.random_bool(rate), Some(&safety), now, &settings));
        if !run.is_active() {
            break;
        }
    }
    events
}

fn percents(events: &[ReleaseEvent]) -> Vec<u8> {
    events.iter().map(|event| event.to_percent).collect()
}

#[test]
fn a_good_candidate_takes_every_step() {
    for (profile, path) in
        [("standard", vec![5, 10, 25, 50, 100]), ("7day", vec![5, 25, 50, 100]), ("4week", vec![25, 50, 100])]
    {
        let mut run = start(profile);
        let events = drive(&mut run, &mut ChaCha8Rng::seed_from_u64(4), 80_000, 60, 0.92, SAFE);
        assert_eq!(percents(&events), path, "{profile}");
        assert_eq!(run.release.status, ReleaseStatus::Completed);
        assert_eq!(run.percent(100), 100);
        assert!(events.iter().all(|event| event.by.is_none() && event.reasons.len() >= 7), "{events:?}");
        let days: Vec<i64> = events.iter().map(|event| event.at.as_second() / 86_400).collect();
        let steps = super::profile(profile).unwrap();
        let mut least = 0;
        for (day, step) in days.iter().zip(&steps) {
            least += step.min_seconds / 86_400;
            assert!(*day >= least, "{profile}: {days:?}");
        }
    }
}

#[test]
fn a_worse_candidate_is_given_up_by_evidence() {
    let mut run = start("4week");
    let events = drive(&mut run, &mut ChaCha8Rng::seed_from_u64(5), 100_000, 60, 0.6, SAFE);
    let last = events.last().unwrap();
    assert_eq!((last.to_status, last.to_percent), (ReleaseStatus::Aborted, 0));
    assert!(last.reasons[0].contains("below the control's"), "{last:?}");
    assert!(run.whole.outcomes < 100, "{:?}", run.whole);
    assert!(!run.meets_candidate("anybody", 100));
}

#[test]
fn harm_and_refusals_above_the_limit_end_it_and_noise_does_not() {
    let harmful = SafetyOutcome { unsafe_answer: Some(true), ..SAFE };
    let refusing = SafetyOutcome { overrefused: Some(true), ..SAFE };
    for (bad, name) in [(harmful, "ASR"), (refusing, "ORR")] {
        let (mut run, settings) = (start("7day"), ReleaseSettings::default());
        // At its usual rate of 4 % nothing happens.
        for step in 0..400 {
            let safety = if step % 25 == 7 { bad } else { SAFE };
            assert_eq!(run.observe_safety(&safety, at(step), &settings), None, "{name}");
        }
        let ended = (0..400).find_map(|step| {
            let safety = if step % 2 == 0 { bad } else { SAFE };
            run.observe_safety(&safety, at(400 + step), &settings)
        });
        let event = ended.unwrap();
        assert_eq!(event.to_status, ReleaseStatus::Aborted);
        assert!(event.reasons[0].starts_with(name), "{event:?}");
    }
}

#[test]
fn time_alone_and_evidence_alone_do_not_promote() {
    let settings = ReleaseSettings::default();
    let mut run = start("4week");
    assert_eq!(run.tick(at(90 * 86_400), &settings), None, "no outcomes");
    let Assessment::Wait(missing) = run.assess(at(90 * 86_400), &settings) else { panic!("ready") };
    assert!(missing.iter().any(|missing| missing.contains("0 outcomes of at least 205")), "{missing:?}");
    assert!(missing.iter().any(|missing| missing.contains("ASR was not measured")), "{missing:?}");
    for step in 0..2000 {
        let side = if step % 10 == 0 { Side::Candidate } else { Side::Control };
        assert_eq!(run.observe(side, true, Some(&SAFE), at(step / 10), &settings), None, "too soon");
    }
    let Assessment::Wait(missing) = run.assess(at(200), &settings) else { panic!("ready") };
    assert_eq!(missing.len(), 2, "{missing:?}");
    // 200 candidates are not 205; five more and a week later it goes on.
    assert_eq!(run.tick(at(7 * 86_400), &settings), None);
    for _ in 0..5 {
        run.observe(Side::Candidate, true, Some(&SAFE), at(300), &settings);
    }
    assert_eq!(run.tick(at(7 * 86_400), &settings).unwrap().to_percent, 25);
}

#[test]
fn every_limit_of_a_step_holds_it() {
    let harmful = SafetyOutcome { unsafe_answer: Some(true), ..SAFE };
    let refusing = SafetyOutcome { overrefused: Some(true), ..SAFE };
    let triggering = SafetyOutcome { feedback_triggered: true, ..SAFE };
    let slow = SafetyOutcome { overhead_ms: 200.0, ..SAFE };
    for (bad, one_in, name) in [
        (harmful, 20, "ASR"),
        (refusing, 10, "ORR"),
        (triggering, 2, "FTR"),
        (slow, 20, "share above 200 ms"),
    ] {
        for (spread, held) in [(one_in, true), (one_in + 1, false)] {
            let (mut run, settings) = (start("4week"), ReleaseSettings::default());
            measure_control(&mut run, &settings);
            for step in 0..(spread * 20).max(210) / spread * spread {
                let safety = if step % spread == 0 { bad } else { SAFE };
                run.observe(Side::Candidate, true, Some(&safety), at(0), &settings);
            }
            let verdict = run.assess(at(7 * 86_400), &settings);
            match verdict {
                Assessment::Wait(missing) if held => {
                    assert!(missing.len() == 1 && missing[0].starts_with(name), "{missing:?}");
                }
                Assessment::Ready(_) if !held => {}
                other => panic!("{name}, one in {spread}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_critical_incident_holds_until_a_person_resumes_and_a_step_without_one_follows() {
    let (mut run, settings) = (start("4week"), ReleaseSettings::default());
    let critical = SafetyOutcome { critical: true, ..SAFE };
    let event = run.observe(Side::Candidate, true, Some(&critical), at(10), &settings).unwrap();
    assert_eq!((event.to_status, event.to_percent), (ReleaseStatus::Held, 10));
    assert_eq!(run.tick(at(99 * 86_400), &settings), None, "held stays");
    run.command(Command::Resume, "ann", 1, at(1000), &settings).unwrap();
    assert_eq!((run.step, run.release.step_started_at), (StepCounts::default(), at(1000)));
}

#[test]
fn commands_check_version_and_status() {
    let (mut run, settings) = (start("4week"), ReleaseSettings::default());
    let paused = run.command(Command::Pause, "ann", 0, at(100), &settings).unwrap();
    assert_eq!(
        (paused.to_status, paused.to_percent, paused.by.as_deref()),
        (ReleaseStatus::Paused, 0, Some("ann"))
    );
    let stale = run.command(Command::Resume, "bob", 0, at(200), &settings);
    assert_eq!(stale, Err(Error::Stale { expected: 0, found: 1 }));
    assert!(run.command(Command::Promote, "bob", 1, at(200), &settings).is_err(), "paused");
    assert_eq!(run.observe(Side::Candidate, false, None, at(200), &settings), None);
    assert_eq!(run.whole, StepCounts::default(), "nothing counts while paused");
    run.command(Command::Resume, "bob", 1, at(400), &settings).unwrap();
    assert_eq!(run.release.step_started_at, at(300), "the pause is not counted as time");
    let forced = run.command(Command::Promote, "bob", 2, at(500), &settings).unwrap();
    assert_eq!(forced.to_percent, 25);
    assert!(forced.reasons.iter().any(|reason| reason.starts_with("against the evidence")), "{forced:?}");
    run.command(Command::Abort, "bob", 3, at(600), &settings).unwrap();
    for command in [Command::Promote, Command::Hold, Command::Pause, Command::Resume, Command::Abort] {
        assert!(run.command(command, "bob", 4, at(700), &settings).is_err(), "{command:?} after the end");
    }
}

#[test]
fn a_step_can_wait_for_a_person_or_end_without_evidence() {
    let settings = ReleaseSettings::default();
    let mut run = start("4week");
    run.release.steps[0].approval = Approval::Human;
    measure_control(&mut run, &settings);
    for _ in 0..205 {
        run.observe(Side::Candidate, true, Some(&SAFE), at(0), &settings);
    }
    let event = run.tick(at(7 * 86_400), &settings).unwrap();
    assert_eq!((event.to_status, event.to_percent), (ReleaseStatus::Held, 10));
    assert_eq!(run.command(Command::Promote, "ann", 1, at(8 * 86_400), &settings).unwrap().to_percent, 25);
    let mut strict = start("4week");
    strict.release.steps[0].on_inconclusive = OnInconclusive::Abort;
    assert_eq!(strict.tick(at(86_400), &settings), None);
    assert_eq!(strict.tick(at(7 * 86_400), &settings).unwrap().to_status, ReleaseStatus::Aborted);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F66_a_restart_in_a_step_changes_nothing() {
    let mut run = start("4week");
    let mut random = ChaCha8Rng::seed_from_u64(6);
    // Eleven days in steps of five minutes.
    drive(&mut run, &mut random, 3168, 300, 0.9, SAFE);
    assert_eq!(run.current().percent, 25);
    let mut restored: ReleaseRun = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(restored, run);
    assert_eq!(restored.percent(100), 25);
    for unit in 0..1000 {
        let unit = format!("user-{unit}");
        assert_eq!(restored.meets_candidate(&unit, 100), run.meets_candidate(&unit, 100));
    }
    // The operator's cap lowers the share and cannot lift it.
    assert_eq!([0, 10, 25, 50, 100].map(|cap| restored.percent(cap)), [0, 10, 25, 25, 25]);
    let (mut here, mut there) = (ChaCha8Rng::seed_from_u64(7), ChaCha8Rng::seed_from_u64(7));
    assert_eq!(
        drive(&mut run, &mut here, 30_000, 60, 0.9, SAFE),
        drive(&mut restored, &mut there, 30_000, 60, 0.9, SAFE)
    );
    assert_eq!(restored, run);
}

/// A release whose first step has everything but what a test takes away.
fn proven(settings: &ReleaseSettings) -> ReleaseRun {
    let mut run = start("4week");
    measure_control(&mut run, settings);
    for _ in 0..300 {
        run.observe(Side::Candidate, true, Some(&SAFE), at(0), settings);
    }
    run
}

fn missing(run: &ReleaseRun, seconds: i64, settings: &ReleaseSettings) -> Vec<String> {
    match run.assess(at(seconds), settings) {
        Assessment::Wait(missing) => missing,
        Assessment::Ready(_) => Vec::new(),
    }
}

const WEEK: i64 = 7 * 86_400;

#[test]
fn a_control_that_nobody_measured_is_nothing_to_keep_up_with() {
    let settings = ReleaseSettings::default();
    let mut run = start("4week");
    // Half of the answers fail, and nothing is known of the control.
    for step in 0..300 {
        run.observe(Side::Candidate, step % 2 == 0, Some(&SAFE), at(0), &settings);
    }
    assert_eq!(run.tick(at(WEEK), &settings), None);
    assert_eq!(missing(&run, WEEK, &settings), ["the control was not measured: 0 outcomes of at least 100"]);
    // The control is as bad at the same time, whatever it was before: that is what counts.
    for step in 0..100 {
        run.observe(Side::Control, step % 2 == 0, None, at(0), &settings);
    }
    let missing = missing(&run, WEEK, &settings);
    assert!(missing.len() == 1 && missing[0].ends_with("is above 0.450"), "{missing:?}");
    let good = proven(&settings);
    assert!(matches!(good.assess(at(WEEK), &settings), Assessment::Ready(_)));
}

#[test]
fn a_step_above_the_operators_limit_waits_and_nobody_can_force_it() {
    for (cap, next) in [(5, None), (24, None), (25, Some(25))] {
        let settings = ReleaseSettings { cap, ..ReleaseSettings::default() };
        let mut run = proven(&settings);
        let moved = run.tick(at(WEEK), &settings).map(|event| event.to_percent);
        assert_eq!(moved, next, "{cap}");
        if next.is_none() {
            assert_eq!(missing(&run, WEEK, &settings), [format!("the operator's limit is {cap} %")]);
            let refused = run.command(Command::Promote, "ann", 0, at(WEEK), &settings).unwrap_err();
            assert!(refused.to_string().contains(&format!("the operator's limit is {cap} %")), "{refused}");
            assert_eq!(run.percent(settings.cap), cap.min(10));
            // A plan that ends what is inconclusive does not end what only has to wait.
            run.release.steps[0].on_inconclusive = OnInconclusive::Abort;
            assert_eq!(run.tick(at(WEEK), &settings), None);
        }
    }
}

#[test]
fn every_step_waits_for_a_person_where_the_settings_say_so() {
    let settings = ReleaseSettings { human: true, ..ReleaseSettings::default() };
    let mut run = proven(&settings);
    let event = run.tick(at(WEEK), &settings).unwrap();
    assert_eq!((event.to_status, event.to_percent), (ReleaseStatus::Held, 10));
    assert_eq!(run.command(Command::Promote, "ann", 1, at(WEEK), &settings).unwrap().to_percent, 25);
}

#[test]
fn a_suspect_does_not_go_on() {
    let settings = ReleaseSettings::default();
    let mut run = proven(&settings);
    run.suspect = true;
    assert_eq!(run.tick(at(WEEK), &settings), None);
    assert_eq!(missing(&run, WEEK, &settings), ["the candidate's last window was degraded"]);
    run.suspect = false;
    assert_eq!(run.tick(at(WEEK), &settings).unwrap().to_percent, 25);
}

#[test]
fn time_in_which_nothing_may_move_is_no_time_of_a_step() {
    let settings = ReleaseSettings::default();
    let mut run = proven(&settings);
    // Everything stands from 1,000 on and is noticed later; the release is paused and resumed meanwhile.
    run.stand(Some(at(1000)), at(1200));
    assert_eq!(run.tick(at(WEEK), &settings), None, "it stands");
    assert!(missing(&run, WEEK, &settings).contains(&"it stands still".to_owned()));
    assert!(run.command(Command::Promote, "ann", 0, at(2000), &settings).is_err());
    let before = run.step;
    run.observe(Side::Candidate, false, Some(&SAFE), at(2000), &settings);
    assert_eq!(run.step, before, "nothing counts");
    run.command(Command::Pause, "ann", 0, at(2000), &settings).unwrap();
    run.command(Command::Resume, "ann", 1, at(3000), &settings).unwrap();
    run.stand(Some(at(3000)), at(3000));
    run.stand(None, at(5000));
    assert_eq!(run.release.step_started_at, at(4000), "4,000 seconds, and none of them twice");
    assert_eq!(run.tick(at(WEEK + 3999), &settings), None);
    assert_eq!(run.tick(at(WEEK + 4000), &settings).unwrap().to_percent, 25);
}

#[test]
fn a_hold_and_an_incident_outlast_a_pause() {
    let settings = ReleaseSettings::default();
    let critical = SafetyOutcome { critical: true, ..SAFE };
    let mut run = proven(&settings);
    run.observe_safety(&critical, at(10), &settings).unwrap();
    run.command(Command::Pause, "ann", 1, at(20), &settings).unwrap();
    let resumed = run.command(Command::Resume, "ann", 2, at(30), &settings).unwrap();
    assert_eq!((resumed.to_status, run.step.critical), (ReleaseStatus::Held, 1));
    assert_eq!(run.tick(at(2 * WEEK), &settings), None, "held");
    let seen = run.command(Command::Resume, "ann", 3, at(40), &settings).unwrap();
    assert_eq!(seen.to_status, ReleaseStatus::Running);
    assert_eq!((run.step, run.release.step_started_at), (StepCounts::default(), at(40)));
    // One that becomes known in a pause is there after it.
    run.command(Command::Pause, "ann", 4, at(50), &settings).unwrap();
    assert_eq!(run.observe_safety(&critical, at(60), &settings), None);
    let resumed = run.command(Command::Resume, "ann", 5, at(70), &settings).unwrap();
    assert_eq!((resumed.to_status, run.step.critical), (ReleaseStatus::Held, 1));
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F71_fifty_answers_prove_nothing_however_long_it_takes() {
    let settings = ReleaseSettings::default();
    let mut run = start("4week");
    measure_control(&mut run, &settings);
    for _ in 0..50 {
        run.observe(Side::Candidate, true, Some(&SAFE), at(0), &settings);
    }
    for weeks in 1..50 {
        assert_eq!(run.tick(at(weeks * WEEK), &settings), None);
        assert_eq!(missing(&run, weeks * WEEK, &settings)[0], "50 outcomes of at least 205");
    }
    assert_eq!((run.release.status, run.percent(100)), (ReleaseStatus::Running, 10));
}

#[test]
fn what_judges_itself_goes_on_by_people_alone() {
    let settings = ReleaseSettings::default();
    for (kind, rate) in [(ReleaseKind::Judge, 0.2), (ReleaseKind::Policy, 1.0), (ReleaseKind::Weights, 1.0)] {
        let mut run = start("4week");
        run.release.kind = kind;
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let events = drive(&mut run, &mut random, 4_000, 1, rate, SAFE);
        assert!(events.is_empty(), "{kind:?}: {events:?}");
        let event = run.tick(at(8 * 86_400), &settings).unwrap();
        let status = if kind == ReleaseKind::Weights { ReleaseStatus::Running } else { ReleaseStatus::Held };
        assert_eq!(event.to_status, status, "{kind:?}: {event:?}");
        let said = event.reasons.join(" ");
        assert_eq!(said.contains("waits for a person"), kind != ReleaseKind::Weights, "{said}");
    }
}
