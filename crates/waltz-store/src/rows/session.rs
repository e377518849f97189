//! What exchanges add to the rows of `coaching_sessions`.

use super::ExchangeRows;
use super::exchange::Sums;
use crate::sql::Value;

/// What one or more exchanges add to their session.
pub(crate) struct SessionRow<'a> {
    tenant: &'a str,
    session_id: &'a str,
    subject: Option<&'a str>,
    started_at: i64,
    last_at: i64,
    sums: Sums,
}

impl<'a> SessionRow<'a> {
    /// What one exchange adds to its session.
    pub(crate) fn of(rows: &'a ExchangeRows) -> Self {
        Self {
            tenant: rows.short(rows.tenant),
            session_id: rows.short(rows.session_id),
            subject: rows.subject.map(|subject| rows.short(subject)),
            started_at: rows.started_at,
            last_at: rows.started_at,
            sums: rows.sums,
        }
    }

    /// Which session it is.
    pub(crate) fn key(&self) -> (&'a str, &'a str) {
        (self.tenant, self.session_id)
    }

    /// Adds what a later exchange of the same session adds to it.
    pub(crate) fn add(&mut self, later: &Self) {
        self.subject = self.subject.or(later.subject);
        self.started_at = self.started_at.min(later.started_at);
        self.last_at = self.last_at.max(later.last_at);
        self.sums.add(&later.sums);
    }

    /// The row of `coaching_sessions`.
    pub(crate) fn values(&self) -> [Value<'a>; 9] {
        [
            self.tenant.into(),
            self.session_id.into(),
            self.subject.into(),
            self.started_at.into(),
            self.last_at.into(),
            self.sums.exchanges.into(),
            self.sums.coached_choices.into(),
            self.sums.rounds.into(),
            self.sums.dir_score.into(),
        ]
    }
}
