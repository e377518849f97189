use std::time::Duration;

use super::*;
use crate::openai::StreamAssembler;

fn assemble(chunks: &[Value]) -> Answer {
    let mut assembler = StreamAssembler::default();
    for chunk in chunks {
        assembler.push(into_object(chunk.clone())).unwrap();
    }
    assembler.finish().unwrap()
}

fn sample() -> Answer {
    Answer::parse(
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m", "odd": {"kept": true},
            "choices": [
                {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "novel_reason", "logprobs": null},
                {"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":\"y z\"}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ]}, "finish_reason": "tool_calls"},
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        })
        .to_string()
        .as_bytes(),
    )
    .unwrap()
}

#[test]
fn a_json_answer_survives_a_round_trip_and_choices_are_sorted() {
    let answer = sample();
    assert_eq!(answer.choices[0].text(), "f: x y z\ng: ");
    assert_eq!(answer.choices[1].finish_reason.as_deref(), Some("novel_reason"));
    assert_eq!(answer.usage(), Some((3, 4)));
    let body = answer.to_json();
    assert_eq!(body["odd"], json!({"kept": true}));
    assert_eq!(Answer::parse(body.to_string().as_bytes()).unwrap(), answer);
}

#[test]
fn chunks_of_an_answer_assemble_to_the_same_answer() {
    let answer = sample();
    let chunks = answer.to_chunks(true);
    assert_eq!(chunks.last().unwrap()["choices"], json!([]));
    assert!(
        chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == "chatcmpl-1")
    );
    let again = assemble(&chunks);
    for (left, right) in again.choices.iter().zip(&answer.choices) {
        assert_eq!((left.text(), &left.finish_reason), (right.text(), &right.finish_reason));
    }
    assert_eq!(again.usage(), answer.usage());
}

#[test]
fn chunks_tell_thinking_first_and_calls_last() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "b", "tool_calls": [call], "thinking_blocks": [{}],
        "annotations": ["c"], "reasoning_content": "a"});
    let answer = Answer::parse(json!({"choices": [{"message": message}]}).to_string().as_bytes()).unwrap();
    let told = |chunks: Vec<Value>| -> Vec<String> {
        let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].as_object());
        deltas.filter(|delta| !delta.contains_key("role")).flat_map(Map::keys).cloned().collect()
    };
    let order = ["reasoning_content", "thinking_blocks", "content", "annotations", "tool_calls"];
    assert_eq!(told(answer.to_chunks(false)), order);
    assert_eq!(told(answer.chunks_after("", false).unwrap()), order);
}

#[test]
fn tool_arguments_in_fragments_are_joined_and_identity_is_fixed() {
    let answer = assemble(&[
        json!({"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": null,
            "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}}]}),
        json!({"id": "2", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "zz", "function": {"arguments": "{\"a\":"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 4000000000u64, "function": {"arguments": "?"}}]}}]}),
    ]);
    assert_eq!(answer.id(), Some("1"));
    let call = &answer.choices[0].tool_calls()[0];
    assert_eq!((call["id"].as_str(), call["function"]["arguments"].as_str()), (Some("c"), Some("{\"a\":1}")));
    assert_eq!(answer.choices[0].tool_calls().len(), 2);
}

