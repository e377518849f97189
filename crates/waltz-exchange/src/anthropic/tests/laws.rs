//! Laws of the conversions, over conversations and answers that proptest makes up.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A text that Anthropic accepts: not only white space.
fn text() -> impl Strategy<Value = String> {
    "[a-zé日😀\"\\\\\n ]{0,12}[a-z]"
}

fn call() -> impl Strategy<Value = Value> {
    let input = proptest::collection::btree_map("[a-z]{1,4}", text(), 0..3);
    ("call_[a-zA-Z0-9]{4}", "[a-z_]{1,8}", input).prop_map(|(id, name, input)| {
        let arguments = json!(input).to_string();
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    })
}

fn chat_message() -> impl Strategy<Value = Value> {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    prop_oneof![
        text().prop_map(|text| json!({"role": "user", "content": text})),
        proptest::collection::vec(text(), 1..4).prop_map(move |texts| {
            let mut parts: Vec<Value> =
                texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            parts.push(image.clone());
            json!({"role": "user", "content": parts})
        }),
        text().prop_map(|text| json!({"role": "assistant", "content": text})),
        (proptest::option::of(text()), proptest::collection::vec(call(), 1..3))
            .prop_map(|(text, calls)| json!({"role": "assistant", "content": text, "tool_calls": calls})),
        ("call_[a-z]{4}", text(), any::<bool>()).prop_map(|(id, text, failed)| {
            if failed {
                let content = format!("[tool error] {text}");
                json!({"role": "tool", "tool_call_id": id, "content": content, "is_error": true})
            } else {
                json!({"role": "tool", "tool_call_id": id, "content": text})
            }
        }),
        text().prop_map(|text| json!({"role": "system", "content": text})),
    ]
}

/// Every text, image, call and result of a conversation with its speaker, in order; instructions first,
/// because Anthropic keeps them apart, and the calls of a turn after its texts, as in the chat form.
fn told(request: &ChatRequest) -> Vec<(String, Value)> {
    let (mut instructions, mut rest, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for message in request.messages() {
        let role = message["role"].as_str().unwrap().to_owned();
        if role == "user" || role == "tool" {
            rest.append(&mut calls);
        }
        let found = if role == "system" { &mut instructions } else { &mut rest };
        match &message["content"] {
            Value::Array(parts) => {
                for part in parts {
                    found.push((role.clone(), part.get("text").unwrap_or(part).clone()));
                }
            }
            Value::Null => {}
            content => {
                found.push((role.clone(), json!([content, message["tool_call_id"], message["is_error"]])))
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            calls.push((role.clone(), call.clone()));
        }
    }
    instructions.extend(rest);
    instructions.extend(calls);
    // A message with one text may come back as a part of a longer one.
    for (_, value) in &mut instructions {
        if value.as_array().is_some_and(|parts| parts[1].is_null()) {
            *value = value[0].take();
        }
    }
    instructions
}

fn chat_answer() -> impl Strategy<Value = Answer> {
    let usage = (0u64..1000, 0u64..1000);
    let thought = proptest::option::of(text());
    let finish = prop_oneof![Just("stop"), Just("length"), Just("content_filter"), Just("new_reason")];
    (proptest::option::of(text()), proptest::collection::vec(call(), 0..3), thought, finish, usage).prop_map(
        |(text, calls, thought, finish, (prompt, completion))| {
            let mut message = json!({"role": "assistant", "content": text});
            if let Some(thought) = thought {
                message["reasoning_content"] = json!(thought);
                message["thinking_blocks"] =
                    json!([{"type": "thinking", "thinking": thought, "signature": "c2ln", "index": 0}]);
            }
            if !calls.is_empty() {
                message["tool_calls"] = json!(calls);
            }
            let finish = if finish == "stop" && !calls.is_empty() { "tool_calls" } else { finish };
            answer(&json!({
                "id": "msg_1", "object": "chat.completion", "created": CREATED, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
                          "total_tokens": prompt + completion},
            }))
        },
    )
}

/// Index is position; the assembler and the parser keep it in different places.
fn without_index(mut answer: Answer) -> Answer {
    answer.choices.iter_mut().for_each(|choice| drop(choice.rest.shift_remove("index")));
    answer
}

/// Checks the order of events and returns the text they tell.
fn told_by(frames: &[Frame]) -> String {
    let mut said = String::new();
    let mut open: Option<u64> = None;
    let mut next = 0;
    for (position, frame) in frames.iter().enumerate() {
        assert_eq!(frame.data["type"], frame.name);
        assert_eq!(position == 0, frame.name == "message_start");
        assert_eq!(position == frames.len() - 2, frame.name == "message_delta");
        assert_eq!(position == frames.len() - 1, frame.name == "message_stop");
        let index = frame.data["index"].as_u64();
        match frame.name {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(next)));
                open = index;
            }
            "content_block_delta" => {
                assert_eq!(open, index);
                said.push_str(frame.data["delta"]["text"].as_str().unwrap_or_default());
            }
            "content_block_stop" => {
                assert_eq!(open, index);
                open = None;
                next += 1;
            }
            _ => assert_eq!(open, None),
        }
    }
    said
}

