//! Embeddings of local models. They are worked on for as long as somebody waits for them, and no longer than until
//! the deadline.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use waltz_exchange::embedding::to_base64;
use waltz_model::{EMBEDDING, Pooling, Refusal};

use super::ask::whole;
use super::{Embeddings, Language, Response, Trouble, apart, response};

/// Texts of one request.
const MOST_TEXTS: usize = 256;

/// Vectors of texts, and how many tokens were read in all.
type Vectors = (Vec<Vec<f32>>, usize);

/// What a request asks for.
#[derive(Debug, PartialEq)]
struct Wish {
    texts: Vec<String>,
    /// Whether vectors are sent in base64.
    as_base64: bool,
}

/// By a model that is made for it.
pub(super) async fn by_model(
    embeddings: &Arc<Embeddings>,
    model: &str,
    body: &Map<String, Value>,
    deadline: Instant,
) -> Result<Response, Trouble> {
    let Wish { texts, as_base64 } = wish(body, EMBEDDING)?;
    let vectors = embed_all(embeddings, texts, Some(deadline)).await?;
    Ok(answer(model, as_base64, &vectors))
}

/// Embeds texts one after the other.
pub(super) async fn embed_all(
    embeddings: &Arc<Embeddings>,
    texts: Vec<String>,
    deadline: Option<Instant>,
) -> Result<Vectors, Trouble> {
    let encoder = Arc::clone(embeddings);
    let embed = move |text: &str| encoder.model.embed(&encoder.threads, text);
    each(&embeddings.seats, embed, texts, deadline).await
}

/// Calls `embed` with text after text, where it holds up nobody. Between two texts it looks whether anybody waits for
/// them still: a client may have hung up.
async fn each(
    seats: &Arc<Semaphore>,
    embed: impl Fn(&str) -> (Vec<f32>, usize) + Send + 'static,
    texts: Vec<String>,
    deadline: Option<Instant>,
) -> Result<Vectors, Trouble> {
    // Its other end goes with whoever waits.
    let (waiter, _waits) = oneshot::channel::<()>();
    let work = move || {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut count = 0;
        for text in &texts {
            if waiter.is_closed() || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(Refusal::Deadline.into());
            }
            let (vector, tokens) = embed(text);
            vectors.push(vector);
            count += tokens;
        }
        Ok((vectors, count))
    };
    apart(seats, work).await
}

/// By a language model: the mean of its last states.
pub(super) async fn by_language(
    language: &Arc<Language>,
    model: &str,
    body: &Map<String, Value>,
    deadline: Instant,
) -> Result<Response, Trouble> {
    let Wish { texts, as_base64 } = wish(body, language.room.width())?;
    let mut vectors = Vec::new();
    let mut count = 0;
    let context = language.room.context();
    for text in texts {
        let reader = Arc::clone(language);
        let tokens = apart(&language.seats, move || {
            // Tokens take many times the room of their text.
            let least = reader.tokenizer.least_tokens(&text);
            if least > context {
                let limit = format!("this model's maximum context length is {context} tokens");
                return Err(Trouble::Invalid(format!("{limit}, and a text has at least {least} tokens")));
            }
            Ok(reader.tokenizer.encode(&text))
        });
        let tokens = tokens.await?;
        count += tokens.len();
        let mut vector = language.room.encode(tokens, Pooling::Mean, None, Some(deadline.into_std())).await?;
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        vector.iter_mut().for_each(|value| *value /= length);
        vectors.push(vector);
    }
    Ok(answer(model, as_base64, &(vectors, count)))
}

