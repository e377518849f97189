//! The row of something that is to be learned.

use waltz_exchange::variant::Lesson;

use super::refuse_nul;
use crate::sql::Value;

/// A row of `lessons`.
#[derive(Debug)]
pub(crate) struct LessonRow {
    exchange_id: String,
    kind: &'static str,
    tenant: String,
    subject: Option<String>,
    agent: String,
    task_type: String,
    variant: String,
    json: String,
}

impl LessonRow {
    /// The row of `lessons`, not yet learned.
    pub(crate) fn values(&self) -> [Value<'_>; 9] {
        [
            self.exchange_id.as_str().into(),
            self.kind.into(),
            self.tenant.as_str().into(),
            self.subject.as_deref().into(),
            self.agent.as_str().into(),
            self.task_type.as_str().into(),
            self.variant.as_str().into(),
            Some(false).into(),
            self.json.as_str().into(),
        ]
    }
}

/// Turns a lesson into its row.
pub(super) fn lesson_row(lesson: &Lesson) -> Result<LessonRow, serde_json::Error> {
    let Lesson { exchange_id, kind, tenant, agent, task_type, outcome, .. } = lesson;
    refuse_nul(
        [exchange_id, tenant, agent, task_type, &outcome.variant].into_iter().chain(&outcome.subject),
    )?;
    Ok(LessonRow {
        exchange_id: exchange_id.clone(),
        kind: kind.as_str(),
        tenant: tenant.clone(),
        subject: outcome.subject.clone(),
        agent: agent.clone(),
        task_type: task_type.clone(),
        variant: outcome.variant.clone(),
        json: serde_json::to_string(lesson)?,
    })
}