/// The same stream with every text and every arguments text cut at the given places.
fn cut(chunks: &[Value], cuts: &[prop::sample::Index]) -> Vec<Value> {
    let mut pieces = Vec::new();
    for chunk in chunks {
        let places = [
            "/choices/0/delta/content",
            "/choices/0/delta/reasoning_content",
            "/choices/0/delta/tool_calls/0/function/arguments",
        ];
        let place = places.into_iter().find(|place| chunk.pointer(place).is_some_and(Value::is_string));
        let Some(place) = place else {
            pieces.push(chunk.clone());
            continue;
        };
        let letters: Vec<char> = chunk.pointer(place).unwrap().as_str().unwrap().chars().collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(letters.len() + 1)).collect();
        at.extend([0, letters.len()]);
        at.sort_unstable();
        for pair in at.windows(2) {
            let mut piece = chunk.clone();
            *piece.pointer_mut(place).unwrap() = json!(letters[pair[0]..pair[1]].iter().collect::<String>());
            pieces.push(piece);
        }
    }
    pieces
}

fn encode(chunks: Vec<Value>) -> Vec<Frame> {
    let mut encoder = Encoder::default();
    let mut frames = Vec::new();
    for chunk in chunks {
        frames.extend(encoder.push(object(chunk)).unwrap());
    }
    frames.extend(encoder.finish().unwrap());
    frames.push(message_stop());
    frames
}

proptest! {
    #[test]
    fn a_conversation_keeps_every_text_and_call_in_order(
        messages in proptest::collection::vec(chat_message(), 1..8),
    ) {
        let request = ChatRequest::from_object(object(json!({"model": "m", "messages": messages}))).unwrap();
        let body = from_chat(&request, "m");
        let turns = body["messages"].as_array().unwrap();
        for pair in turns.windows(2) {
            prop_assert_ne!(&pair[0]["role"], &pair[1]["role"]);
        }
        prop_assume!(!turns.is_empty());
        prop_assert_eq!(told(&to_chat(body).unwrap()), told(&request));
    }

    #[test]
    fn a_message_keeps_the_answer(answer in chat_answer()) {
        let bytes = to_message(&answer).to_string();
        prop_assert_eq!(from_message(bytes.as_bytes(), CREATED).unwrap(), without_index(answer));
    }

    #[test]
    fn events_keep_the_answer(answer in chat_answer()) {
        let mut frames = to_events(&answer);
        frames.push(message_stop());
        told_by(&frames);
        let events: Vec<Event> = frames.iter().map(event).collect();
        prop_assert_eq!(assemble(&events).unwrap(), without_index(answer));
    }

    #[test]
    fn any_chunking_gives_the_same_events(
        answer in chat_answer(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let chunks = answer.to_chunks(true);
        let whole = encode(chunks.clone());
        let frames = encode(cut(&chunks, &cuts));
        let said = told_by(&frames);
        prop_assert_eq!(&said, answer.choices[0].message["content"].as_str().unwrap_or_default());
        prop_assert_eq!(&said, &told_by(&whole));
        let events: Vec<Event> = frames.iter().map(event).collect();
        prop_assert_eq!(assemble(&events).unwrap(), without_index(answer));
    }
}
