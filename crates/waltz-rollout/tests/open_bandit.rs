//! Estimates on logged choices of a real shop, with true chances: from what one policy logged, the value of the other.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and figures are shown"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use waltz_rollout::offpolicy::{Estimates, Taken, UnderPolicy};

/// A choice of the Open Bandit data set.
#[derive(Deserialize)]
struct Shown {
    policy: String,
    campaign: String,
    position: u32,
    item: u32,
    p: f64,
    click: f64,
}

type Policy = BTreeMap<String, f64>;

/// The data set is not part of this repository: `WALTZ_BANDIT_DATA` names the file, or it lies where shared data is. Without
/// it there is nothing to measure.
fn read() -> Option<Vec<Shown>> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/aux_open_bandit.jsonl");
    let named = std::env::var_os("WALTZ_BANDIT_DATA").map(PathBuf::from);
    if named.is_none() && !PathBuf::from(usual).exists() {
        println!("hint: WALTZ_BANDIT_DATA=FILE checks the estimates on logged choices");
        return None;
    }
    let text = std::fs::read_to_string(named.unwrap_or_else(|| usual.into())).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// What a policy does, as far as its log tells: the mean of an item's chances, and nothing for what it never showed.
fn policy_of(log: &[&Shown]) -> Policy {
    let mut chances: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for shown in log {
        let (sum, n) = chances.entry(shown.item.to_string()).or_default();
        (*sum, *n) = (*sum + shown.p, *n + 1.0);
    }
    let all: f64 = chances.values().map(|(sum, n)| sum / n).sum();
    chances.into_iter().map(|(item, (sum, n))| (item, sum / n / all)).collect()
}

fn estimated(log: &[&Shown], policy: &Policy, reward: &dyn Fn(&Shown) -> f64) -> Estimates {
    let mut under = UnderPolicy::new(policy.clone()).unwrap();
    for shown in log {
        let action = shown.item.to_string();
        under.add(Taken { action: &action, action_prob: shown.p, reward: reward(shown) }).unwrap();
    }
    under.estimates().unwrap()
}

/// IPS, clipped IPS, SNIPS and DR, written down from their definitions, each with the terms that it is the mean of.
fn by_definition(log: &[&Shown], policy: &Policy, reward: &dyn Fn(&Shown) -> f64) -> [(f64, Vec<f64>); 4] {
    let target = |item: u32| policy.get(&item.to_string()).copied().unwrap_or(0.0);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let weights: Vec<f64> = log.iter().map(|shown| target(shown.item) / shown.p).collect();
    let rewards: Vec<f64> = log.iter().map(|shown| reward(shown)).collect();
    let terms = |term: &dyn Fn(usize) -> f64| (0..log.len()).map(term).collect::<Vec<f64>>();
    let ips = terms(&|at| weights[at] * rewards[at]);
    let clipped = terms(&|at| weights[at].min(10.0) * rewards[at]);
    let snips = ips.iter().sum::<f64>() / weights.iter().sum::<f64>();
    // Around SNIPS, the terms of a ratio spread as these do.
    let ratio = terms(&|at| snips + weights[at] * (rewards[at] - snips) / mean(&weights));
    let model = |half: usize, item: Option<u32>| {
        let of: Vec<f64> = (half..log.len())
            .step_by(2)
            .filter(|at| item.is_none_or(|item| log[*at].item == item))
            .map(|at| rewards[at])
            .collect();
        (!of.is_empty()).then(|| mean(&of))
    };
    let models: [BTreeMap<String, f64>; 2] = [0, 1].map(|half| {
        let known = |item: &String| model(half, item.parse().ok()).or(model(half, None)).unwrap();
        let items = log.iter().map(|shown| shown.item.to_string()).chain(policy.keys().cloned());
        items.map(|item| (item.clone(), known(&item))).collect()
    });
    let dr = terms(&|at| {
        let model = &models[1 - at % 2];
        let direct: f64 = policy.iter().map(|(item, chance)| chance * model[item]).sum();
        direct + weights[at] * (rewards[at] - model[&log[at].item.to_string()])
    });
    [(mean(&ips), ips), (mean(&clipped), clipped), (snips, ratio), (mean(&dr), dr)]
}