#[test]
fn chunks_of_another_stream_and_words_after_the_end_do_not_belong() {
    let mut assembler = StreamAssembler::default();
    let chunk = |id: &str, delta: Value, reason: Value| {
        into_object(json!({"id": id, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
    };
    assembler.push(into_object(json!({"id": "", "choices": []}))).unwrap();
    let first = chunk("a", json!({"content": "one"}), Value::Null);
    assert!(assembler.continues(&first));
    assembler.push(first.clone()).unwrap();
    assert!(assembler.continues(&first), "a text may repeat itself");
    assert!(!assembler.continues(&chunk("b", json!({"content": "two"}), Value::Null)));
    assert!(assembler.continues(&chunk("", json!({"content": "two"}), Value::Null)));
    let end = chunk("a", json!({}), json!("stop"));
    assembler.push(end.clone()).unwrap();
    assert!(!assembler.continues(&end) && !assembler.continues(&first));
    assert!(assembler.continues(&chunk("a", json!({"role": "assistant", "content": ""}), Value::Null)));
    assert!(assembler.continues(&into_object(json!({"id": "a", "choices": [], "usage": {}}))));
    assert_eq!(assembler.finish().unwrap().id(), Some("a"));
}

#[test]
fn only_what_goes_on_from_the_sent_text_can_follow_it() {
    let answer = Answer::written("x".to_owned(), 1, "m", "one two");
    let text = |chunks: Vec<Value>| -> String {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
    };
    assert_eq!(answer.chunks_after("one ", true).map(text).as_deref(), Some("two"));
    assert_eq!(answer.chunks_after("other", true), None);
    assert_eq!(answer.chunks_after("one two three", true), None);
}

#[test]
fn log_probabilities_are_joined_and_go_with_the_text() {
    let mut answer = assemble(&[
        json!({"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": {"content": [{"token": "b"}]}, "finish_reason": "stop"}]}),
    ]);
    assert_eq!(answer.choices[0].rest["logprobs"]["content"].as_array().unwrap().len(), 2);
    answer.choices[0].replace_text("new", true);
    assert_eq!(answer.choices[0].rest["logprobs"], Value::Null);
    assert_eq!(answer.choices[0].message["refusal"], "new");
    assert_eq!(answer.choices[0].text(), "new");
    answer.choices[0].message.insert("whatever".to_owned(), json!([{"deep": "words of the draft"}]));
    assert!(answer.choices[0].text().contains("words of the draft"));
    answer.choices[0].replace_text("newer", false);
    assert!(!answer.to_json().to_string().contains("words of the draft"));
}

#[test]
fn words_are_read_wherever_they_stand_in_a_message() {
    for message in [
        json!({"role": "hidden words"}),
        json!({"tool_calls": [{"id": "hidden words", "function": {"name": "f", "arguments": "{}"}}]}),
        json!({"tool_calls": [{"id": "c", "note": ["hidden words"], "function": {"name": "f"}}]}),
        json!({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}", "note": "hidden words"}}]}),
        json!({"tool_calls": [{"id": "c", "function": {"name": {"first": "hidden words"}}}]}),
        json!({"tool_calls": [{"id": "c", "function": "hidden words"}]}),
    ] {
        let choice = Choice { message: into_object(message), ..Choice::default() };
        assert!(choice.text().contains("hidden words"), "{:?}", choice.message);
    }
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"b c\"}"}});
    let message = into_object(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    assert_eq!(Choice { message, ..Choice::default() }.text(), "f: a b c", "a plain call is read once");
}

#[test]
fn missing_parts_are_errors() {
    for (body, field) in [
        (json!({"id": "1"}), "choices"),
        (json!({"choices": []}), "choices"),
        (json!({"choices": [{"index": 0}]}), "choices[].message"),
        (json!({"choices": [{"message": {"content": 3}}]}), "choices[].message.content"),
    ] {
        assert_eq!(Answer::parse(body.to_string().as_bytes()), Err(AnswerError::Missing(field)));
    }
    assert_eq!(Answer::parse(b"<html>"), Err(AnswerError::Json));
    assert!(StreamAssembler::default().finish().is_err());
}

#[test]
fn choices_of_one_number_are_counted_anew() {
    let choice = |index: u64, text: &str| json!({"index": index, "message": {"content": text}});
    let numbers = |choices: &[Value]| -> Vec<(u32, String)> {
        let answer = Answer::parse(json!({ "choices": choices }).to_string().as_bytes()).unwrap();
        answer.choices.iter().map(|choice| (choice.index, choice.text())).collect()
    };
    let named = |numbers: &[(u32, &str)]| -> Vec<(u32, String)> {
        numbers.iter().map(|(number, text)| (*number, (*text).to_owned())).collect()
    };
    assert_eq!(
        numbers(&[choice(0, "a"), choice(0, "b"), choice(3, "c")]),
        named(&[(0, "a"), (1, "b"), (2, "c")])
    );
    // A number beyond what fits stands for its position, which another may have.
    assert_eq!(numbers(&[choice(1, "a"), choice(1 << 40, "b")]), named(&[(0, "a"), (1, "b")]));
    assert_eq!(numbers(&[choice(2, "a"), choice(0, "b")]), named(&[(0, "b"), (2, "a")]));
}

