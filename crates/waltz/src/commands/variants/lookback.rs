//! `waltz variants lookback`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use waltz_rollout::offpolicy::{Estimates, Logged, Taken, estimate, under_policy};

use crate::commands::eval::wrong;
use crate::commands::{Exit, lines, print};

/// Estimate what another way of choosing would have earned, from logged choices.
///
/// FILE holds one choice a line: what was chosen, with which chance, and the reward that came of it (0 to 1).
///
///   {"action": "default", "action_prob": 0.9, "reward": 1}
///
/// --policy gives the other way: `--policy default=0.2,careful=0.8`. Or each line says with which chance the other way would
/// have chosen the same, `"target_prob": 0.2`; then also what a model expects, if there is one: `"expected"` of what was
/// chosen and `"expected_target"` of the other way.
///
/// Trust SNIPS first, then DR, then IPS. Below an effective sample of 100 the numbers decide nothing: the ways are too
/// different for what was logged.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Lookback {
    /// Logged choices, JSON lines; `-` or nothing reads standard input.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The other way: actions with their chances, which add up to 1.
    #[arg(long, value_name = "ACTION=P,...", value_parser = policy)]
    policy: Option<BTreeMap<String, f64>>,
}

/// A line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    action: String,
    action_prob: f64,
    reward: f64,
    target_prob: Option<f64>,
    #[serde(default)]
    expected: f64,
    #[serde(default)]
    expected_target: f64,
}

fn policy(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let mut policy = BTreeMap::new();
    for part in text.split(',') {
        let pair =
            part.split_once('=').and_then(|(name, chance)| Some((name.trim(), chance.trim().parse().ok()?)));
        let (name, chance) = pair.ok_or_else(|| format!("expected ACTION=P, not `{part}`"))?;
        if policy.insert(name.to_owned(), chance).is_some() {
            return Err(format!("`{name}` is there twice"));
        }
    }
    Ok(policy)
}

impl Lookback {
    pub(crate) fn run(self, as_json: bool) -> Result<(), Exit> {
        let mut read: Vec<Line> = Vec::new();
        lines::for_each(self.file.as_deref(), |line| {
            read.push(line);
            Ok(())
        })?;
        let modelled = self.policy.is_some() || read.iter().any(|line| line.expected_target > 0.0);
        let rows = match &self.policy {
            Some(policy) => {
                let taken: Vec<Taken<'_>> = read.iter().map(Line::taken).collect();
                under_policy(&taken, policy).map_err(|error| wrong(error.to_string()))?
            }
            None => {
                read.iter().enumerate().map(|(at, line)| line.logged(at + 1)).collect::<Result<_, _>>()?
            }
        };
        let found = estimate(&rows).map_err(|error| wrong(error.to_string()))?;
        let logged = read.iter().map(|line| line.reward).sum::<f64>() / read.len() as f64;
        if as_json {
            return print(&json!({"logged_mean": logged, "estimates": found}).to_string());
        }
        for line in told(logged, &found, modelled) {
            print(&line)?;
        }
        Ok(())
    }
}

impl Line {
    fn taken(&self) -> Taken<'_> {
        Taken { action: &self.action, action_prob: self.action_prob, reward: self.reward }
    }

    fn logged(&self, number: usize) -> Result<Logged, Exit> {
        let Self { action_prob, reward, expected, expected_target, .. } = *self;
        let target_prob = self
            .target_prob
            .ok_or_else(|| wrong(format!("choice {number} has no `target_prob`; give it, or --policy")))?;
        Ok(Logged { reward, action_prob, target_prob, expected, expected_target })
    }
}

fn told(logged: f64, found: &Estimates, modelled: bool) -> Vec<String> {
    let Estimates { n, ips, clipped_ips, snips, snips_error, dr, effective_n, decisive } = *found;
    let (low, high) = (snips - 1.96 * snips_error, snips + 1.96 * snips_error);
    let model = if modelled { "" } else { " (without a model it is IPS)" };
    let verdict = if decisive {
        "enough to decide by"
    } else {
        "too few to decide by: log more, or look at a way that is more alike"
    };
    vec![
        format!("mean reward of {n} logged choices: {logged:.4}"),
        String::new(),
        "| estimate of the other way | mean reward |".to_owned(),
        "|---|---|".to_owned(),
        format!("| SNIPS | {snips:.4} [{low:.4}, {high:.4}] |"),
        format!("| DR{model} | {dr:.4} |"),
        format!("| IPS, weights of at most 10 | {clipped_ips:.4} |"),
        format!("| IPS | {ips:.4} |"),
        String::new(),
        format!("effective sample: {effective_n:.1} of {n}, {verdict}"),
    ]
}
