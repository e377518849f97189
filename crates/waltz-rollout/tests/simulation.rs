//! What the rules do over many runs with fixed seeds. `cargo test -p waltz-rollout --test simulation table -- --nocapture`
//! prints the table of the guide.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use waltz_exchange::variant::{OutcomeClass, VariantOutcome};
use waltz_rollout::decide::{Action, Circumstances, action};
use waltz_rollout::evidence::{Shiryaev, TwoSample, ln_e_above};
use waltz_rollout::guard::{Guard, Standing};
use waltz_rollout::window::Recent;
use waltz_rollout::{Board, BoardEvent, Change, DecideSettings, RollbackSettings, Settings, Value};

/// How many of the runs got a number, and the median and the 90th percentile where the others count as never.
struct Delays {
    share: f64,
    median: Option<usize>,
    p90: Option<usize>,
}

fn runs(n: u64, mut run: impl FnMut(&mut ChaCha8Rng) -> Option<usize>) -> Delays {
    let mut hits: Vec<usize> = (0..n).filter_map(|seed| run(&mut ChaCha8Rng::seed_from_u64(seed))).collect();
    hits.sort_unstable();
    let at = |share: f64| hits.get((share * n as f64) as usize).copied();
    Delays { share: hits.len() as f64 / n as f64, median: at(0.5), p90: at(0.9) }
}

fn shown(delay: Option<usize>) -> String {
    delay.map_or("never".to_owned(), |calls| calls.to_string())
}

/// Calls until the guard wants a rollback: 200 good calls at 0.90, then `calls` at `rate`; the first are not counted.
/// A baseline of `None` is estimated from the good calls.
fn guard_delay(
    random: &mut ChaCha8Rng,
    baseline: Option<f64>,
    good: usize,
    rate: f64,
    calls: usize,
) -> Option<usize> {
    let settings = RollbackSettings::default();
    let (mut guard, mut value) = (Guard::default(), Value::default());
    if let Some(baseline) = baseline {
        guard.defend(baseline, baseline);
    }
    (0..good + calls).find_map(|call| {
        let success = random.random_bool(if call < good { 0.9 } else { rate });
        let recent = Recent { success, reward: f64::from(u8::from(success)), errored: !success };
        value.add(recent.reward, success, !success);
        let watch = guard.observe(&value, recent, true, &settings);
        watch.alarm.is_some().then(|| (call + 1).saturating_sub(good))
    })
}