#[test]
fn usage_that_no_answer_can_have_is_not_counted_in_full() {
    let body = json!({"choices": [{"message": {"content": "a"}}],
        "usage": {"prompt_tokens": u64::MAX, "completion_tokens": 7}});
    let answer = Answer::parse(body.to_string().as_bytes()).unwrap();
    assert_eq!(answer.usage(), Some((1 << 40, 7)));
}

#[test]
fn words_are_read_wherever_they_stand_around_the_choices() {
    let usual = json!({"id": "chatcmpl-9nKbfi4", "object": "chat.completion", "created": 7, "model": "vendor/model-1:free",
        "system_fingerprint": "fp_44709d6fcb", "service_tier": "default", "obfuscation": "aB3x9", "provider": "Vendor",
        "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}});
    assert!(head_words(&into_object(usual.clone())).is_empty());
    assert!(head_words(&into_object(json!({"usage": {"service_tier": "standard"}}))).is_empty());
    for field in [
        json!({"system_fingerprint": "hidden words"}),
        json!({"service_tier": "hidden words"}),
        json!({"model": "hidden words"}),
        json!({"id": format!("{}-hidden-words", "a-".repeat(100))}),
        json!({"created": "hidden words"}),
        json!({"usage": {"note": "hidden words"}}),
        json!({"usage": {"hidden words": 3}}),
        json!({"usage": {"id": "hidden-words"}}),
        json!({"provider": ["hidden", "words"]}),
        json!({"p": {"id": "hidden-words"}}),
        json!({"p": ["a", {"id": ["hidden-words"]}]}),
        json!({"obfuscation": "hidden-words"}),
        json!({"hidden words": true}),
        json!({"extra": [{"hidden words": 1}]}),
    ] {
        let mut head = into_object(usual.clone());
        head.extend(into_object(field.clone()));
        let text = head_words(&head).join(" ").replace('-', " ");
        assert!(text.contains("hidden words"), "{field}: {text}");
        let mut answer = Answer { head, choices: Vec::new() };
        answer.forget_unknown();
        assert!(!answer.to_json().to_string().replace('-', " ").contains("hidden words"), "{field}");
    }
    let mut answer = Answer { head: into_object(usual), choices: Vec::new() };
    let before = answer.clone();
    answer.forget_unknown();
    assert_eq!(answer, before, "the form stays");
}

#[test]
fn names_and_encoded_data_are_no_words_and_what_poses_as_them_is() {
    let read = |name: &str, value: &str| {
        let message = into_object(json!({"content": "a", "part": {name: value}}));
        Choice { message, ..Choice::default() }.text() != "a"
    };
    let encoded = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAA";
    assert!(!read("data", &encoded.repeat(20)) && !read("url", &format!("data:image/png;base64,{encoded}")));
    assert!(!read("signature", encoded) && !read("id", "call_abc123"));
    assert!(read("data", "hidden words") && read("signature", "hidden words"));
    assert!(read("url", &"hidden/words/".repeat(20)) && read("id", &"hidden_words_".repeat(20)));
    assert!(read("data", &format!("hidden words {}", encoded.repeat(20))));
}

#[test]
fn log_probabilities_that_say_something_else_are_read() {
    let text = |logprobs: Value| {
        let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "It is fine."}, "logprobs": logprobs}]});
        Answer::parse(body.to_string().as_bytes()).unwrap().choices[0].text()
    };
    let tokens = |words: &[&str]| -> Vec<Value> {
        let alternatives = json!([{"token": " was", "logprob": -1.0, "bytes": [1]}]);
        words
            .iter()
            .map(|word| json!({"token": word, "logprob": -0.1, "bytes": [1], "top_logprobs": alternatives}))
            .collect()
    };
    let own = tokens(&["It", " is", " fine", "."]);
    for same in [
        Value::Null,
        json!({"content": own, "refusal": null}),
        json!({"tokens": ["It", " is", " fine."]}),
        json!({"content": [1, 2]}),
    ] {
        assert_eq!(text(same.clone()), "It is fine.", "{same}");
    }
    let other = tokens(&["hid", "den", " words"]);
    let mut phrase = own.clone();
    phrase[0]["top_logprobs"][0]["token"] = json!("hidden words");
    for other in [
        json!({"content": other}),
        json!({"content": own, "refusal": other}),
        json!({"tokens": ["hid", "den", " words"]}),
        json!({"content": phrase}),
        json!({"content": own, "note": "hidden words"}),
        json!({"content": own, "hidden words": []}),
        json!("hidden words"),
        json!(["hidden words"]),
    ] {
        assert!(text(other.clone()).contains("hidden words"), "{other}");
    }
}