fn standard_error(terms: &[f64]) -> f64 {
    let n = terms.len() as f64;
    let mean = terms.iter().sum::<f64>() / n;
    (terms.iter().map(|term| (term - mean).powi(2)).sum::<f64>() / n / (n - 1.0)).sqrt()
}

/// All four estimates are what their definitions say, and find the truth within four standard errors. Clipping may cost
/// what it cut off, and no more.
fn check(
    name: &str,
    log: &[&Shown],
    policy: &Policy,
    reward: &dyn Fn(&Shown) -> f64,
    (truth, truth_error): (f64, f64),
) {
    let found = estimated(log, policy, reward);
    let Estimates { n, ips, clipped_ips, snips, snips_error, dr, effective_n, .. } = found;
    println!("{name}: truth {truth:.5}, {found:?}");
    assert_eq!(n, log.len());
    assert!(effective_n < n as f64, "{name}: the policies differ");
    let defined = by_definition(log, policy, reward);
    let cut = defined[0].0 - defined[1].0;
    for (at, value) in [ips, clipped_ips, snips, dr].into_iter().enumerate() {
        let (expected, terms) = &defined[at];
        assert!((value - expected).abs() < 1e-9, "{name}: estimate {at} is {value}, not {expected}");
        let error = standard_error(terms).hypot(truth_error);
        let lost = if at == 1 { cut } else { 0.0 };
        assert!(
            (value + lost - truth).abs() < 4.0 * error,
            "{name}: estimate {at} is {value}, truth {truth}"
        );
    }
    let ratio_error = standard_error(&defined[2].1);
    assert!((snips_error / ratio_error.max(1e-9) - 1.0).abs() < 0.01, "{name}: {snips_error}, {ratio_error}");
}

#[test]
fn what_one_policy_logged_tells_the_value_of_the_other() {
    let Some(rows) = read() else { return };
    let mut places: Vec<(&str, u32)> = rows.iter().map(|row| (row.campaign.as_str(), row.position)).collect();
    places.sort_unstable();
    places.dedup();
    assert!(!places.is_empty());
    for (campaign, position) in places {
        let of = |policy: &str| -> Vec<&Shown> {
            let here = |row: &&Shown| row.campaign == campaign && row.position == position;
            rows.iter().filter(here).filter(|row| row.policy == policy).collect()
        };
        let logs = [("random", of("random")), ("bts", of("bts"))];
        // What the second policy likes to show.
        let liked = policy_of(&logs[1].1);
        let middle = median(liked.values().copied());
        let worth =
            |item: &str| if liked.get(item).is_some_and(|chance| *chance > middle) { 0.125 } else { 0.875 };
        for ((from, log), (to, other)) in [(&logs[0], &logs[1]), (&logs[1], &logs[0])] {
            let name = format!("{campaign} {position}, {to} from {from}");
            let policy = policy_of(other);
            // Clicks are rare, so that they tell little; their truth is what the other policy earned.
            let clicks: Vec<f64> = other.iter().map(|row| row.click).collect();
            let mean = clicks.iter().sum::<f64>() / clicks.len() as f64;
            let naive = log.iter().map(|row| row.click).sum::<f64>();
            if naive > 0.0 {
                let truth = (mean, standard_error(&clicks));
                check(&format!("clicks, {name}"), log, &policy, &|row| row.click, truth);
            }
            // A reward of the item alone has a truth that is known exactly, and far from the logged mean.
            let by_item = |row: &Shown| worth(&row.item.to_string());
            let truth: f64 = policy.iter().map(|(item, chance)| chance * worth(item)).sum();
            let logged = log.iter().map(|row| by_item(row)).sum::<f64>() / log.len() as f64;
            assert!((logged - truth).abs() > 0.1, "{name}: {logged} as logged, {truth} in truth");
            check(&format!("items, {name}"), log, &policy, &by_item, (truth, 0.0));
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
