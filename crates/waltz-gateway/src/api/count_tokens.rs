//! `POST /v1/messages/count_tokens`: passed through to an upstream of Anthropic's form that serves the model, and recorded. Others
//! count no tokens, and waltz does not guess what their tokenizers would say.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use waltz_coach::upstream::{Call, Protocol, Target};
use waltz_exchange::json;
use waltz_exchange::openai::{ApiError, Retry};

use crate::api::pass_through::PassThrough;

/// The path.
pub const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// How such a request is passed through.
pub const PASS: PassThrough =
    PassThrough { purpose: "count_tokens", call: Call::CountTokens, check, targets, answer };

fn check(body: &Map<String, Value>) -> Result<(), ApiError> {
    if body.get("messages").is_none_or(|messages| !messages.is_array()) {
        return Err(ApiError::invalid("`messages` must be an array", Some("messages")));
    }
    Ok(())
}

fn targets(model: &str, targets: &[Target]) -> Result<Vec<Target>, ApiError> {
    let counts = |target: &&Target| target.upstream.protocol() == Protocol::Anthropic;
    let counting: Vec<Target> = targets.iter().filter(counts).cloned().collect();
    if counting.is_empty() {
        return Err(ApiError {
            status: 404,
            kind: "invalid_request_error".into(),
            message: format!(
                "tokens of the model `{model}` cannot be counted: no upstream that serves it speaks Anthropic's form"
            ),
            param: Some("model".to_owned()),
            code: "tokens_not_counted".into(),
            retry: Retry::Never,
        });
    }
    Ok(counting)
}

/// The numbers alone: an upstream's words would go out unread.
fn answer(bytes: Bytes) -> Result<Bytes, &'static str> {
    let told = json::parse_object(&bytes).map_err(|_| "not a JSON object")?;
    let count = told.get("input_tokens").and_then(Value::as_u64).ok_or("`input_tokens` is no count")?;
    let mut answer = json!({ "input_tokens": count });
    let original = told.get("context_management").and_then(|edits| edits.get("original_input_tokens"));
    if let Some(original) = original.and_then(Value::as_u64) {
        answer["context_management"] = json!({ "original_input_tokens": original });
    }
    Ok(Bytes::from(answer.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_only_counts_are_given_back() {
        let given = |told: Value| answer(Bytes::from(told.to_string()));
        let counted = given(json!({"input_tokens": 7, "note": "unread words"})).unwrap();
        assert_eq!(counted, r#"{"input_tokens":7}"#);
        let edits = json!({"original_input_tokens": 9, "note": "unread words"});
        let counted = given(json!({"input_tokens": 7, "context_management": edits})).unwrap();
        assert_eq!(counted, r#"{"input_tokens":7,"context_management":{"original_input_tokens":9}}"#);
        for wrong in [json!({}), json!({"input_tokens": "seven"}), json!({"input_tokens": -1}), json!([7])] {
            assert!(given(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
