//! What must be refused, left out or survived.

use serde_json::json;

use super::*;
use crate::openai::answer::AnswerError;

/// One way to spoil a request.
type Change = Box<dyn Fn(&mut Value)>;

fn refused(change: impl Fn(&mut Value)) -> (String, String) {
    let mut body = json!({
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    });
    change(&mut body);
    let error = to_chat(object(body)).unwrap_err();
    assert_eq!(error.status, 400);
    (error.param.unwrap_or_default(), error.message)
}

#[test]
fn every_bad_field_is_named() {
    let blocks = |block: Value| move |body: &mut Value| body["messages"][0]["content"][0] = block.clone();
    let cases: Vec<(&str, Change)> = vec![
        ("model", Box::new(|body| body["model"] = json!(null))),
        ("max_tokens", Box::new(|body| drop(body.as_object_mut().unwrap().shift_remove("max_tokens")))),
        ("max_tokens", Box::new(|body| body["max_tokens"] = json!(0))),
        ("max_tokens", Box::new(|body| body["max_tokens"] = json!(1.5))),
        ("messages", Box::new(|body| body["messages"] = json!([]))),
        ("messages", Box::new(|body| drop(body.as_object_mut().unwrap().shift_remove("messages")))),
        ("messages[0]", Box::new(|body| body["messages"][0] = json!("hi"))),
        ("messages[0].role", Box::new(|body| body["messages"][0]["role"] = json!("tool"))),
        ("messages[0].content", Box::new(|body| body["messages"][0]["content"] = json!(null))),
        ("messages[0].content", Box::new(|body| body["messages"][0]["content"] = json!(""))),
        ("messages[0].content", Box::new(|body| body["messages"][0]["content"] = json!([]))),
        ("messages[0].content", Box::new(blocks(json!({"type": "text", "text": " \n"})))),
        ("messages[0].content[0]", Box::new(blocks(json!("a")))),
        ("messages[0].content[0].type", Box::new(blocks(json!({"type": "tool_use"})))),
        ("messages[0].content[0].type", Box::new(blocks(json!({"type": "container_upload"})))),
        ("messages[0].content[0].text", Box::new(blocks(json!({"type": "text", "text": 3})))),
        ("messages[0].content[0].source", Box::new(blocks(json!({"type": "image"})))),
        (
            "messages[0].content[0].source.media_type",
            Box::new(blocks(
                json!({"type": "image", "source": {"type": "base64", "media_type": "a,b", "data": ""}}),
            )),
        ),
        (
            "messages[0].content[0].source",
            Box::new(blocks(json!({"type": "document", "source": {"type": "file", "file_id": "f"}}))),
        ),
        ("messages[0].content[0].tool_use_id", Box::new(blocks(json!({"type": "tool_result"})))),
        ("system", Box::new(|body| body["system"] = json!(1))),
        ("system[0].type", Box::new(|body| body["system"] = json!([{"type": "image"}]))),
        ("tools", Box::new(|body| body["tools"] = json!({}))),
        ("tools[0].input_schema", Box::new(|body| body["tools"] = json!([{"name": "a"}]))),
        (
            "tools[0].type",
            Box::new(|body| body["tools"] = json!([{"type": "web_search_20250305", "name": "a"}])),
        ),
        ("tool_choice.type", Box::new(|body| body["tool_choice"] = json!("auto"))),
        ("tool_choice.name", Box::new(|body| body["tool_choice"] = json!({"type": "tool"}))),
        ("stop_sequences", Box::new(|body| body["stop_sequences"] = json!("x"))),
        ("metadata", Box::new(|body| body["metadata"] = json!("x"))),
        ("metadata.user_id", Box::new(|body| body["metadata"] = json!({"user_id": 3}))),
        ("stream", Box::new(|body| body["stream"] = json!("yes"))),
        ("output_config.format", Box::new(|body| body["output_config"] = json!({"format": {"type": "xml"}}))),
        ("mcp_servers", Box::new(|body| body["mcp_servers"] = json!([]))),
        ("n", Box::new(|body| body["n"] = json!(2))),
        ("functions", Box::new(|body| body["functions"] = json!([]))),
    ];
    for (param, change) in cases {
        let (named, message) = refused(change);
        assert_eq!(named, param, "{message}");
        assert!(message.contains(&format!("`{param}`")), "{message}");
    }
}

