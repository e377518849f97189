use serde_json::json;

use super::*;

fn request(body: Value) -> ChatRequest {
    ChatRequest::parse(body.to_string().as_bytes()).unwrap()
}

fn mistake(body: Value) -> ApiError {
    ChatRequest::parse(body.to_string().as_bytes()).unwrap_err()
}

#[test]
fn every_text_bearing_field_is_found() {
    let request = request(json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "s1"},
            {"role": "user", "content": [{"type": "text", "text": "u1"}, {"type": "image_url", "image_url": {"url": "http://x"}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "run", "arguments": "{\"cmd\":\"a\\u0062c\",\"deep\":[{\"x\":\"y\"}]}"}},
                {"id": "2", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "t1"},
            {"role": "assistant", "content": "a1", "refusal": "r1"},
            {"role": "user", "content": "u2"},
        ],
        "tools": [{"type": "function", "function": {"name": "run", "description": "d1"}}],
    }));
    let texts: Vec<String> = request.texts().iter().map(|field| field.text.to_string()).collect();
    for wanted in ["s1", "u1", "run: cmd abc; x y", "shell: ls", "t1", "a1", "r1", "u2", "d1"] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted} not in {texts:?}");
    }
    assert!(!texts.iter().any(|text| text.contains("http://x")));
    assert_eq!(request.user_request(), "u2");
    assert_eq!(request.turn_start(), 5);
}

#[test]
fn a_tool_result_belongs_to_the_turn_that_asked_for_it() {
    let request = request(json!({"model": "m", "messages": [
        {"role": "user", "content": "u1"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]},
        {"role": "tool", "tool_call_id": "1", "content": ""},
    ]}));
    assert_eq!(request.turn_start(), 0);
    assert_eq!(request.user_request(), "u1");
}

#[test]
fn the_text_of_a_call_grows_with_the_call_and_no_faster() {
    let arguments = json!({"k".repeat(1_000): vec![1; 1_000]}).to_string();
    let call = json!({"function": {"name": "f", "arguments": arguments}});
    assert!(tool_call_text(&call).len() <= 2 * arguments.len());
    let call = json!({"function": {"name": "f", "arguments": {"to": ["a", "b"], "x": [[null], {"y": 1}]}}});
    assert_eq!(tool_call_text(&call), "f: to a; b; x; y 1");
}

#[test]
fn mistakes_name_the_field_and_what_is_allowed() {
    let user = json!([{"role": "user", "content": "x"}]);
    let cases = [
        (json!({"messages": user}), "model"),
        (json!({"model": 3, "messages": user}), "model"),
        (json!({"model": "a\nb", "messages": user}), "model"),
        (json!({"model": "m"}), "messages"),
        (json!({"model": "m", "messages": []}), "messages"),
        (json!({"model": "m", "messages": ["x"]}), "messages[0]"),
        (json!({"model": "m", "messages": [{"role": "boss", "content": "x"}]}), "messages[0].role"),
        (json!({"model": "m", "messages": [{"role": "user", "content": 3}]}), "messages[0].content"),
        (json!({"model": "m", "messages": user, "n": 0}), "n"),
        (json!({"model": "m", "messages": user, "stream": "yes"}), "stream"),
        (json!({"model": "m", "messages": user, "max_tokens": -1}), "max_tokens"),
        (
            json!({"model": "m", "messages": user, "moderation": {"policy": {"input": {"mode": "x"}}}}),
            "moderation.policy.input.mode",
        ),
    ];
    for (body, param) in cases {
        let error = mistake(body);
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{error}");
    }
}

#[test]
fn null_is_as_good_as_absent_and_unknown_fields_stay() {
    let request = request(json!({"model": "m", "messages": [{"role": "user", "content": null}],
        "n": null, "stream": null, "tools": null, "wonder": {"a": [1, 2.5]}}));
    assert_eq!(request.choice_count(), 1);
    assert_eq!(request.body()["wonder"], json!({"a": [1, 2.5]}));
    assert_eq!(request.user_request(), "");
}

#[test]
fn words_are_read_wherever_they_stand_in_a_message() {
    for hidden in ["words in a blank", "words\nin\tlines", "words\u{a0}in\u{2003}spaces"] {
        is_read(hidden);
    }
}

fn is_read(hidden: &str) {
    for content in [
        json!([{"type": "input_text", "input_text": hidden}]),
        json!([{"type": "text", "content": hidden}]),
        json!([{"type": "file", "file": {"file_data": format!("{0}\n{0}\n", "QUJD".repeat(19))}}, {"content": hidden}]),
        json!([{"type": "text", "text": {"value": hidden}}]),
        json!([{"type": "document", "source": {"type": "text", "data": hidden}}]),
        json!([{"type": "tool_result", "content": [{"type": "text", "text": hidden}]}]),
    ] {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
        let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
        let texts: Vec<String> = request.texts().iter().map(|field| field.text.to_string()).collect();
        assert_eq!(texts, [hidden], "{content}");
    }
    let body = json!({"model": "m", "messages": [{
        "role": "user", "name": "jane", "tool_call_id": "call_1", "note": hidden,
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}],
    }]});
    let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    let texts: Vec<String> = request.texts().iter().map(|field| field.text.to_string()).collect();
    assert_eq!(texts, [hidden]);
}

#[test]
fn arguments_that_parsers_read_differently_are_read_as_they_are_written() {
    for arguments in
        [r#"{"text":"first","text":"second"}"#, r#"{"text":"first","z":1e999}"#, r#"{"text":"first""#]
    {
        let call = json!({"function": {"name": "send", "arguments": arguments}});
        assert_eq!(tool_call_text(&call), format!("send: {arguments}"));
    }
}

#[test]
fn what_stands_outside_the_conversation_is_material_or_the_operators() {
    let words = "words in a blank";
    let body = |field: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"},
            {"role": "user", "content": "u2"}], "user": "jane", "stop": ["\n\nHuman:"], "service_tier": "auto"});
        body.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        request(body)
    };
    for field in [
        json!({"suffix": words}),
        json!({"documents": [{"title": "t", "text": words}]}),
        json!({"prediction": {"type": "content", "content": words}}),
    ] {
        let request = body(field.clone());
        let texts = request.texts();
        let current = texts.iter().filter(|text| text.is_since(2));
        let read: Vec<_> = current.map(|text| (text.text.as_ref(), text.speaker)).collect();
        assert_eq!(read, [("u2", Speaker::User), (words, Speaker::Tool)], "{field}");
        assert_eq!(request.user_request(), "u2", "what is asked for stands in the conversation");
    }
    for field in [
        json!({"stop": [words], "bad_words": [words], "guided_choice": [words]}),
        json!({"system": words, "system_prompt": words, "instructions": words}),
        json!({"metadata": {"note": words}, "guided_json": {"description": words}}),
        json!({"tools": [{"type": "function", "function": {"name": "f", "description": words}}]}),
    ] {
        let request = body(field.clone());
        let texts = request.texts();
        let mut outside = texts.iter().filter(|text| text.message.is_none());
        assert!(outside.all(|text| text.speaker == Speaker::Operator), "{field}");
    }
}
