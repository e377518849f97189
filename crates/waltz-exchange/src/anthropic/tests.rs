//! Golden files: `tests/golden/anthropic/CONVERSION/CASE.in.json` must become `CASE.out.json` beside it.
//! A new case is a new file; `UPDATE_GOLDEN=1 cargo test -p waltz-exchange` writes what is missing or
//! has changed, for review.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::answer::{from_message, to_message};
use super::request::{for_openai, from_chat, to_chat};
use super::stream::{Decoder, Encoder, Frame, StreamError, message_stop, to_events};
use crate::openai::{Answer, ChatRequest, StreamAssembler};
use crate::sse::Event;

mod faults;
mod laws;

/// When the answers of the fixtures were made.
const CREATED: i64 = 1_700_000_000;

fn golden(conversion: &str, convert: fn(Value) -> Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/anthropic").join(conversion);
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.to_str().unwrap().ends_with(".in.json"));
    cases.sort();
    assert!(!cases.is_empty(), "no cases in {}", folder.display());
    for case in cases {
        let input: Value = serde_json::from_slice(&std::fs::read(&case).unwrap()).unwrap();
        let converted = convert(input);
        let beside = PathBuf::from(case.to_str().unwrap().replace(".in.json", ".out.json"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&beside, format!("{converted:#}\n")).unwrap();
        }
        let expected = std::fs::read(&beside).unwrap_or_else(|_| panic!("{} is missing", beside.display()));
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        assert_eq!(converted, expected, "{}\n{converted:#}", case.display());
    }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn answer(body: &Value) -> Answer {
    Answer::parse(body.to_string().as_bytes()).unwrap()
}

fn event(frame: &Frame) -> Event {
    Event { name: frame.name.to_owned(), data: frame.data.to_string() }
}

fn frames_json(frames: Vec<Frame>) -> Value {
    frames.into_iter().map(|frame| json!([frame.name, frame.data])).collect()
}

fn assemble(events: &[Event]) -> Result<Answer, StreamError> {
    let mut decoder = Decoder::new(CREATED);
    let mut assembler = StreamAssembler::default();
    for event in events {
        for chunk in decoder.push(event)? {
            assembler.push(chunk)?;
        }
    }
    assert!(decoder.is_ended());
    Ok(assembler.finish()?)
}

#[test]
fn requests_become_chat_requests() {
    golden("to_chat", |body| match to_chat(object(body)) {
        Ok(request) => Value::Object(request.body().clone()),
        Err(error) => json!({"error": error.message, "param": error.param, "status": error.status}),
    });
}

#[test]
fn chat_requests_become_requests() {
    golden("from_chat", |body| {
        Value::Object(from_chat(&ChatRequest::from_object(object(body)).unwrap(), "claude-test"))
    });
}

#[test]
fn requests_become_plain_chat_requests() {
    golden("for_openai", |body| Value::Object(for_openai(to_chat(object(body)).unwrap()).body().clone()));
}

#[test]
fn answers_become_messages() {
    golden("to_message", |body| to_message(&answer(&body)));
}

#[test]
fn messages_become_answers() {
    golden("from_message", |body| from_message(body.to_string().as_bytes(), CREATED).unwrap().to_json());
}

#[test]
fn answers_become_events() {
    golden("to_events", |body| frames_json(to_events(&answer(&body))));
}

#[test]
fn chunks_become_events() {
    golden("encode", |chunks| {
        let mut encoder = Encoder::default();
        let mut frames = Vec::new();
        for chunk in chunks.as_array().unwrap() {
            frames.extend(encoder.push(object(chunk.clone())).unwrap());
        }
        frames.extend(encoder.finish().unwrap());
        frames_json(frames)
    });
}

#[test]
fn events_become_chunks() {
    golden("decode", |events| {
        let mut decoder = Decoder::new(CREATED);
        let mut chunks = Vec::new();
        for pair in events.as_array().unwrap() {
            let name = pair[0].as_str().unwrap().to_owned();
            let event = Event { name, data: pair[1].to_string() };
            chunks.extend(decoder.push(&event).unwrap().into_iter().map(Value::Object));
        }
        Value::Array(chunks)
    });
}

#[test]
fn a_message_through_chat_and_back_is_the_same_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/anthropic/from_message");
    for case in ["text", "tools", "thinking", "refusal", "stop_sequence", "cached"] {
        let bytes = std::fs::read(folder.join(format!("{case}.in.json"))).unwrap();
        let answer = from_message(&bytes, CREATED).unwrap();
        let mut message: Value = serde_json::from_slice(&bytes).unwrap();
        message.as_object_mut().unwrap().shift_remove("stop_details");
        assert_eq!(to_message(&answer), message, "{case}");
        let mut events: Vec<Event> = to_events(&answer).iter().map(event).collect();
        events.push(event(&message_stop()));
        let mut expected = answer;
        expected.choices[0].rest.shift_remove("stop_details");
        assert_eq!(assemble(&events).unwrap(), expected, "{case}");
    }
}