#[test]
fn words_that_no_judge_read_are_not_sent() {
    let hidden = json!([{"type": "thinking", "thinking": "hidden", "signature": "s"}]);
    let message =
        json!({"role": "assistant", "content": "a", "thinking_blocks": hidden, "reasoning_content": "b"});
    let body =
        json!({"model": "m", "messages": [message], "output_config": {"format": {"schema": "hidden"}}});
    let sent = Value::Object(from_chat(&ChatRequest::from_object(object(body)).unwrap(), "m"));
    assert!(!sent.to_string().contains("hidden"), "{sent}");

    let mut drafted =
        answer(&json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}));
    assert!(!to_message(&drafted).to_string().contains("hidden"));
    drafted.choices[0].message.insert("reasoning_content".to_owned(), json!("hidden"));
    assert!(to_message(&drafted).to_string().contains("hidden"));
    drafted.choices[0].replace_text("new", false);
    assert!(!to_message(&drafted).to_string().contains("hidden"), "the old text's thinking is gone with it");

    let mut encoder = Encoder::default();
    let delta = json!({"reasoning_content": "b", "thinking_blocks": hidden});
    let frames = encoder.push(object(json!({"choices": [{"index": 0, "delta": delta}]}))).unwrap();
    assert!(!frames_json(frames).to_string().contains("hidden"));
}

#[test]
fn calls_of_odd_form_become_sound_blocks() {
    for (function, name, input) in [
        (json!({"arguments": "{}"}), "", json!({})),
        (json!({"name": {"hidden": "words"}, "arguments": null}), "", json!({})),
        (json!({"name": "a", "arguments": {"city": "Oslo"}}), "a", json!({"city": "Oslo"})),
        (json!({"name": "a", "arguments": [1]}), "a", json!({"raw_arguments": "[1]"})),
    ] {
        let call = json!({"id": "call_1", "type": "function", "function": function});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let told = to_message(&answer(&json!({"choices": [{"message": message}]})));
        assert_eq!(
            told["content"],
            json!([{"type": "tool_use", "id": "call_1", "name": name, "input": input}])
        );
    }
}

#[test]
fn broken_messages_are_errors() {
    assert!(matches!(from_message(b"{", CREATED), Err(AnswerError::Json)));
    for (body, missing) in [
        (json!({"type": "error", "error": {}}), "content"),
        (json!({"content": "text"}), "content"),
        (json!({"content": [{}]}), "content[].type"),
        (json!({"content": [{"type": "text"}]}), "content[].text"),
        (json!({"content": [{"type": "tool_use", "id": "a"}]}), "content[].name"),
        (json!({"content": [], "stop_reason": "words that nobody judged"}), "finish_reason"),
    ] {
        let error = from_message(body.to_string().as_bytes(), CREATED).unwrap_err();
        assert_eq!(error, AnswerError::Missing(missing));
    }
}

#[test]
fn stop_reasons_map_back() {
    for (stop, finish) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("tomorrow", "tomorrow"),
    ] {
        let body = json!({"content": [], "stop_reason": stop}).to_string();
        let answer = from_message(body.as_bytes(), CREATED).unwrap();
        assert_eq!(answer.choices[0].finish_reason.as_deref(), Some(finish));
    }
}

#[test]
fn streams_can_fail_be_cut_and_carry_news() {
    let event =
        |data: Value| Event { name: data["type"].as_str().unwrap().to_owned(), data: data.to_string() };
    let mut decoder = Decoder::new(CREATED);
    let early = event(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}));
    assert_eq!(decoder.push(&early), Err(AnswerError::Missing("message_start").into()));
    assert_eq!(decoder.usage(), None);
    let usage = json!({"input_tokens": 3, "output_tokens": 1});
    let start = event(json!({"type": "message_start", "message": {"id": "i", "model": "m", "usage": usage}}));
    assert_eq!(decoder.push(&start).unwrap().len(), 1);
    assert_eq!(decoder.usage().unwrap()["total_tokens"], 4, "the tokens are known before the end");
    let ping = Event { name: "ping".to_owned(), data: String::new() };
    assert_eq!(decoder.push(&ping), Ok(Vec::new()));
    assert_eq!(decoder.push(&event(json!({"type": "news"}))), Ok(Vec::new()));
    let stray = event(json!({"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta"}}));
    assert_eq!(decoder.push(&stray), Err(AnswerError::Missing("content_block_start").into()));
    assert!(!decoder.is_ended());
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let expected = StreamError::Upstream { kind: "overloaded_error".into(), message: "busy".into() };
    assert_eq!(decoder.push(&event(overloaded)), Err(expected));
    assert_eq!(decoder.push(&event(json!({"type": "message_stop"}))).unwrap().len(), 1);
    assert!(decoder.is_ended());
    assert_eq!(decoder.push(&stray), Ok(Vec::new()));
}

#[test]
fn an_encoder_without_choices_has_no_answer() {
    let mut encoder = Encoder::default();
    assert_eq!(encoder.push(object(json!({"id": "", "choices": []}))), Ok(Vec::new()));
    assert_eq!(encoder.finish(), Err(AnswerError::Missing("choices")));
}

#[test]
fn frames_bear_their_name() {
    assert_eq!(message_stop().encode(), "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}
