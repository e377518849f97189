//! What exchanges add to the rows of `coaching_sessions`.

use waltz_exchange::ExchangeRecord;

use super::{Sums, micros};
use crate::sql::Value;

/// What one or more exchanges add to their session.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub(crate) tenant: String,
    pub(crate) session_id: String,
    subject: Option<String>,
    started_at: i64,
    last_at: i64,
    exchanges: i64,
    coached_choices: i64,
    rounds: i64,
    dir_score_sum: f64,
}

impl SessionRow {
    /// The row of `coaching_sessions`.
    pub(crate) fn values(&self) -> [Value<'_>; 9] {
        [
            self.tenant.as_str().into(),
            self.session_id.as_str().into(),
            self.subject.as_deref().into(),
            self.started_at.into(),
            self.last_at.into(),
            self.exchanges.into(),
            self.coached_choices.into(),
            self.rounds.into(),
            self.dir_score_sum.into(),
        ]
    }

    /// Adds what a later exchange of the same session adds to it.
    pub(crate) fn add(&mut self, later: &Self) {
        if self.subject.is_none() {
            self.subject.clone_from(&later.subject);
        }
        self.started_at = self.started_at.min(later.started_at);
        self.last_at = self.last_at.max(later.last_at);
        self.exchanges += later.exchanges;
        self.coached_choices += later.coached_choices;
        self.rounds += later.rounds;
        self.dir_score_sum += later.dir_score_sum;
    }
}

/// What one exchange adds to its session.
pub(super) fn session_row(record: &ExchangeRecord, sums: Sums) -> SessionRow {
    SessionRow {
        tenant: record.tenant.clone(),
        session_id: record.session_id.clone(),
        subject: record.subject.clone(),
        started_at: micros(record.started_at),
        last_at: micros(record.started_at),
        exchanges: 1,
        coached_choices: sums.coached_choices,
        rounds: sums.rounds,
        dir_score_sum: sums.dir_score,
    }
}
