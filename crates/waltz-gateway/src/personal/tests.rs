use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn policy(request: Action, answer: Action) -> PersonalPolicy {
    PersonalPolicy {
        request: Actions::all(request),
        answer: Actions::all(answer),
        key: Some(HashKey::new(b"sixteen bytes or more")),
        ..PersonalPolicy::default()
    }
}

fn body(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(body) => body,
        _ => Map::new(),
    }
}

fn applied(value: Value, policy: &PersonalPolicy) -> (Value, Treated) {
    let mut body = body(value);
    let (mut treated, refused) = treat_request(&body, policy);
    assert!(refused.is_none());
    for (name, value) in std::mem::take(&mut treated.fields) {
        body.insert(name, value);
    }
    (Value::Object(body), treated)
}

fn request() -> Value {
    json!({
        "model": "m", "user": "jane@harbour.org",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "I am jane@harbour.org, see [EMAIL_1]"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {
                "name": "pay", "arguments": "{\"card\":4539148803436467,\"note\":\"for \\\"joe@harbour.org\\\"\"}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "paid by jane@harbour.org"},
        ],
    })
}

#[test]
fn a_refusal_names_the_field_that_holds_what_is_refused() {
    let refuses = policy(Action::Refuse, Action::Allow);
    let message = json!([{"role": "user", "content": "I am jane@harbour.org"}]);
    for (value, field) in [
        (json!({"model": "m", "messages": message}), "messages"),
        (json!({"model": "m", "messages": [], "metadata": {"who": "jane@harbour.org"}}), "metadata"),
        (
            json!({"tools": [{"function": {"description": "for jane@harbour.org"}}], "messages": message}),
            "tools",
        ),
        (json!({"model": "m", "input": ["jane@harbour.org"]}), "input"),
    ] {
        let (treated, error) = treat_request(&body(value), &refuses);
        assert_eq!(error.unwrap().param.as_deref(), Some(field));
        assert!(treated.counts["email"] >= 1);
    }
}

#[test]
fn placeholders_stand_wherever_words_stand_and_come_back() {
    let (sent, treated) = applied(request(), &policy(Action::Placeholder, Action::Allow));
    assert!(!sent.to_string().contains("harbour.org") && !sent.to_string().contains("4539"), "{sent}");
    assert_eq!(sent["user"], "[EMAIL_2]");
    assert_eq!(sent["messages"][0]["content"][0]["text"], "I am [EMAIL_2], see [EMAIL_1]");
    let arguments = sent["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, json!({"card": "[CARD_1]", "note": "for \"[EMAIL_3]\""}));
    assert_eq!(sent["messages"][2]["content"], "paid by [EMAIL_2]");
    assert_eq!(treated.counts, Counts::from([("email".to_owned(), 4), ("card".to_owned(), 1)]));
    let mut answer = Answer::written("id".to_owned(), 0, "m", "Hello [EMAIL_2], not [EMAIL_1].");
    assert!(restore_answer(&mut answer, &treated.vault, false));
    assert_eq!(answer.choices[0].text(), "Hello jane@harbour.org, not [EMAIL_1].");
}

#[test]
fn each_action_does_what_it_says() {
    let said =
        |action| applied(request(), &policy(action, Action::Allow)).0["messages"][2]["content"].clone();
    assert_eq!(said(Action::Allow), "paid by jane@harbour.org");
    assert_eq!(said(Action::Tag), "paid by jane@harbour.org");
    assert_eq!(said(Action::Mask), "paid by [EMAIL]");
    let hashed = said(Action::Hash);
    assert!(hashed.as_str().unwrap().starts_with("paid by [EMAIL:"), "{hashed}");
    let (treated, refused) = treat_request(&body(request()), &policy(Action::Refuse, Action::Allow));
    assert_eq!(refused.map(|error| error.code.to_string()).as_deref(), Some("waltz_personal_data"));
    assert_eq!(treated.counts.len(), 2);
    let (_, treated) = applied(request(), &policy(Action::Allow, Action::Allow));
    assert!(treated.counts.is_empty() && treated.fields.is_empty());
    let (_, treated) = applied(request(), &policy(Action::Tag, Action::Allow));
    assert!(treated.fields.is_empty() && treated.counts.len() == 2);
}

