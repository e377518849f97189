//! `waltz variants lookback`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::json;
use waltz_rollout::offpolicy::{Estimates, Logged, Taken, UnderPolicy, estimate};
use waltz_rollout::reward;
use waltz_store::LearnedChoice;

use super::{Office, Who};
use crate::commands::eval::wrong;
use crate::commands::{Exit, lines, print, runtime};

/// Estimate what another way of choosing would have earned, from logged choices.
///
/// With --agent the choices are those that the gateways recorded, with the rewards that were learned of them: what would the
/// agent have earned if --variant had always served, or with the chances of --policy? Choices that could not have gone
/// that way are left out, and their number is told.
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
    #[arg(value_name = "FILE", conflicts_with = "agent")]
    file: Option<PathBuf>,
    /// The agent whose recorded choices are looked at, in place of a file.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only choices for this kind of task.
    #[arg(long, value_name = "TYPE", requires = "agent")]
    task_type: Option<String>,
    /// The other way: always this one.
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    variant: Option<String>,
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

/// What came out.
struct Found {
    logged_mean: f64,
    /// DR had a model.
    modelled: bool,
    /// Choices that could not have gone the other way.
    left_out: usize,
    estimates: Estimates,
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

fn refused(error: waltz_rollout::Error) -> Exit {
    wrong(error.to_string())
}

impl Lookback {
    pub(crate) fn run(self, who: &Who) -> Result<(), Exit> {
        let always = self.variant.as_ref().map(|variant| BTreeMap::from([(variant.clone(), 1.0)]));
        let found = match (&self.agent, always.or_else(|| self.policy.clone())) {
            (Some(agent), Some(policy)) => {
                runtime()?.block_on(recorded(who, agent, self.task_type.as_deref(), policy))?
            }
            (Some(_), None) => return Err(wrong("name the other way with --variant or --policy".to_owned())),
            (None, Some(policy)) => self.read_under(policy)?,
            (None, None) => self.read()?,
        };
        if who.json {
            let Found { logged_mean, left_out, estimates, .. } = found;
            let told = json!({"logged_mean": logged_mean, "left_out": left_out, "estimates": estimates});
            return print(&told.to_string());
        }
        found.told().iter().try_for_each(|line| print(line))
    }

    /// The file's choices beside a policy.
    fn read_under(&self, policy: BTreeMap<String, f64>) -> Result<Found, Exit> {
        let mut log = UnderPolicy::new(policy).map_err(refused)?;
        lines::for_each(self.file.as_deref(), |line: Line| {
            let Line { action, action_prob, reward, .. } = &line;
            log.add(Taken { action, action_prob: *action_prob, reward: *reward }).map_err(refused)
        })?;
        Found::of(&log, 0)
    }

    /// The file's choices beside the chances that it gives itself.
    fn read(&self) -> Result<Found, Exit> {
        let mut rows: Vec<Logged> = Vec::new();
        lines::for_each(self.file.as_deref(), |line: Line| {
            rows.push(line.logged(rows.len() + 1)?);
            Ok(())
        })?;
        let estimates = estimate(rows.iter().copied()).map_err(refused)?;
        Ok(Found {
            logged_mean: rows.iter().map(|row| row.reward).sum::<f64>() / rows.len() as f64,
            modelled: rows.iter().any(|row| row.expected_target > 0.0),
            left_out: 0,
            estimates,
        })
    }
}

/// What the gateways recorded beside a policy.
async fn recorded(
    who: &Who,
    agent: &str,
    task_type: Option<&str>,
    policy: BTreeMap<String, f64>,
) -> Result<Found, Exit> {
    let mut log = UnderPolicy::new(policy.clone()).map_err(refused)?;
    let mut left_out = 0;
    let office = Office::open(who).await?;
    let read =
        office.store.each_learned_choice(agent, task_type, |LearnedChoice { choice, outcome, .. }| {
            // A variant that could not serve says nothing of what it would have earned there.
            let possible = |(name, chance): (&String, &f64)| {
                *chance == 0.0 || choice.candidates.get(name).is_some_and(|chance| *chance > 0.0)
            };
            if !policy.iter().all(possible) {
                left_out += 1;
                return Ok(());
            }
            // A failure of the infrastructure is nobody's merit or fault.
            let Some(reward) = reward(&outcome)? else { return Ok(()) };
            log.add(Taken { action: &choice.variant, action_prob: choice.action_prob, reward })?;
            Ok::<(), anyhow::Error>(())
        });
    let read = read.await.context("cannot look back at what was recorded");
    office.close().await.context("cannot close the store")?;
    read?;
    let names: Vec<String> = policy.keys().map(|name| format!("`{name}`")).collect();
    Found::of(&log, left_out).map_err(|exit| {
        let what = format!("agent `{agent}`, {}", names.join(", "));
        Exit { message: format!("{what}: {}; {left_out} choices were left out", exit.message), ..exit }
    })
}

impl Line {
    fn logged(&self, number: usize) -> Result<Logged, Exit> {
        let Self { action_prob, reward, expected, expected_target, .. } = *self;
        let target_prob = self
            .target_prob
            .ok_or_else(|| wrong(format!("choice {number} has no `target_prob`; give it, or --policy")))?;
        Ok(Logged { reward, action_prob, target_prob, expected, expected_target })
    }
}

impl Found {
    fn of(log: &UnderPolicy, left_out: usize) -> Result<Self, Exit> {
        let estimates = log.estimates().map_err(refused)?;
        Ok(Self { logged_mean: log.logged_mean(), modelled: true, left_out, estimates })
    }

    fn told(&self) -> Vec<String> {
        let Self { logged_mean, modelled, left_out, estimates } = self;
        let Estimates { n, ips, clipped_ips, snips, snips_error, dr, effective_n, decisive } = *estimates;
        let (low, high) = (snips - 1.96 * snips_error, snips + 1.96 * snips_error);
        let model = if *modelled { "" } else { " (without a model it is IPS)" };
        let verdict = if decisive {
            "enough to decide by"
        } else {
            "too few to decide by: log more, or look at a way that is more alike"
        };
        let mut told = vec![format!("mean reward of {n} logged choices: {logged_mean:.4}")];
        if *left_out > 0 {
            told.push(format!("left out: {left_out} choices that could not have gone the other way"));
        }
        told.extend([
            String::new(),
            "| estimate of the other way | mean reward |".to_owned(),
            "|---|---|".to_owned(),
            format!("| SNIPS | {snips:.4} [{low:.4}, {high:.4}] |"),
            format!("| DR{model} | {dr:.4} |"),
            format!("| IPS, weights of at most 10 | {clipped_ips:.4} |"),
            format!("| IPS | {ips:.4} |"),
            String::new(),
            format!("effective sample: {effective_n:.1} of {n}, {verdict}"),
        ]);
        told
    }
}
