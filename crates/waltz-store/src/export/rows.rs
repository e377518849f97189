//! The rows of each namespace and the types of their fields. Stored JSON is handed on as it is, so
//! that numbers read as they were written and records of older releases export too.

use serde_json::{Map, Value, json};

use super::Namespace;
use crate::sql::Row;
use crate::{Error, evaluations, rows};

/// One exported row: its fields in order.
pub(super) type ExportRow = Map<String, Value>;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A nested object or list.
    Json,
    Integer,
    Double,
    Boolean,
}

/// The fields of a namespace that typed formats have as columns.
#[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only typed formats need field types"))]
pub(super) fn columns(namespace: Namespace) -> &'static [(&'static str, Kind)] {
    match namespace {
        Namespace::Coaching => &COACHING,
        Namespace::Evaluations => &EVALUATIONS,
        Namespace::Training => &TRAINING,
    }
}

const COACHING: [(&str, Kind); 23] = [
    ("exchange_id", Kind::Text),
    ("session_id", Kind::Text),
    ("tenant", Kind::Text),
    ("subject", Kind::Text),
    ("started_at", Kind::Text),
    ("decision", Kind::Text),
    ("agent", Kind::Text),
    ("model", Kind::Text),
    ("variant", Kind::Text),
    ("stage", Kind::Integer),
    ("task_type", Kind::Text),
    ("request_hash", Kind::Text),
    ("user_request", Kind::Text),
    ("context", Kind::Json),
    ("choice", Kind::Integer),
    ("draft", Kind::Json),
    ("self_check", Kind::Json),
    ("rounds", Kind::Json),
    ("final_text", Kind::Text),
    ("final_verdict", Kind::Json),
    ("unrated_dir_score", Kind::Double),
    ("rating", Kind::Integer),
    ("dir_score", Kind::Double),
];

const EVALUATIONS: [(&str, Kind); 22] = [
    ("id", Kind::Text),
    ("exchange_id", Kind::Text),
    ("tenant", Kind::Text),
    ("subject", Kind::Text),
    ("session_id", Kind::Text),
    ("judged_at", Kind::Text),
    ("text_kind", Kind::Text),
    ("choice", Kind::Integer),
    ("round", Kind::Integer),
    ("unsafe", Kind::Boolean),
    ("overrefuse", Kind::Boolean),
    ("blocks", Kind::Boolean),
    ("state", Kind::Text),
    ("level", Kind::Integer),
    ("micros", Kind::Integer),
    ("prompt_harm", Kind::Double),
    ("response_harm", Kind::Double),
    ("refusal", Kind::Double),
    ("safety_score", Kind::Double),
    ("helpfulness_score", Kind::Double),
    ("categories", Kind::Json),
    ("issues", Kind::Json),
];

const TRAINING: [(&str, Kind); 8] = [
    ("exchange_id", Kind::Text),
    ("tenant", Kind::Text),
    ("request_hash", Kind::Text),
    ("state", Kind::Json),
    ("action", Kind::Json),
    ("reward", Kind::Json),
    ("next_state", Kind::Json),
    ("terminal", Kind::Boolean),
];

/// Fields of a coaching row that the exchange's record holds under the same name.
const OF_EXCHANGE: [&str; 13] = [
    "session_id",
    "tenant",
    "subject",
    "started_at",
    "decision",
    "agent",
    "model",
    "variant",
    "stage",
    "task_type",
    "request_hash",
    "user_request",
    "context",
];
/// Fields of a coaching row that the choice's record holds under the same name.
const OF_CHOICE: [&str; 5] = ["draft", "self_check", "rounds", "final_text", "final_verdict"];

