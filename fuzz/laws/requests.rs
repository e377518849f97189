//! Laws of what clients and upstreams send as JSON: requests and answers in both wire forms, and the
//! conversions between them.

use serde_json::{Map, Value};
use waltz_exchange::anthropic::answer::{from_message, to_message};
use waltz_exchange::anthropic::request::{for_openai, from_chat, to_chat};
use waltz_exchange::anthropic::stream::{Decoder, message_stop, to_events};
use waltz_exchange::json;
use waltz_exchange::openai::{Answer, ChatRequest, Speaker, StreamAssembler};
use waltz_exchange::sse::Event;

/// Reads the bytes as each thing that may come as JSON, and checks what must hold then.
pub fn law(data: &[u8]) {
    let Ok(value) = json::parse(data) else {
        assert!(ChatRequest::parse(data).is_err(), "a request is strict JSON");
        return;
    };
    assert_eq!(serde_json::from_slice::<Value>(data).ok().as_ref(), Some(&value), "strict JSON is JSON");
    assert_eq!(json::parse(value.to_string().as_bytes()).ok().as_ref(), Some(&value), "JSON reads back");
    let Value::Object(body) = value else { return };
    if let Ok(request) = ChatRequest::from_object(body.clone()) {
        chat_request(&request, data.len());
    }
    if let Ok(chat) = to_chat(body) {
        message_request(&chat);
        chat_request(&chat, data.len());
    }
    if let Ok(answer) = Answer::parse(data) {
        chat_answer(&answer, data.len());
    }
    if let Ok(answer) = from_message(data, 0) {
        let message = to_message(&answer);
        let again = from_message(message.to_string().as_bytes(), 0).map(|answer| to_message(&answer));
        assert_eq!(again.as_ref(), Ok(&message), "a message reads back");
        events(&answer);
    }
}

fn chat_request(request: &ChatRequest, size: usize) {
    let written = Value::Object(request.body().clone()).to_string();
    let again = ChatRequest::parse(written.as_bytes()).map(ChatRequest::into_body);
    assert_eq!(again.as_ref(), Ok(request.body()), "a request reads back");
    assert!(!request.model().is_empty() && !request.messages().is_empty());
    assert!(request.turn_start() <= request.messages().len());
    let texts = request.texts();
    assert!(texts.iter().all(|field| field.message.is_none_or(|at| at < request.messages().len())));
    let words: usize = texts.iter().map(|field| field.text.len()).sum();
    assert!(words <= bound(size), "{words} bytes of text from {size}");
    let asked = request.user_request();
    assert!(texts.iter().filter(|field| field.speaker == Speaker::User).all(|field| {
        let current = field.message.is_some_and(|position| position >= request.turn_start());
        !current || asked.contains(field.text.as_ref())
    }));
    upstream_request(request);
}

/// What an Anthropic upstream gets: its turns alternate, and it means the same when it is read again.
fn upstream_request(request: &ChatRequest) {
    let body = from_chat(request, "m");
    let turns = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(turns.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]), "turns alternate: {turns:?}");
    if let Ok(chat) = to_chat(body.clone()) {
        assert_eq!(from_chat(&chat, "m"), body, "a request for Anthropic reads back");
    }
}

/// What an OpenAI upstream gets of a Messages request: everything that was said, and nothing that is
/// Anthropic's alone.
fn message_request(chat: &ChatRequest) {
    let plain = for_openai(chat.clone());
    assert_eq!(for_openai(plain.clone()), plain, "there is nothing left to take out");
    assert_eq!(ChatRequest::from_object(plain.body().clone()).as_ref(), Ok(&plain), "it is a sound request");
    let left = texts_without_thinking(&plain);
    for text in texts_without_thinking(chat) {
        assert!(left.contains(&text), "{text:?} is lost in {left:?}");
    }
}

/// What was said in the conversation; tools and formats have other fields in each form.
fn texts_without_thinking(request: &ChatRequest) -> Vec<String> {
    let mut request = request.clone();
    let mut messages = request.messages().to_vec();
    for message in messages.iter_mut().filter_map(Value::as_object_mut) {
        message.shift_remove("reasoning_content");
        message.shift_remove("thinking_blocks");
    }
    request.set("messages", Value::Array(messages));
    let said = request.texts().into_iter().filter(|field| field.message.is_some());
    said.map(|field| field.text.into_owned()).collect()
}

