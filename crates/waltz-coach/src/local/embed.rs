//! Embeddings of local models.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use waltz_exchange::embedding::to_base64;
use waltz_model::Pooling;

use super::{Embeddings, Language, Trouble, response};

/// Texts of one request.
const MOST_TEXTS: usize = 256;

/// By a model that is made for it.
pub(super) async fn by_model(
    embeddings: &Arc<Embeddings>,
    model: &str,
    body: &Map<String, Value>,
) -> Result<reqwest::Response, Trouble> {
    let (vectors, count) = encode(embeddings, texts(body)?).await.map_err(Trouble::Broken)?;
    answer(model, body, &vectors, count)
}

/// Vectors of texts, and how many tokens were read in all. It runs where it holds up nobody.
pub(super) async fn encode(
    embeddings: &Arc<Embeddings>,
    texts: Vec<String>,
) -> Result<(Vec<Vec<f32>>, usize), String> {
    let embeddings = Arc::clone(embeddings);
    let work = move || {
        let Embeddings { model, threads } = &*embeddings;
        let encoded = texts.iter().map(|text| model.embed(threads, text));
        encoded.fold((Vec::new(), 0), |(mut vectors, count), (vector, tokens)| {
            vectors.push(vector);
            (vectors, count + tokens)
        })
    };
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|_| "it broke down".to_owned())
}

/// By a language model: the mean of its last states.
pub(super) async fn by_language(
    language: &Language,
    model: &str,
    body: &Map<String, Value>,
    deadline: Instant,
) -> Result<reqwest::Response, Trouble> {
    let mut vectors = Vec::new();
    let mut count = 0;
    for text in texts(body)? {
        let tokens = language.tokenizer.encode(&text);
        count += tokens.len();
        let mut vector = language.room.encode(tokens, Pooling::Mean, None, Some(deadline.into_std())).await?;
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        vector.iter_mut().for_each(|value| *value /= length);
        vectors.push(vector);
    }
    answer(model, body, &vectors, count)
}

fn texts(body: &Map<String, Value>) -> Result<Vec<String>, Trouble> {
    let read: Option<Vec<String>> = match body.get("input") {
        Some(Value::String(text)) => Some(vec![text.clone()]),
        Some(Value::Array(texts)) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let sound = |texts: &Vec<String>| {
        (1..=MOST_TEXTS).contains(&texts.len()) && texts.iter().all(|text| !text.is_empty())
    };
    read.filter(sound).ok_or_else(|| {
        Trouble::Invalid(format!("`input` must be a text or 1 to {MOST_TEXTS} texts, none of them empty"))
    })
}

fn answer(
    model: &str,
    body: &Map<String, Value>,
    vectors: &[Vec<f32>],
    count: usize,
) -> Result<reqwest::Response, Trouble> {
    let as_text = match body.get("encoding_format").and_then(Value::as_str) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Trouble::Invalid("`encoding_format` must be float or base64".to_owned())),
    };
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = if as_text { json!(to_base64(vector)) } else { json!(vector) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let answer = json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": format!("local/{model}"),
        "usage": {"prompt_tokens": count, "total_tokens": count},
    });
    Ok(response("application/json", answer.to_string().into()))
}