/// The older rule: the last 20 against all so far, these included; success, reward and errors, any of them.
fn older_delay(random: &mut ChaCha8Rng, good: usize, rate: f64, calls: usize) -> Option<usize> {
    let mut outcomes: Vec<bool> = Vec::new();
    let mut successes = 0_usize;
    for call in 0..good + calls {
        // Before the drop the older rule would have fired many times; here it is asked only after it.
        let success = random.random_bool(if call < good { 0.9 } else { rate });
        outcomes.push(success);
        successes += usize::from(success);
        let n = outcomes.len();
        if n < 20 || call < good {
            continue;
        }
        let recent = outcomes[n - 20..].iter().filter(|success| **success).count() as f64 / 20.0;
        let whole = successes as f64 / n as f64;
        let drop = (whole - recent) / whole;
        let rise = if whole < 1.0 { (whole - recent) / (1.0 - whole) } else { 0.0 };
        if drop > 0.10 || rise > 0.20 {
            return Some(call + 1 - good);
        }
    }
    None
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F63_a_healthy_variant_stays() {
    let given = runs(2000, |random| guard_delay(random, Some(0.9), 0, 0.9, 1000));
    assert!(given.share <= 0.01, "{}", given.share);
    // The same through a board that estimates the baseline itself.
    let settings = Settings::default();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let mut start = Board::new("agent", "task", "seed");
    let add = Change::Add { name: "other".into(), patch: Vec::new(), live: false, prior: None };
    start.change(add, "ann", 0, at, &settings).unwrap();
    let mut outcome = VariantOutcome {
        variant: "default".into(),
        class: OutcomeClass::Success,
        quality: None,
        duration_ms: 0.0,
        errors: 0,
        subject: None,
        context: Default::default(),
        safety: None,
    };
    let estimated = runs(2000, |random| {
        let mut board = start.clone();
        (1..=1000).find(|_| {
            let success = random.random_bool(0.9);
            outcome.class = if success { OutcomeClass::Success } else { OutcomeClass::Failure };
            let events = board.observe(&outcome, at, &settings).unwrap();
            events.iter().any(|event| matches!(event, BoardEvent::RolledBack(_) | BoardEvent::Frozen { .. }))
        })
    });
    assert!(estimated.share <= 0.01, "{}", estimated.share);
    // And where clients report every answer as well: as the judge said it, or always well.
    let (mut served, mut report) = (outcome.clone(), outcome.clone());
    for praise in [false, true] {
        let reported = runs(2000, |random| {
            let mut board = start.clone();
            (1..=1000).find(|call| {
                let success = random.random_bool(0.9);
                served.class = if success { OutcomeClass::Success } else { OutcomeClass::Failure };
                report.clone_from(&served);
                report.subject = Some(call.to_string());
                if praise {
                    (report.class, report.quality) = (OutcomeClass::Success, Some(1.0));
                }
                let mut events = board.observe(&served, at, &settings).unwrap();
                events.extend(board.report(&report, Some(&served), at, &settings).unwrap());
                let acts = |event: &BoardEvent| {
                    matches!(event, BoardEvent::RolledBack(_) | BoardEvent::Frozen { .. })
                };
                events.iter().any(acts)
            })
        });
        assert!(reported.share <= 0.01, "{praise}: {}", reported.share);
    }
    println!(
        "false rollbacks: {:.4} with a given baseline, {:.4} with an estimated one",
        given.share, estimated.share
    );
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F64_a_collapse_is_rolled_back_in_time() {
    for (rate, limit) in [(0.0, 8), (0.3, 20), (0.5, 40), (0.75, 200)] {
        let delays = runs(1000, |random| guard_delay(random, Some(0.9), 200, rate, 400));
        let p90 = delays.p90.unwrap();
        assert!(p90 <= limit, "to {rate}: {p90} calls");
        assert!(delays.median.unwrap() > 0);
        let estimated = runs(300, |random| guard_delay(random, None, 200, rate, 2000));
        println!(
            "drop to {rate}: within {p90} calls in 90 %; with a baseline estimated from 200 calls {}",
            shown(estimated.p90)
        );
        assert!(estimated.median.is_some(), "an estimated baseline is slower, not blind");
    }
}

#[test]
fn the_detector_has_the_known_delays_and_false_alarms() {
    let alarm = |random: &mut ChaCha8Rng, threshold: f64, good: usize, rate: f64, calls: usize| {
        let mut detector = Shiryaev::new(0.9);
        (0..good + calls).find_map(|call| {
            let success = random.random_bool(if call < good { 0.9 } else { rate });
            let evidence = detector.observe(f64::from(u8::from(success)));
            (evidence >= threshold).then(|| (call + 1).saturating_sub(good))
        })
    };
    for (threshold, known) in [(1e5, 0.0043), (2e4, 0.0257), (1e4, 0.046), (1e3, 0.386)] {
        let share = runs(4000, |random| alarm(random, threshold, 0, 0.9, 1000)).share;
        assert!((share - known).abs() < 0.004 + 0.06 * known, "{threshold}: {share}, not {known}");
    }
    for (rate, median, p90) in [
        (0.81, 220, 399),
        (0.75, 92, 167),
        (0.70, 57, 102),
        (0.60, 30, 53),
        (0.50, 19, 33),
        (0.30, 10, 17),
        (0.0, 6, 6),
    ] {
        let delays = runs(3000, |random| alarm(random, 1e5, 200, rate, 2000));
        let near = |value: usize, known: usize| value.abs_diff(known) as f64 <= 1.0 + 0.08 * known as f64;
        let (found, found_p90) = (delays.median.unwrap(), delays.p90.unwrap());
        assert!(
            near(found, median) && near(found_p90, p90),
            "{rate}: {found}/{found_p90}, not {median}/{p90}"
        );
    }
}

#[test]
fn the_comparison_has_the_known_delays_and_false_alarms() {
    let rates = [0.81, 0.75, 0.60, 0.50, 0.30];
    for (control, medians) in [
        (19, [176, 66, 19, 12, 6]),
        (9, [198, 75, 22, 13, 7]),
        (3, [246, 97, 27, 17, 8]),
        (1, [383, 146, 43, 26, 12]),
    ] {
        let share = 1.0 / f64::from(control + 1);
        let delay = |random: &mut ChaCha8Rng, rate: f64| {
            let mut process = TwoSample::new(share);
            (1..=1000).find(|_| {
                for _ in 0..control {
                    process.observe(false, random.random_bool(0.9), share);
                }
                process.observe(true, random.random_bool(rate), share) >= 100_f64.ln()
            })
        };
        let alarms = runs(1500, |random| delay(random, 0.9)).share;
        assert!(alarms <= 0.01, "{control}: {alarms}");
        for (rate, known) in rates.into_iter().zip(medians) {
            let median = runs(1000, |random| delay(random, rate)).median.unwrap();
            let near = median.abs_diff(known) as f64 <= 1.0 + 0.12 * known as f64;
            assert!(near, "{control} to 1, {rate}: {median}, not {known}");
        }
    }
}

/// Both sides fall and rise together while the candidate has a twentieth of the traffic and blocks are cut for a half:
/// the control that a block takes must be of the same time.
#[test]
fn a_dip_of_both_sides_is_no_fault_of_the_candidate() {
    let delay = |random: &mut ChaCha8Rng| {
        let mut process = TwoSample::new(0.5);
        (0..40_000).find(|call| {
            let rate = if call / 4000 % 2 == 1 { 0.5 } else { 0.9 };
            let of_candidate = random.random_bool(0.05);
            process.observe(of_candidate, random.random_bool(rate), 0.5) >= 100_f64.ln()
        })
    };
    let alarms = runs(1000, delay).share;
    assert!(alarms <= 0.01, "{alarms}");
}

/// Calls until a variant of rate `p` is applied, of at most 1,000.
fn ours_applies(random: &mut ChaCha8Rng, p: f64, settings: &DecideSettings) -> Option<usize> {
    let weak = Value { visits: 10, sum: 1.0, ..Value::default() };
    let around = Circumstances { standing: Standing::Ok, incumbent: Some(&weak), held: None };
    let mut value = Value::default();
    (1..=1000).find(|_| {
        let success = random.random_bool(p);
        value.add(f64::from(u8::from(success)), success, !success);
        action(&value, &around, settings) == Action::AutoApply
    })
}

/// The older rule: a moving average from 0 with step 0.1 reaches 0.9 after ten or more calls.
fn older_applies(random: &mut ChaCha8Rng, p: f64) -> Option<usize> {
    let mut q = 0.0;
    (1..=1000).find(|n| {
        q += 0.1 * (f64::from(u8::from(random.random_bool(p))) - q);
        q >= 0.9 && *n >= 10
    })
}

#[test]
fn variants_are_applied_at_the_known_rates() {
    let settings = DecideSettings::default();
    for (p, known) in [(0.70, 0.043), (0.75, 0.113), (0.80, 0.244), (0.85, 0.528), (0.90, 0.953), (0.95, 1.0)]
    {
        let share = runs(6000, |random| ours_applies(random, p, &settings)).share;
        assert!((share - known).abs() < 0.02, "{p}: {share}, not {known}");
    }
    let strict = DecideSettings { floor: 0.8, ..settings };
    for (p, known) in [(0.70, 0.0035), (0.80, 0.063), (0.90, 0.918), (0.95, 1.0)] {
        let share = runs(6000, |random| ours_applies(random, p, &strict)).share;
        assert!((share - known).abs() < 0.02, "{p} over 0.8: {share}, not {known}");
    }
}

#[test]
fn a_step_is_promoted_after_the_known_number_of_calls() {
    for (p, floor, median, p90) in
        [(0.90, 0.81, 101, 235), (0.95, 0.855, 58, 135), (0.954, 0.90, 152, 337), (0.98, 0.90, 66, 120)]
    {
        let delays = runs(3000, |random| {
            let mut successes = 0.0;
            (1..=2000).find(|n| {
                successes += f64::from(u8::from(random.random_bool(p)));
                ln_e_above(successes, f64::from(*n as u32), floor) >= 20_f64.ln()
            })
        });
        let near = |value: usize, known: usize| value.abs_diff(known) as f64 <= 2.0 + 0.08 * known as f64;
        let (found, found_p90) = (delays.median.unwrap(), delays.p90.unwrap());
        assert!(near(found, median) && near(found_p90, p90), "{p} over {floor}: {found}/{found_p90}");
    }
}

#[test]
fn table_of_the_older_rule_and_ours() {
    let older = runs(2000, |random| older_delay(random, 0, 0.9, 1000));
    let ours = runs(2000, |random| guard_delay(random, Some(0.9), 0, 0.9, 1000));
    assert!(older.share > 0.999 && ours.share < 0.01);
    println!("| | older rule | ours |\n|---|---|---|");
    println!(
        "| healthy variant of 0.90 rolled back within 1,000 calls | {:.1} % | {:.1} % |",
        100.0 * older.share,
        100.0 * ours.share
    );
    for rate in [0.75, 0.5, 0.3, 0.0] {
        let older = runs(1000, |random| older_delay(random, 200, rate, 1000));
        let ours = runs(1000, |random| guard_delay(random, Some(0.9), 200, rate, 1000));
        println!(
            "| calls to roll back after a drop to {rate}, median / 90 % | {} / {} | {} / {} |",
            shown(older.median),
            shown(older.p90),
            shown(ours.median),
            shown(ours.p90)
        );
    }
    let settings = DecideSettings::default();
    for p in [0.7, 0.8, 0.9, 0.95] {
        let older = runs(2000, |random| older_applies(random, p)).share;
        let ours = runs(2000, |random| ours_applies(random, p, &settings)).share;
        println!(
            "| variant of {p} applied within 1,000 calls | {:.1} % | {:.1} % |",
            100.0 * older,
            100.0 * ours
        );
    }
}
