//! `POST /v1/moderations`: level 0 on any text, in OpenAI's form with all thirteen of its keys and ours.

use std::collections::BTreeMap;

use axum::response::Response;
use serde_json::{Map, Value, json};
use waltz_coach::judge::{self, RequestReading, THRESHOLD};
use waltz_exchange::openai::{ApiError, ChatRequest};
use waltz_exchange::score::rounded;
use waltz_exchange::{Category, Verdict};

use crate::api::body;
use crate::live::Live;
use crate::reply;

/// The name under which the judge moderates.
pub const MODEL: &str = "waltz-judge";

/// OpenAI's keys, each with the category of ours that feeds it.
const KEYS: [(&str, Option<Category>); 13] = [
    ("harassment", Some(Category::HATE_SPEECH)),
    ("harassment/threatening", None),
    ("hate", Some(Category::HATE_SPEECH)),
    ("hate/threatening", None),
    ("illicit", Some(Category::ILLEGAL_ACTIVITY)),
    ("illicit/violent", None),
    ("self-harm", Some(Category::SELF_HARM)),
    ("self-harm/instructions", Some(Category::SELF_HARM)),
    ("self-harm/intent", Some(Category::SELF_HARM)),
    ("sexual", Some(Category::SEXUAL_CONTENT)),
    ("sexual/minors", None),
    ("violence", Some(Category::VIOLENCE_HARM)),
    ("violence/graphic", None),
];

/// Of more inputs in one request none is read by a model: one caller must not keep it busy for minutes.
const MOST_DEEP: usize = 32;

/// Moderates every input.
pub async fn moderate(live: &Live, body: &[u8], request_id: &str) -> Response {
    let inputs = match inputs(body) {
        Ok(inputs) => inputs,
        Err(error) => return reply::error(&error),
    };
    let deep = inputs.len() <= MOST_DEEP;
    let mut results = Vec::with_capacity(inputs.len());
    for input in &inputs {
        results.push(moderate_one(live, input, deep).await);
    }
    reply::json(&json!({"id": format!("modr-{request_id}"), "model": MODEL, "results": results}))
}

async fn moderate_one(live: &Live, input: &str, deep: bool) -> Value {
    let message = json!({"model": MODEL, "messages": [{"role": "user", "content": input}]});
    let request = match message {
        Value::Object(body) => ChatRequest::from_object(body).ok(),
        _ => None,
    };
    let reading = match request {
        Some(request) if deep => live.judge().read_request(&request).await,
        Some(request) => judge::read_request(&live.screen, &request),
        None => RequestReading::default(),
    };
    result(&reading.categories)
}

fn inputs(body: &[u8]) -> Result<Vec<String>, ApiError> {
    let body = body::object(body)?;
    let allowed = "`input` must be a string, an array of strings, or an array of text and image parts";
    let mistake = || ApiError::invalid(allowed, Some("input"));
    match body.get("input") {
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(items)) if items.is_empty() => Err(mistake()),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            Ok(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        Some(Value::Array(items)) => {
            // Parts are one input together; images hold no words that this level could read.
            let mut text = String::new();
            for item in items {
                match item.get("type").and_then(Value::as_str) {
                    Some("text") => {
                        text.push_str(item.get("text").and_then(Value::as_str).ok_or_else(mistake)?);
                        text.push('\n');
                    }
                    Some("image_url") => {}
                    _ => return Err(mistake()),
                }
            }
            Ok(vec![text])
        }
        _ => Err(mistake()),
    }
}

fn result(categories: &BTreeMap<Category, f32>) -> Value {
    let score_of = |category: &Category| categories.get(category).copied().unwrap_or(0.0);
    let mut scores = Map::new();
    for (key, source) in &KEYS {
        let mut score = source.as_ref().map_or(0.0, score_of);
        // Getting into other people's systems is illicit too.
        if *key == "illicit" {
            score = score.max(score_of(&Category::UNAUTHORIZED_ACCESS));
        }
        scores.insert((*key).to_owned(), json!(rounded(score)));
    }
    for category in &Category::ALL {
        scores.insert(category.as_str().to_owned(), json!(rounded(score_of(category))));
    }
    for (category, score) in categories {
        scores.insert(category.as_str().to_owned(), json!(rounded(*score)));
    }
    let mut flags = Map::new();
    let mut types = Map::new();
    for (key, score) in &scores {
        let flagged = score.as_f64().is_some_and(|score| score >= f64::from(THRESHOLD));
        flags.insert(key.clone(), json!(flagged));
        types.insert(key.clone(), json!(["text"]));
    }
    let flagged = flags.values().any(|flag| flag == &json!(true));
    json!({"flagged": flagged, "categories": flags, "category_scores": scores, "category_applied_input_types": types})
}

/// A verdict in the form of the `moderation` field of a chat answer.
pub fn results(verdict: &Verdict) -> Value {
    let mut categories = Map::new();
    let mut scores = Map::new();
    let mut types = Map::new();
    let own = verdict.categories.keys().filter(|category| !category.is_builtin());
    for category in Category::ALL.iter().chain(own) {
        let score = verdict.categories.get(category).copied().unwrap_or(0.0);
        categories.insert(category.as_str().to_owned(), json!(score >= THRESHOLD));
        scores.insert(category.as_str().to_owned(), json!(rounded(score)));
        types.insert(category.as_str().to_owned(), json!(["text"]));
    }
    json!({
        "type": "moderation_results",
        "model": MODEL,
        "results": [{
            "type": "moderation_result",
            "model": MODEL,
            "flagged": verdict.is_unsafe,
            "categories": categories,
            "category_scores": scores,
            "category_applied_input_types": types,
        }],
    })
}
