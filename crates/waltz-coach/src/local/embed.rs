//! Embeddings of local models.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
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
    let texts = texts(body)?;
    let embeddings = Arc::clone(embeddings);
    let work = move || {
        let Embeddings { model, threads } = &*embeddings;
        let vectors: Vec<Vec<f32>> = texts.iter().map(|text| model.embed(threads, text)).collect();
        (vectors, texts.iter().map(|text| model.count(text)).sum())
    };
    let worked = tokio::task::spawn_blocking(work).await;
    let (vectors, count) = worked.map_err(|_| Trouble::Broken("it broke down".to_owned()))?;
    answer(model, body, &vectors, count)
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
        let embedding = if as_text { json!(base64(vector)) } else { json!(vector) };
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

/// The bytes of the numbers, lowest first, as OpenAI's clients read them.
fn base64(vector: &[f32]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for place in 0..4 {
            let letter = LETTERS[((bits >> (18 - 6 * place)) & 63) as usize];
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_bytes_and_the_padding() {
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5, 0.0]), "AACAPwAAIMAAAAAA");
    }
}
