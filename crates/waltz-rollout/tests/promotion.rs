//! When a live variant takes over by itself, over many runs with fixed seeds: never for the noise of latencies, seldom
//! for luck, and soon where it is better.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail loudly")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use waltz_exchange::variant::{Complexity, OutcomeClass, RequestContext, VariantOutcome};
use waltz_rollout::decide::{Action, Circumstances, action};
use waltz_rollout::guard::Standing;
use waltz_rollout::{Board, BoardEvent, Change, Settings, Value, reward};

/// Both sides of a comparison: how often they succeed, and how long they take at most, in milliseconds.
#[derive(Clone, Copy)]
struct Truth {
    serving: (f64, f64),
    challenger: (f64, f64),
}

fn outcome(random: &mut ChaCha8Rng, variant: &str, (rate, slowest): (f64, f64)) -> VariantOutcome {
    let success = random.random_bool(rate);
    VariantOutcome {
        variant: variant.into(),
        class: if success { OutcomeClass::Success } else { OutcomeClass::Failure },
        quality: Some(f64::from(u8::from(success))),
        duration_ms: random.random_range(0.0..=slowest),
        errors: 0,
        subject: None,
        context: RequestContext { complexity: Complexity::Low, ..RequestContext::default() },
        safety: None,
    }
}

/// Outcomes until the challenger takes over, where both have half of the traffic; none if it does not.
fn takes_over(random: &mut ChaCha8Rng, truth: Truth, outcomes: usize) -> Option<usize> {
    let settings = Settings::default().decide;
    let (mut serving, mut challenger) = (Value::default(), Value::default());
    (1..=outcomes).find(|_| {
        let of_challenger = random.random_bool(0.5);
        let side = if of_challenger { truth.challenger } else { truth.serving };
        let outcome = outcome(random, "any", side);
        let success = outcome.class == OutcomeClass::Success;
        let value = if of_challenger { &mut challenger } else { &mut serving };
        value.add(reward(&outcome).unwrap().unwrap(), success, !success);
        let around = Circumstances { standing: Standing::Ok, incumbent: Some(&serving), held: None };
        of_challenger && action(&challenger, &around, &settings) == Action::AutoApply
    })
}

fn share(runs: u64, mut run: impl FnMut(&mut ChaCha8Rng) -> bool) -> f64 {
    let hits = (0..runs).filter(|seed| run(&mut ChaCha8Rng::seed_from_u64(*seed))).count();
    hits as f64 / runs as f64
}

/// The whole board, as it shares the traffic itself.
#[test]
fn latency_noise_promotes_nobody() {
    let settings = Settings::default();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let mut start = Board::new("writer", "docs", "seed");
    let add = Change::Add { name: "kind".into(), patch: Vec::new(), live: true, prior: None };
    start.change(add, "ann", 0, at, &settings).unwrap();
    for slowest in [1.0, 2_000.0, 20_000.0] {
        for seed in 0..4 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut board = start.clone();
            for request in 0..2_500 {
                let unit = format!("{seed}-{request}");
                let variant = board.choose(&unit, &RequestContext::default(), &settings).variant;
                let outcome = outcome(&mut random, &variant, (1.0, slowest));
                let events = board.observe(&outcome, at, &settings).unwrap();
                let told = |event: &BoardEvent| {
                    matches!(event, BoardEvent::Applied { .. } | BoardEvent::Decided { .. })
                };
                let acts = events.iter().find(|event| told(event));
                assert_eq!(acts, None, "request {request} of at most {slowest} ms");
            }
        }
    }
}

#[test]
fn an_equal_variant_is_seldom_promoted() {
    for (rate, most) in [(1.0, 0.0), (0.99, 0.01), (0.95, 0.02), (0.9, 0.06), (0.85, 0.08)] {
        let side = (rate, 5_000.0);
        let truth = Truth { serving: side, challenger: side };
        let promoted = share(400, |random| takes_over(random, truth, 10_000).is_some());
        println!("equal variants of {rate}: promoted in {:.2} % of 10,000 outcomes", 100.0 * promoted);
        assert!(promoted <= most, "{rate}: {promoted}");
    }
}

#[test]
fn a_better_variant_is_promoted() {
    for (serving, challenger, outcomes) in
        [(0.5, 0.99, 80), (0.7, 0.97, 200), (0.8, 0.97, 500), (0.9, 0.98, 2_000)]
    {
        let truth = Truth { serving: (serving, 5_000.0), challenger: (challenger, 5_000.0) };
        let promoted = share(400, |random| takes_over(random, truth, outcomes).is_some());
        println!("{challenger} beside {serving}: promoted in {:.1} % of {outcomes}", 100.0 * promoted);
        assert!(promoted >= 0.9, "{challenger} beside {serving}: {promoted}");
    }
}
