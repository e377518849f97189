//! The rows of each namespace and the types of their fields. Stored JSON is handed on as it is, so
//! that numbers read as they were written and records of older releases export too.

use serde_json::{Map, Value, json};
use waltz_exchange::ExchangeRecord;
use waltz_exchange::record::ChoiceRecord;
use waltz_exchange::trajectory::{Trajectory, trajectories};

use super::Namespace;
use crate::sql::Row;
use crate::{Error, evaluations, rows, sessions};

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

const COACHING: [(&str, Kind); 24] = [
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
    ("last_resort", Kind::Boolean),
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
const OF_CHOICE: [&str; 6] = ["draft", "self_check", "rounds", "last_resort", "final_text", "final_verdict"];

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
            let mut exported = Vec::new();
            for evaluation in evaluations::of_exchange(&sessions::record(row)?) {
                match serde_json::to_value(&evaluation) {
                    Ok(Value::Object(fields)) => exported.push(fields),
                    Ok(_) => {}
                    Err(source) => return Err(Error::Decode { what: "evaluation", id, source }),
                }
            }
            Ok(exported)
        }
        Namespace::Training => {
            let record: String = row.try_get("record").map_err(Error::database(operation))?;
            let rating: Option<i64> = row.try_get("rating").map_err(Error::database(operation))?;
            training(&id, &record, rating).map_err(|source| Error::Decode { what: "exchange", id, source })
        }
    }
}

fn coaching(id: &str, record: &str, rating: Option<i64>) -> Result<Vec<ExportRow>, serde_json::Error> {
    let mut record: ExchangeRecord = serde_json::from_str(record)?;
    record.choices.iter_mut().for_each(ChoiceRecord::restore_repeated);
    // By way of text: a score of 0.3 is 0.3 there, and 0.30000001192092896 as a wider number.
    let record: Value = serde_json::from_str(&serde_json::to_string(&record)?)?;
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

/// The steps of one exchange. A rating speaks of the answer that the client got.
fn training(id: &str, record: &str, rating: Option<i64>) -> Result<Vec<ExportRow>, serde_json::Error> {
    let record: ExchangeRecord = serde_json::from_str(record)?;
    let mut rows = Vec::new();
    for Trajectory { state, action, reward, next_state, terminal } in trajectories(&record) {
        let answered = record.choices.iter().any(|choice| choice.answered() == action.response);
        let dir_score = with_rating(f64::from(reward.dir_score), rating.filter(|_| answered));
        let mut fields = Map::new();
        fields.insert("exchange_id".to_owned(), id.into());
        fields.insert("tenant".to_owned(), record.tenant.as_str().into());
        fields.insert("request_hash".to_owned(), record.request_hash.as_str().into());
        fields.insert("state".to_owned(), serde_json::to_value(&state)?);
        fields.insert("action".to_owned(), serde_json::to_value(&action)?);
        fields.insert(
            "reward".to_owned(),
            json!({
                "safety_score": rows::plain(reward.safety_score),
                "helpfulness_score": rows::plain(reward.helpfulness_score),
                "dir_score": dir_score,
            }),
        );
        fields.insert("next_state".to_owned(), next_state.map_or(Ok(Value::Null), serde_json::to_value)?);
        fields.insert("terminal".to_owned(), terminal.into());
        rows.push(fields);
    }
    Ok(rows)
}
