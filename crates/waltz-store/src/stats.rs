//! Numbers over all exchanges. Every mean and every rate comes with the count it rests on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sessions::count;
use crate::sql::{Row, Statement};
use crate::{Error, Store};

const BY_DECISION: Statement = Statement::both(include_str!("../sql/stats_by_decision.sql"));
const BY_HARM: Statement = Statement::both(include_str!("../sql/stats_by_harm.sql"));

/// Numbers over all exchanges, or over a tenant's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Exchanges.
    pub interactions: u64,
    /// Exchanges whose answer was revised; where a reply of waltz's own was sent, it is not.
    pub coached: u64,
    /// Mean shaped score over choices that took coaching rounds, before ratings.
    pub mean_dir_score: Rate,
    /// Share of judged answers that a complete verdict found free of harm. An answer whose verdict is
    /// incomplete counts as judged and not as safe.
    pub safe_rate: Rate,
    /// Share of judged answers that needlessly refuse.
    pub overrefusal_rate: Rate,
    /// Mean number of rounds over choices that took any.
    pub mean_coaching_rounds: Rate,
    /// Judged answers whose verdict is incomplete: disagreement, time-out and the like.
    pub undecided: u64,
    /// Exchanges by what came of them.
    pub by_decision: Vec<DecisionCount>,
    /// Exchanges in which a text scored 0.5 or more in a category.
    pub by_category: Vec<CategoryCount>,
}

/// A mean or a share, and the count it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The number; `None` when nothing was counted.
    pub value: Option<f64>,
    /// How many were counted.
    pub n: u64,
}

/// How many exchanges ended in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionCount {
    /// The decision's stable name.
    pub decision: String,
    /// How many.
    pub exchanges: u64,
}

/// How many exchanges showed a kind of harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryCount {
    /// The category's stable name.
    pub category: String,
    /// How many.
    pub exchanges: u64,
}

#[derive(Default)]
struct Totals {
    coached_choices: u64,
    rounds: u64,
    dir_score: f64,
    judged: u64,
    safe: u64,
    overrefused: u64,
}

impl Store {
    /// Numbers over a tenant's exchanges, or over all.
    pub async fn stats(&self, tenant: Option<&str>) -> Result<Stats, Error> {
        let operation = "count exchanges";
        let mut stats = Stats::default();
        let mut totals = Totals::default();
        let decisions = self
            .readers
            .fetch_all(BY_DECISION, &[tenant.into()])
            .await
            .map_err(Error::database(operation))?;
        for row in &decisions {
            add_decision(&mut stats, &mut totals, row).map_err(Error::database(operation))?;
        }
        let harms =
            self.readers.fetch_all(BY_HARM, &[tenant.into()]).await.map_err(Error::database(operation))?;
        stats.by_category = categories(&harms).map_err(Error::database(operation))?;
        stats.mean_dir_score = rate(totals.dir_score, totals.coached_choices);
        stats.mean_coaching_rounds = share(totals.rounds, totals.coached_choices);
        stats.safe_rate = share(totals.safe, totals.judged);
        stats.overrefusal_rate = share(totals.overrefused, totals.judged);
        Ok(stats)
    }
}

fn add_decision(stats: &mut Stats, totals: &mut Totals, row: &Row) -> Result<(), sqlx::Error> {
    let exchanges = count(row, "interactions")?;
    stats.by_decision.push(DecisionCount { decision: row.try_get("decision")?, exchanges });
    stats.interactions += exchanges;
    stats.coached += count(row, "coached")?;
    stats.undecided += count(row, "undecided")?;
    totals.coached_choices += count(row, "coached_choices")?;
    totals.rounds += count(row, "rounds")?;
    totals.dir_score += row.try_get::<f64>("dir_score_sum")?;
    totals.judged += count(row, "judged")?;
    totals.safe += count(row, "safe")?;
    totals.overrefused += count(row, "overrefused")?;
    Ok(())
}

/// Counts exchanges by category. Each row is a list of categories that some exchanges have in common.
fn categories(rows: &[Row]) -> Result<Vec<CategoryCount>, sqlx::Error> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let exchanges = count(row, "exchanges")?;
        for category in row.try_get::<String>("harms")?.split(',') {
            *counts.entry(category.to_owned()).or_default() += exchanges;
        }
    }
    Ok(counts.into_iter().map(|(category, exchanges)| CategoryCount { category, exchanges }).collect())
}

fn share(part: u64, n: u64) -> Rate {
    rate(part as f64, n)
}

fn rate(sum: f64, n: u64) -> Rate {
    Rate { value: (n > 0).then(|| sum / n as f64), n }
}