/// Reads a request to a model whose vectors have so many numbers.
fn wish(body: &Map<String, Value>, width: usize) -> Result<Wish, Trouble> {
    let as_base64 = match body.get("encoding_format") {
        None | Some(Value::Null) => false,
        Some(format) => match format.as_str() {
            Some("float") => false,
            Some("base64") => true,
            _ => return Err(Trouble::Invalid("`encoding_format` must be float or base64".to_owned())),
        },
    };
    if whole(body, "dimensions")?.is_some_and(|wanted| usize::try_from(wanted) != Ok(width)) {
        return Err(Trouble::Invalid(format!("`dimensions` must be {width}: this model makes no others")));
    }
    Ok(Wish { texts: texts(body)?, as_base64 })
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

fn answer(model: &str, as_base64: bool, (vectors, count): &Vectors) -> Response {
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = if as_base64 { json!(to_base64(vector)) } else { json!(vector) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let answer = json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": format!("local/{model}"),
        "usage": {"prompt_tokens": count, "total_tokens": count},
    });
    let (output, body) = mpsc::channel(1);
    // It has room for the one piece, and its other end is here.
    output.try_send(Ok(answer.to_string().into())).ok();
    response("application/json", body)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    fn many() -> Vec<String> {
        vec!["a text".to_owned(); 100]
    }

    #[tokio::test]
    async fn texts_that_nobody_waits_for_are_not_embedded() {
        let (began, begins) = tokio::sync::oneshot::channel();
        let (go_on, going_on) = std::sync::mpsc::channel();
        let (ended, ends) = tokio::sync::oneshot::channel::<()>();
        let embedded = Arc::new(AtomicUsize::new(0));
        let seats = Arc::new(Semaphore::new(1));
        let embed = {
            let embedded = Arc::clone(&embedded);
            let began = std::sync::Mutex::new(Some(began));
            let gate = std::sync::Mutex::new(going_on);
            move |_: &str| {
                // Dropped with this closure, when the work is over.
                let _kept = &ended;
                embedded.fetch_add(1, Ordering::SeqCst);
                if let Some(began) = began.lock().unwrap().take() {
                    began.send(()).unwrap();
                    gate.lock().unwrap().recv().unwrap();
                }
                (vec![1.0], 1)
            }
        };
        {
            let mut waiting = pin!(each(&seats, embed, many(), None));
            assert!(waiting.as_mut().now_or_never().is_none());
            begins.await.unwrap();
        }
        let beside = each(&seats, |_| (vec![1.0], 1), many(), None).await;
        assert!(matches!(beside, Err(Trouble::Busy)), "the text that was begun is worked on still");
        go_on.send(()).unwrap();
        ends.await.unwrap_err();
        assert_eq!(embedded.load(Ordering::SeqCst), 1, "the text that was begun, and none after it");
    }

    #[tokio::test]
    async fn no_text_is_begun_after_the_deadline() {
        let seats = Arc::new(Semaphore::new(1));
        let embed = |text: &str| panic!("{text} was embedded");
        let late = each(&seats, embed, many(), Some(Instant::now())).await;
        assert_eq!(late.unwrap_err().to_string(), Refusal::Deadline.to_string());
        let in_time = each(&seats, |_| (vec![1.0], 2), many(), None).await;
        assert_eq!(in_time.unwrap(), (vec![vec![1.0]; 100], 200));
    }

    #[test]
    fn wishes_that_are_not_kept_are_refused_by_their_name() {
        let read = |more: Value| {
            let mut body = json!({"model": "m", "input": "a text"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            wish(body.as_object().unwrap(), 384)
        };
        for (more, named) in [
            (json!({"dimensions": 8}), "`dimensions` must be 384"),
            (json!({"dimensions": 0}), "`dimensions` must be 384"),
            (json!({"dimensions": -1}), "`dimensions` must be a whole number"),
            (json!({"dimensions": "384"}), "`dimensions` must be a whole number"),
            (json!({"encoding_format": 5}), "`encoding_format` must be float or base64"),
            (json!({"encoding_format": "int8"}), "`encoding_format` must be float or base64"),
            (json!({"input": [1, 2]}), "`input` must be"),
        ] {
            let Err(Trouble::Invalid(message)) = read(more.clone()) else { panic!("{more} is taken") };
            assert!(message.starts_with(named), "{more}: {message}");
        }
        for (more, as_base64) in [
            (json!({}), false),
            (json!({"dimensions": 384, "encoding_format": "float"}), false),
            (json!({"dimensions": null, "encoding_format": null}), false),
            (json!({"encoding_format": "base64"}), true),
        ] {
            let wished = read(more).map_err(|trouble| format!("{trouble:?}"));
            assert_eq!(wished, Ok(Wish { texts: vec!["a text".to_owned()], as_base64 }));
        }
    }
}
