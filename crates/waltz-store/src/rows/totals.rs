//! What exchanges add to the rows of `exchange_totals`, by which they are counted.

use super::ExchangeRows;
use super::exchange::Sums;
use crate::sql::Value;

/// What exchanges of a tenant that ended in the same decision add to its totals.
pub(crate) struct TotalsRow<'a> {
    tenant: &'a str,
    decision: &'static str,
    sums: Sums,
}

impl<'a> TotalsRow<'a> {
    /// What one exchange adds.
    pub(crate) fn of(rows: &'a ExchangeRows) -> Self {
        Self { tenant: rows.short(rows.tenant), decision: rows.decision, sums: rows.sums }
    }

    /// Which totals they are.
    pub(crate) fn key(&self) -> (&'a str, &'static str) {
        (self.tenant, self.decision)
    }

    /// Adds what another exchange adds to the same totals.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sums.add(&other.sums);
    }

    /// The row of `exchange_totals`.
    pub(crate) fn values(&self) -> [Value<'a>; 11] {
        let Sums {
            exchanges,
            coached,
            coached_choices,
            rounds,
            dir_score,
            judged,
            safe,
            overrefused,
            undecided,
        } = self.sums;
        [
            self.tenant.into(),
            self.decision.into(),
            exchanges.into(),
            coached.into(),
            coached_choices.into(),
            rounds.into(),
            dir_score.into(),
            judged.into(),
            safe.into(),
            overrefused.into(),
            undecided.into(),
        ]
    }
}
