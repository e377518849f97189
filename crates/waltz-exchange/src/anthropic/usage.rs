//! Token counts. OpenAI's `prompt_tokens` include what came from the cache; Anthropic's `input_tokens`
//! do not, and count what was read from and written to the cache beside them.

use serde_json::{Map, Value, json};

/// OpenAI's usage as Anthropic's; all zero when there is none, because SDKs require the numbers.
pub(super) fn to_anthropic(usage: Option<&Value>) -> Map<String, Value> {
    let count = |field: &str| usage.and_then(|usage| usage.get(field)).and_then(Value::as_u64).unwrap_or(0);
    let detail = |field: &str| {
        usage
            .and_then(|usage| usage.get("prompt_tokens_details"))
            .and_then(|details| details.get(field))
            .and_then(Value::as_u64)
    };
    let (read, written) = (detail("cached_tokens"), detail("cache_creation_tokens"));
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let mut counts = Map::new();
    counts.insert("input_tokens".to_owned(), json!(count("prompt_tokens").saturating_sub(cached)));
    if let Some(written) = written {
        counts.insert("cache_creation_input_tokens".to_owned(), json!(written));
    }
    if let Some(read) = read {
        counts.insert("cache_read_input_tokens".to_owned(), json!(read));
    }
    counts.insert("output_tokens".to_owned(), json!(count("completion_tokens")));
    counts
}

/// Anthropic's usage as OpenAI's.
pub(super) fn to_chat(usage: &Map<String, Value>) -> Value {
    let count = |field: &str| usage.get(field).and_then(Value::as_u64);
    let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let prompt = [count("input_tokens"), read, written].into_iter().flatten().fold(0, u64::saturating_add);
    let completion = count("output_tokens").unwrap_or(0);
    let mut counts = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt.saturating_add(completion),
    });
    if let Some(read) = read {
        counts["prompt_tokens_details"]["cached_tokens"] = json!(read);
    }
    if let Some(written) = written {
        counts["prompt_tokens_details"]["cache_creation_tokens"] = json!(written);
    }
    let thinking = usage
        .get("output_tokens_details")
        .and_then(|details| details.get("thinking_tokens"))
        .and_then(Value::as_u64);
    if let Some(thinking) = thinking {
        counts["completion_tokens_details"]["reasoning_tokens"] = json!(thinking);
    }
    counts
}
