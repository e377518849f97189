use proptest::prelude::*;

use super::*;
use crate::special::beta_cdf;

const RULES: [ChooseRule; 4] =
    [ChooseRule::EpsilonGreedy, ChooseRule::Ucb1, ChooseRule::Thompson, ChooseRule::Linucb];

fn value(sum: f64, visits: u64) -> Value {
    Value { sum, visits, ..Value::default() }
}

fn chances(rule: ChooseRule, floor: f64, values: &[Value]) -> Vec<f64> {
    let arms: Vec<Arm<'_>> = values.iter().map(|value| Arm { value, linear: None }).collect();
    let settings = ChooseSettings { rule, floor, ..ChooseSettings::default() };
    probabilities(&arms, &settings, &RequestContext::default())
}

proptest! {
    #[test]
    fn chances_sum_to_one_and_keep_the_floor(
        counts in prop::collection::vec((0_u64..100_000, 0.0_f64..=1.0), 1..25),
        rule in 0_usize..4,
    ) {
        let values: Vec<Value> = counts.iter().map(|(n, mean)| value(*n as f64 * mean, *n)).collect();
        let chances = chances(RULES[rule], 0.05, &values);
        prop_assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let floor = if values.len() <= 20 { 0.05 } else { 1.0 / values.len() as f64 };
        prop_assert!(chances.iter().all(|chance| *chance >= floor - 1e-12), "{chances:?}");
    }
}

#[test]
fn epsilon_greedy_spreads_its_part_evenly() {
    let shares = chances(ChooseRule::EpsilonGreedy, 0.0, &[value(8.0, 10), value(5.0, 10)]);
    assert!((shares[0] - 0.95).abs() < 1e-12 && (shares[1] - 0.05).abs() < 1e-12);
    let untried = chances(ChooseRule::EpsilonGreedy, 0.0, &[value(8.0, 10), value(0.0, 0)]);
    assert!(untried[1] > 0.9);
}

#[test]
fn ucb1_prefers_the_unknown_and_then_the_better() {
    assert_eq!(chances(ChooseRule::Ucb1, 0.0, &[value(8.0, 10), value(0.0, 0)]), [0.0, 1.0]);
    assert_eq!(chances(ChooseRule::Ucb1, 0.0, &[value(800.0, 1000), value(5.0, 10)]), [0.0, 1.0]);
    assert_eq!(chances(ChooseRule::Ucb1, 0.0, &[value(800.0, 1000), value(500.0, 1000)]), [1.0, 0.0]);
}

/// Beta(1, 1) against Beta(4, 2): the chance that the second is larger is its mean, 4/6.
#[test]
fn thompson_gives_the_chance_of_being_the_best() {
    let shares = chances(ChooseRule::Thompson, 0.0, &[value(0.0, 0), value(3.0, 4)]);
    assert!((shares[1] - 4.0 / 6.0).abs() < 1e-3, "{shares:?}");
    let equal = chances(ChooseRule::Thompson, 0.0, &[value(70.0, 100), value(70.0, 100), value(70.0, 100)]);
    assert!(equal.iter().all(|share| (share - 1.0 / 3.0).abs() < 1e-9));
    let clear = chances(ChooseRule::Thompson, 0.05, &[value(90_000.0, 100_000), value(40_000.0, 100_000)]);
    assert!((clear[0] - 0.95).abs() < 1e-6, "{clear:?}");
}

/// A narrow posterior beside a wide one is all but a point: the wide one's own distribution gives the chance.
#[test]
fn thompson_holds_where_the_posteriors_differ_much() {
    let shares = chances(ChooseRule::Thompson, 0.0, &[value(60_000.0, 100_000), value(1.0, 2)]);
    let expected = beta_cdf(0.6, 2.0, 2.0);
    assert!((shares[0] - expected).abs() < 0.01, "{shares:?}, not {expected}");
}

#[test]
fn linucb_learns_which_request_suits_whom() {
    let short = RequestContext { length: 10, ..RequestContext::default() };
    let long = RequestContext {
        length: 50_000,
        complexity: waltz_exchange::variant::Complexity::High,
        ..short.clone()
    };
    let (mut brief, mut thorough) = (Linear::default(), Linear::default());
    for _ in 0..200 {
        brief.observe(&short, 0.9);
        brief.observe(&long, 0.3);
        thorough.observe(&short, 0.5);
        thorough.observe(&long, 0.8);
    }
    let nothing = Value::default();
    let arms =
        [Arm { value: &nothing, linear: Some(&brief) }, Arm { value: &nothing, linear: Some(&thorough) }];
    let settings = ChooseSettings { rule: ChooseRule::Linucb, floor: 0.0, ..ChooseSettings::default() };
    assert_eq!(probabilities(&arms, &settings, &short), [1.0, 0.0]);
    assert_eq!(probabilities(&arms, &settings, &long), [0.0, 1.0]);
}

#[test]
fn linucb_stays_finite_after_many_outcomes() {
    let mut model = Linear::default();
    let context =
        RequestContext { language: "de".into(), length: 100, urgency: 0.3, ..RequestContext::default() };
    for step in 0..50_000 {
        model.observe(&context, f64::from(step % 2));
    }
    let nothing = Value::default();
    let arms = [Arm { value: &nothing, linear: Some(&model) }, Arm { value: &nothing, linear: None }];
    let settings = ChooseSettings { rule: ChooseRule::Linucb, ..ChooseSettings::default() };
    let shares = probabilities(&arms, &settings, &context);
    assert!(shares.iter().all(|share| share.is_finite()) && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
}