#[test]
fn a_name_in_the_data_tells_what_a_value_is() {
    let call = |arguments: &str| json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]});
    let (sent, _) = applied(
        call("{\"routing_number\":\"021000021\",\"count\":\"021000021\",\"password\":\"hunter22\"}"),
        &policy(Action::Mask, Action::Allow),
    );
    let arguments = sent["messages"][0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(
        arguments,
        json!({"routing_number": "[ROUTING]", "count": "021000021", "password": "[PASSWORD]"})
    );
}

#[test]
fn what_is_not_masked_in_data_stays_as_it_is_spelt() {
    let masks = policy(Action::Mask, Action::Allow);
    let masked = |arguments: &str| {
        let call = json!({"function": {"name": "pay", "arguments": arguments}});
        let (sent, treated) =
            applied(json!({"messages": [{"role": "assistant", "tool_calls": [call]}]}), &masks);
        let call = &sent["messages"][0]["tool_calls"][0]["function"];
        (call["arguments"].as_str().unwrap().to_owned(), treated.counts.values().sum::<usize>())
    };
    let spelt = r#"{"id": 184467440737095516169, "price":1.10, "big": -1E+40 , "to" : "TO", "é\"\\": ["\u00e9\n", {"a1": [true,null, "TO"]}], "TO": {}, "list":[] }"#;
    let with = |to: &str| spelt.replace("TO", to);
    assert_eq!(masked(&with("jane@harbour.org")), (with("[EMAIL]"), 3));
    assert_eq!(masked(&with("nobody")), (with("nobody"), 0));
    let escaped = r#"["jane\u0040harbour.org", 5]"#;
    assert_eq!(masked(escaped), (r#"["[EMAIL]", 5]"#.to_owned(), 1));
    let twins = r#"{"a@harbour.org": 1, "b@harbour.org": 2, "[EMAIL]": 3}"#;
    assert_eq!(masked(twins).0, r#"{"[EMAIL]": 1, "[EMAIL]_1": 2, "[EMAIL]_2": 3}"#);
}

#[test]
fn what_only_some_parsers_read_is_masked_too() {
    let masks = policy(Action::Mask, Action::Allow);
    for arguments in [
        r#"{"a":"jane\u0040harbour.org","n":1e999}"#,
        r#"{"a":1,"a":"jane\u0040harbour.org"}"#,
        r#"{"a":"jane\u0040harbour.org","b":"\ud800"}"#,
        r#"{"a":"x"} {"b":"jane\u0040harbour.org"}"#,
        "\u{feff}{\"a\":\"jane\\u0040harbour.org\"}",
        r#""jane\u0040harbour.org""#,
        r#"{"a": jane@harbour.org, "b": "jane\u0040harbour.org"#,
    ] {
        let call = json!({"function": {"name": "send", "arguments": arguments}});
        let (sent, _) = applied(json!({"messages": [{"role": "assistant", "tool_calls": [call]}]}), &masks);
        let sent = sent["messages"][0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned();
        assert!(sent.contains("[EMAIL]") && !sent.contains("jane"), "{arguments} became {sent}");
    }
}

#[test]
fn what_a_tool_is_called_with_in_anthropics_form_is_data() {
    let masks = policy(Action::Mask, Action::Allow);
    let input = json!({"card_number": 4539148803436467_u64, "phone": "2125552671", "id": "jane@harbour.org",
        "model": "jane@harbour.org", "type": "thinking", "signature": "x", "count": 7});
    let part = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": input});
    let (sent, _) = applied(json!({"messages": [{"role": "assistant", "content": [part]}]}), &masks);
    let part = &sent["messages"][0]["content"][0];
    assert_eq!(
        part["input"],
        json!({"card_number": "[CARD]", "phone": "[PHONE]", "id": "[EMAIL]", "model": "[EMAIL]",
            "type": "thinking", "signature": "x", "count": 7})
    );
    assert_eq!((&part["id"], &part["name"]), (&json!("toolu_1"), &json!("f")));
    let vectors = json!({"input": [[4539148803436467_u64, 2]]});
    assert_eq!(applied(vectors.clone(), &masks).0, vectors, "tokens are no data");
}

#[test]
fn fields_that_are_described_may_have_any_name() {
    let masks = policy(Action::Mask, Action::Allow);
    let described = json!({"type": "string", "description": "such as jane@harbour.org"});
    for name in ["url", "id", "type", "format", "role", "model"] {
        let tool = json!({"function": {"name": "f", "parameters": {"type": "object", "properties": {name: described}}}});
        let (sent, _) = applied(json!({"tools": [tool]}), &masks);
        assert!(!sent.to_string().contains("jane"), "{sent}");
    }
}

#[test]
fn a_long_name_is_read_once_and_not_with_every_value() {
    let arguments = format!(r#"{{"{}é": [{}[7]]}}"#, "x y ".repeat(5_000), "1,".repeat(2_000));
    let mut read = 0;
    fields::visit("arguments", &json!(arguments), false, &mut |text| read += text.len());
    assert!(read < 10 * arguments.len(), "{read} bytes are read of {}", arguments.len());
}

#[test]
fn data_and_what_is_signed_stays() {
    let value = json!({"model": "jane@harbour.org", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,jane@harbour.org"}},
        {"type": "thinking", "thinking": "jane@harbour.org", "signature": "abc"},
    ]}]});
    let (sent, _) = applied(value.clone(), &policy(Action::Mask, Action::Allow));
    assert_eq!(sent, value);
}

#[test]
fn what_only_looks_like_data_or_signed_is_treated() {
    let policy = policy(Action::Mask, Action::Mask);
    for part in [
        json!({"type": "text", "text": "data: write to jane@harbour.org"}),
        json!({"type": "text", "text": "data:text/plain,jane@harbour.org"}),
        json!({"type": "text", "text": "data:a/b;base64,jane@harbour.org"}),
        json!({"type": "text", "text": "jane@harbour.org", "signature": "x"}),
    ] {
        let (sent, _) = applied(json!({"messages": [{"role": "user", "content": [part]}]}), &policy);
        assert!(!sent.to_string().contains("jane@"), "{sent}");
    }
    let call = json!({"function": {"name": "send", "arguments": r#"{"to":"jane@harbour.org","to":"x"}"#}});
    let (sent, _) = applied(json!({"messages": [{"role": "assistant", "tool_calls": [call]}]}), &policy);
    assert!(!sent.to_string().contains("jane@"), "{sent}");
}

#[test]
fn names_data_and_keys_are_looked_at() {
    let masks = policy(Action::Mask, Action::Mask);
    let arguments =
        json!({"jane@harbour.org": "x", "joe@harbour.org": {"a1": "y"}, "name": "ann@harbour.org"})
            .to_string();
    let (sent, treated) = applied(
        json!({"messages": [
            {"role": "user", "name": "jane@harbour.org", "content": [{"type": "document", "source": {"data": "jane@harbour.org"}}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "send", "arguments": arguments}}]},
        ], "metadata": {"jane@harbour.org": "x"}}),
        &masks,
    );
    assert!(!sent.to_string().contains("harbour.org"), "{sent}");
    assert_eq!(treated.counts["email"], 6);
    let arguments = sent["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(
        arguments,
        json!({"[EMAIL]": "x", "[EMAIL]_1": {"a1": "y"}, "name": "[EMAIL]"}),
        "no value is lost"
    );
    let many: Map<String, Value> =
        (0..5_000).map(|twin| (format!("a{twin}@harbour.org"), json!(twin))).collect();
    let sent = applied(json!({"messages": [], "metadata": many}), &masks).0;
    assert_eq!(sent["metadata"].as_object().unwrap().len(), 5_000);
    assert!(sent.to_string().len() < 150_000, "names do not grow with every twin");
    let image = format!("{}+/8=", "iVBORw0KGgo4539148803436467AAA".repeat(20));
    let value = json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": image, "name": "a.png"}}]}]});
    assert_eq!(applied(value.clone(), &masks).0, value, "data stays");
}

fn answer(message: Value) -> Answer {
    let rest = body(json!({"logprobs": {"content": []}}));
    Answer { head: Map::new(), choices: vec![Choice { message: body(message), rest, ..Choice::default() }] }
}

#[test]
fn answers_are_treated_in_text_json_and_tool_calls() {
    let masks = policy(Action::Allow, Action::Mask);
    let mut text = answer(json!({"role": "assistant", "content": "card 4539 1488 0343 6467"}));
    let treated = treat_choice(&mut text, 0, &masks, false, true);
    assert!(treated.changed && !treated.refused);
    assert_eq!(text.choices[0].text(), "card [CARD]");
    assert!(text.choices[0].rest["logprobs"].is_null());
    let mut structured =
        answer(json!({"role": "assistant", "content": "{\"card\":4539148803436467,\"n\":1}"}));
    assert!(treat_choice(&mut structured, 0, &masks, true, true).changed);
    assert_eq!(structured.choices[0].message["content"], "{\"card\":\"[CARD]\",\"n\":1}");
    let mut sent = answer(json!({"role": "assistant", "content": "card 4539 1488 0343 6467"}));
    let treated = treat_choice(&mut sent, 0, &masks, false, false);
    assert!(!treated.changed && treated.counts.len() == 1 && sent.choices[0].text().contains("4539"));
    let refuses = policy(Action::Allow, Action::Refuse);
    assert!(treat_choice(&mut sent, 0, &refuses, false, true).refused);
}

#[test]
fn every_field_of_an_answer_is_treated() {
    let masks = policy(Action::Allow, Action::Mask);
    let fine = json!({"role": "assistant", "content": "Fine."});
    for place in ["message", "rest", "head"] {
        for field in [
            json!({"citations": ["jane@harbour.org"]}),
            json!({"extra": {"jane@harbour.org": {"data": "x"}}}),
            json!({"extra": {"name": "jane@harbour.org"}}),
            json!({"jane@harbour.org": 1}),
        ] {
            let mut whole = answer(fine.clone());
            let part = match place {
                "message" => &mut whole.choices[0].message,
                "rest" => &mut whole.choices[0].rest,
                _ => &mut whole.head,
            };
            part.extend(body(field.clone()));
            let treated = treat_choice(&mut whole, 0, &masks, false, true);
            assert!(treated.changed && treated.counts["email"] == 1, "{place} {field}");
            assert!(!whole.to_json().to_string().contains("harbour.org"), "{place} {field}");
        }
    }
}

/// The texts of a stream as a client puts them together.
fn gathered(chunks: &[String]) -> (String, String) {
    let (mut content, mut arguments) = (String::new(), String::new());
    for chunk in chunks {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
            }
        }
    }
    (content, arguments)
}

proptest! {
    /// However a stream is cut, the client gets the values, in texts and in tool calls, and nothing is lost.
    #[test]
    fn a_stream_is_restored_however_it_is_cut(
        text in "(\\[EMAIL_1\\]|\\[PASSWORD_1\\]|\\[|\\]|_|[A-Z1]{1,3}|[a-z ]{1,3}){0,12}",
        size in 1_usize..9,
    ) {
        let mut vault = Vault::default();
        vault.put(PiiKind::Email, "jane@harbour.org");
        vault.put(PiiKind::Password, "a\"b\\c");
        let arguments = format!("{{\"note\":\"{text}\"}}");
        let pieces = |text: &str| text.as_bytes().chunks(size).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect::<Vec<_>>();
        let mut restoring = Restoring::new(Arc::new(Vault::default()), false);
        prop_assert_eq!(restoring.chunk("{\"choices\":[]}"), "{\"choices\":[]}");
        let (plain, inner) = (vault.restore(&text, Around::Text).into_owned(), vault.restore(&arguments, Around::Json).into_owned());
        let mut restoring = Restoring::new(Arc::new(vault), false);
        let mut chunks = Vec::new();
        for piece in pieces(&text) {
            chunks.push(restoring.chunk(&json!({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}]}).to_string()));
        }
        for piece in pieces(&arguments) {
            let call = json!({"index": 0, "function": {"arguments": piece}});
            chunks.push(restoring.chunk(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).to_string()));
        }
        chunks.push(restoring.chunk(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string()));
        let (content, called) = gathered(&chunks);
        prop_assert_eq!(content, plain);
        let parsed: Value = serde_json::from_str(&called).unwrap();
        prop_assert!(parsed["note"].is_string());
        prop_assert_eq!(called, inner);
    }
}
