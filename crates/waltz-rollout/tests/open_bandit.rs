//! Estimates on logged choices of a real shop, with true chances: from what one policy logged, the value of the other.

use serde_json::Value;
use waltz_rollout::offpolicy::{Logged, estimate};

/// Rows of the Open Bandit data set (`{policy, campaign, click, p, ...}`) are not part of this repository:
/// `WALTZ_BANDIT_DATA` names the file, and without it there is nothing to measure.
#[test]
fn what_one_policy_logged_tells_the_value_of_the_other() {
    let Ok(path) = std::env::var("WALTZ_BANDIT_DATA") else {
        println!("hint: WALTZ_BANDIT_DATA=FILE checks the estimates on logged choices");
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut campaigns: Vec<&str> = rows.iter().map(|row| row["campaign"].as_str().unwrap()).collect();
    campaigns.sort_unstable();
    campaigns.dedup();
    assert!(!campaigns.is_empty());
    for campaign in campaigns {
        let of = |policy: &str| -> Vec<&Value> {
            rows.iter().filter(|row| row["campaign"] == campaign && row["policy"] == policy).collect()
        };
        let (random, sampled) = (of("random"), of("bts"));
        let click = |row: &Value| row["click"].as_f64().unwrap();
        // The random policy gives every item the same chance, whatever the other one did.
        let even = random[0]["p"].as_f64().unwrap();
        let mean = random.iter().map(|row| click(row)).sum::<f64>() / random.len() as f64;
        let log = |row: &&Value| Logged {
            reward: click(row),
            action_prob: row["p"].as_f64().unwrap(),
            target_prob: even,
            expected: mean,
            expected_target: mean,
        };
        let own: Vec<Logged> = random.iter().map(log).collect();
        let same = estimate(&own).unwrap();
        for value in [same.ips, same.snips, same.dr] {
            assert!((value - mean).abs() < 1e-9, "{campaign}: {same:?}");
        }
        let crossed: Vec<Logged> = sampled.iter().map(log).collect();
        let other = estimate(&crossed).unwrap();
        let error = (other.snips_error.powi(2) + mean * (1.0 - mean) / random.len() as f64).sqrt();
        println!("{campaign}: clicks {mean:.5}, estimated {other:?}");
        assert!((other.snips - mean).abs() < 3.0 * error, "{campaign}: {other:?}, not {mean}");
        assert!(other.effective_n < other.n as f64, "the policies differ");
    }
}
