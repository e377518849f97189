//! The rows of `trajectories`: one per step that training can learn from.

use serde::Serialize;
use waltz_exchange::ExchangeRecord;
use waltz_exchange::trajectory::{Trajectory, trajectories};

use super::micros;

#[derive(Serialize)]
struct TrajectoryRow<'a> {
    id: String,
    exchange_id: &'a str,
    tenant: &'a str,
    subject: Option<&'a str>,
    recorded_at: i64,
    request_hash: &'a str,
    coaching_round: u32,
    state: String,
    action: String,
    next_state: Option<String>,
    terminal: bool,
    /// This answer is what the client got, so that a rating speaks of it.
    answered: bool,
    safety_score: f32,
    helpfulness_score: f32,
    dir_score: f32,
}

/// The rows of an exchange as JSON objects.
pub(super) fn trajectory_rows(record: &ExchangeRecord) -> Result<Vec<String>, serde_json::Error> {
    let mut rows = Vec::new();
    for trajectory in trajectories(record) {
        let Trajectory { state, action, reward, next_state, terminal } = trajectory;
        let row = TrajectoryRow {
            id: format!("{}.{:04}", record.id, rows.len()),
            exchange_id: &record.id,
            tenant: &record.tenant,
            subject: record.subject.as_deref(),
            recorded_at: micros(record.started_at),
            request_hash: &record.request_hash,
            coaching_round: state.coaching_round,
            state: serde_json::to_string(&state)?,
            answered: record.choices.iter().any(|choice| choice.final_text == action.response),
            action: serde_json::to_string(&action)?,
            next_state: next_state.map(|state| serde_json::to_string(&state)).transpose()?,
            terminal,
            safety_score: reward.safety_score,
            helpfulness_score: reward.helpfulness_score,
            dir_score: reward.dir_score,
        };
        rows.push(serde_json::to_string(&row)?);
    }
    Ok(rows)
}