#[test]
fn a_stream_that_changes_what_stands_around_its_choices_is_noticed() {
    let chunk = |fingerprint: Value| {
        into_object(
            json!({"id": "a", "model": "m", "created": 1, "system_fingerprint": fingerprint, "choices": [],
            "obfuscation": "xyz", "usage": {"prompt_tokens": 1}}),
        )
    };
    let mut assembler = StreamAssembler::default();
    for (fingerprint, keeps) in [
        (Value::Null, true),
        (json!("fp_1"), true),
        (json!("fp_1"), true),
        (json!("fp_2"), true),
        (json!("fp_2"), true),
        (json!(""), true),
        (json!("go"), true),
        (json!("and"), true),
        (json!("gather"), true),
        (json!("it"), false),
        (json!("it"), false),
    ] {
        let mut chunk = chunk(fingerprint.clone());
        chunk.insert("created".to_owned(), json!(2));
        assert_eq!(assembler.keeps_head(&chunk), keeps, "{fingerprint}");
        assembler.push(chunk).unwrap();
    }
    let end = json!({"choices": [{"index": 0, "delta": {"content": "a"}}]});
    assembler.push(into_object(end)).unwrap();
    assert_eq!(assembler.finish().unwrap().head["system_fingerprint"], "fp_1");
}

#[test]
fn words_around_the_choices_may_not_change_and_padding_may() {
    let chunk =
        |vendor: &str, padding: &str| into_object(json!({"provider": vendor, "p": padding, "choices": []}));
    let mut assembler = StreamAssembler::default();
    for (vendor, padding, keeps) in [
        ("Vendor", "abcd", true),
        ("Vendor", "abcdefghijklmnopqrstuvwxyz0123456789ab", true),
        ("Other", "a", true),
        ("Vendor", "abcdefghijklmnopqrstuvwxyzAB", true),
        ("Another Vendor", "a", false),
    ] {
        let chunk = chunk(vendor, padding);
        assert_eq!(assembler.keeps_head(&chunk), keeps, "{vendor} {padding}");
        assembler.push(chunk).unwrap();
    }
    let end = json!({"p": "said so", "choices": [{"index": 0, "delta": {"content": "a"}}]});
    assembler.push(into_object(end)).unwrap();
    let answer = assembler.finish().unwrap();
    assert_eq!(answer.head_text(), "said so", "what is no padding is read");
}

/// How long this thread has been on a processor: what others do on the machine does not count.
fn on_processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Puts one event with so many calls together, several times, and returns the fastest time.
fn assembled_in(calls: usize) -> Duration {
    let call = |index: usize| json!({"index": index, "function": {"name": "f", "arguments": "{}"}});
    let calls: Vec<Value> = (0..calls).map(call).collect();
    let chunk = into_object(json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}));
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let (first, second) = (chunk.clone(), chunk.clone());
        let began = on_processor();
        let mut assembler = StreamAssembler::default();
        assembler.push(first).unwrap();
        assembler.push(second).unwrap();
        best = best.min(on_processor() - began);
        let answer = assembler.finish().unwrap();
        assert_eq!(answer.choices[0].tool_calls().len(), calls.len());
        assert_eq!(answer.choices[0].tool_calls()[1]["function"]["arguments"], "{}{}");
    }
    best
}

#[test]
fn many_calls_take_no_longer_each_than_a_few() {
    // Eight times as many take eight times as long, or a little more where they no longer fit a cache; a square
    // takes sixty-four times as long.
    let mut measured = Vec::new();
    let passed = (0..4).any(|_| {
        let (few, many) = (assembled_in(2_000), assembled_in(16_000));
        measured.push((few, many));
        many < few * 32
    });
    assert!(passed, "{measured:?}");
}