fn chat_answer(answer: &Answer, size: usize) {
    let body = answer.to_json();
    let again = Answer::parse(body.to_string().as_bytes()).map(|answer| answer.to_json());
    assert_eq!(again.as_ref(), Ok(&body), "an answer reads back");
    assert!(answer.choices.windows(2).all(|pair| pair[0].index <= pair[1].index), "choices are in order");
    for choice in &answer.choices {
        let words = choice.text().len();
        assert!(words <= bound(size), "{words} bytes of text from {size}");
        let read = choice.text();
        let message = Value::Object(choice.message.clone());
        sentences("message", &message, &mut |text| {
            assert!(read.contains(text), "{text:?} is not read: {read:?}")
        });
    }
    chunks(answer);
    events(answer);
}

/// Every string that holds a blank, but for the text of arguments, which is read with its escapes undone.
fn sentences(name: &str, value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) if name != "arguments" && text.contains(char::is_whitespace) => found(text),
        Value::Array(items) => items.iter().for_each(|item| sentences(name, item, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| sentences(name, value, found)),
        _ => {}
    }
}

/// A client of a stream is told what a client of a JSON answer is told.
fn chunks(answer: &Answer) {
    let unique = answer.choices.windows(2).all(|pair| pair[0].index < pair[1].index);
    let parts =
        answer.choices.iter().any(|choice| choice.message.get("content").is_some_and(Value::is_array));
    // Parts have no streamed form, and one index is one choice of a stream.
    if !unique || parts {
        return;
    }
    let mut assembler = StreamAssembler::default();
    for chunk in answer.to_chunks(true) {
        let Value::Object(chunk) = chunk else { unreachable!("a chunk is an object") };
        assert!(assembler.continues(&chunk), "{chunk:?} follows");
        assert_eq!(assembler.push(chunk), Ok(()));
    }
    assert!(assembler.is_finished());
    let streamed = assembler.finish().map(|streamed| streamed.choices).unwrap_or_default();
    assert_eq!(streamed.len(), answer.choices.len());
    for (choice, streamed) in answer.choices.iter().zip(&streamed) {
        assert_eq!(said(&streamed.message), said(&choice.message), "a stream tells the same");
    }
}

/// The fields of a message that say something, without the numbers that only a stream needs.
fn said(message: &Map<String, Value>) -> Map<String, Value> {
    let blank = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        value => value.is_null(),
    };
    let mut message = message.clone();
    message.retain(|name, value| name != "role" && !blank(value));
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        calls.retain(Value::is_object);
        calls.iter_mut().filter_map(Value::as_object_mut).for_each(|call| drop(call.shift_remove("index")));
        if calls.is_empty() {
            message.shift_remove("tool_calls");
        }
    }
    message.sort_keys();
    message
}

/// The events of an answer, read as an upstream's, make the same message.
fn events(answer: &Answer) {
    let mut decoder = Decoder::new(0);
    let mut assembler = StreamAssembler::default();
    for frame in to_events(answer).iter().chain([&message_stop()]) {
        let event = Event { name: frame.name.to_owned(), data: frame.data.to_string() };
        let chunks = decoder.push(&event);
        assert!(chunks.is_ok(), "{event:?} {chunks:?}");
        for chunk in chunks.unwrap_or_default() {
            assert_eq!(assembler.push(chunk), Ok(()));
        }
    }
    assert!(decoder.is_ended());
    let streamed = assembler.finish().map(|answer| to_message(&answer));
    let mut whole = to_message(answer);
    // What waltz adds is told by the events and not read back from an upstream.
    for name in ["waltz", "moderation"] {
        whole.as_object_mut().map(|message| message.shift_remove(name));
    }
    assert_eq!(streamed.map(joined), Ok(joined(whole)), "events tell the message");
}

/// A message with neighbouring texts as one, as the chat form has them.
fn joined(mut message: Value) -> Value {
    let mut blocks: Vec<Value> = Vec::new();
    for block in message["content"].as_array().into_iter().flatten() {
        match (blocks.last_mut().map(|last| &mut last["text"]), &block["text"]) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            _ => blocks.push(block.clone()),
        }
    }
    message["content"] = Value::Array(blocks);
    message
}

/// Texts are read out of the body, so that they cannot be much larger than it. Numbers grow most: `1e15`
/// is written out, and separators come between values.
fn bound(size: usize) -> usize {
    8 * size + 64
}