/// The exported rows of one database row.
pub(super) fn from_database(namespace: Namespace, row: &Row) -> Result<Vec<ExportRow>, Error> {
    let operation = "read a row to export";
    let id: String = row.try_get("id").map_err(Error::database(operation))?;
    match namespace {
        Namespace::Coaching => {
            let record: String = row.try_get("record").map_err(Error::database(operation))?;
            let rating: Option<i64> = row.try_get("rating").map_err(Error::database(operation))?;
            coaching(&id, &record, rating).map_err(|source| Error::Decode { what: "exchange", id, source })
        }
        Namespace::Evaluations => {
            let evaluation = evaluations::evaluation(row)?;
            let decode = |source| Error::Decode { what: "evaluation", id, source };
            match serde_json::to_value(&evaluation).map_err(decode)? {
                Value::Object(fields) => Ok(vec![fields]),
                _ => Ok(Vec::new()),
            }
        }
        Namespace::Training => {
            let parts = training_parts(row).map_err(Error::database(operation))?;
            let fields =
                training(parts).map_err(|source| Error::Decode { what: "trajectory", id, source })?;
            Ok(vec![fields])
        }
    }
}

fn coaching(id: &str, record: &str, rating: Option<i64>) -> Result<Vec<ExportRow>, serde_json::Error> {
    let record: Value = serde_json::from_str(record)?;
    let mut rows = Vec::new();
    let no_choices = Vec::new();
    for choice in record["choices"].as_array().unwrap_or(&no_choices) {
        if choice["rounds"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        let mut fields = Map::new();
        fields.insert("exchange_id".to_owned(), id.into());
        for name in OF_EXCHANGE {
            fields.insert(name.to_owned(), record[name].clone());
        }
        fields.insert("choice".to_owned(), choice["index"].clone());
        for name in OF_CHOICE {
            fields.insert(name.to_owned(), choice[name].clone());
        }
        fields.insert("unrated_dir_score".to_owned(), choice["dir_score"].clone());
        fields.insert("rating".to_owned(), rating.into());
        let unrated = choice["dir_score"].as_f64().unwrap_or(0.0);
        fields.insert("dir_score".to_owned(), with_rating(unrated, rating).into());
        rows.push(fields);
    }
    Ok(rows)
}

/// The shaped score as it is exported: with the newest rating, where there is one.
fn with_rating(dir_score: f64, rating: Option<i64>) -> f64 {
    let stars = rating.and_then(|stars| u8::try_from(stars).ok());
    rows::plain(rows::rated(dir_score as f32, stars))
}

struct TrainingParts {
    exchange_id: String,
    tenant: String,
    request_hash: String,
    state: String,
    action: String,
    next_state: Option<String>,
    terminal: bool,
    reward: Value,
}

fn training_parts(row: &Row) -> Result<TrainingParts, sqlx::Error> {
    let safety_score: f64 = row.try_get("safety_score")?;
    let helpfulness_score: f64 = row.try_get("helpfulness_score")?;
    let dir_score = with_rating(row.try_get("dir_score")?, row.try_get("rating")?);
    Ok(TrainingParts {
        exchange_id: row.try_get("exchange_id")?,
        tenant: row.try_get("tenant")?,
        request_hash: row.try_get("request_hash")?,
        state: row.try_get("state")?,
        action: row.try_get("action")?,
        next_state: row.try_get("next_state")?,
        terminal: row.try_get("terminal")?,
        reward: json!({
            "safety_score": safety_score, "helpfulness_score": helpfulness_score, "dir_score": dir_score,
        }),
    })
}

fn training(parts: TrainingParts) -> Result<ExportRow, serde_json::Error> {
    let TrainingParts { exchange_id, tenant, request_hash, state, action, next_state, terminal, reward } =
        parts;
    let next_state: Option<Value> = next_state.map(|text| serde_json::from_str(&text)).transpose()?;
    let mut fields = Map::new();
    fields.insert("exchange_id".to_owned(), exchange_id.into());
    fields.insert("tenant".to_owned(), tenant.into());
    fields.insert("request_hash".to_owned(), request_hash.into());
    fields.insert("state".to_owned(), serde_json::from_str(&state)?);
    fields.insert("action".to_owned(), serde_json::from_str(&action)?);
    fields.insert("reward".to_owned(), reward);
    fields.insert("next_state".to_owned(), next_state.unwrap_or(Value::Null));
    fields.insert("terminal".to_owned(), terminal.into());
    Ok(fields)
}
