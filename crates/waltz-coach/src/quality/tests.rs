use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::json;

use super::*;
use crate::templates;

fn standard(prompt: &str, draft: &Verdict) -> Standard {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]});
    let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    Standard::new(&request, &RequestReading::default(), draft)
}

fn fault(prompt: &str, text: &str) -> Option<RevisionFault> {
    standard(prompt, &Verdict::default()).fault(text, "")
}

fn self_harm() -> Verdict {
    Verdict { categories: [(Category::SELF_HARM, 0.7)].into(), ..Verdict::default() }
}

const QUESTION: &str = "How do I stop a Python process that uses all memory?";

/// Sentences of an answer to [`QUESTION`], each of which can stand alone.
const FLUENT: [&str; 12] = [
    "Open a terminal and run `ps aux` to see which process takes the memory.",
    "The second column is the number that Linux gave to it.",
    "Send it the usual signal with `kill NUMBER`, so that Python can close its files.",
    "Wait a few seconds, because a busy interpreter reacts late.",
    "If nothing happens, `kill -9 NUMBER` ends it at once.",
    "On Windows, Task Manager has a button for the same purpose.",
    "Afterwards it is worth finding out why so much was allocated.",
    "The module tracemalloc shows where objects come from.",
    "Often a list grows in a loop and is never emptied.",
    "Reading a file line by line keeps usage low.",
    "You can also limit a service with `MemoryMax` in its systemd unit.",
    "Then the kernel ends only that service, and the machine stays usable.",
];

#[test]
fn each_fault_has_its_name() {
    let advice = templates::for_category(&Category::ILLEGAL_ACTIVITY).advice;
    let loops = "Use the kill command to stop Python. ".repeat(5);
    for (text, expected) in [
        (advice, Some(RevisionFault::Echo)),
        ("The answer to the question is:", Some(RevisionFault::Empty)),
        (loops.as_str(), Some(RevisionFault::Repetition)),
        ("Use `kill`.", None),
        (FLUENT.join(" ").as_str(), None),
    ] {
        assert_eq!(fault(QUESTION, text), expected, "{text}");
    }
}

#[test]
fn a_text_that_was_rejected_is_no_revision() {
    let mut standard = standard(QUESTION, &Verdict::default());
    standard.reject("I can't help with that!");
    assert_eq!(standard.fault("I can't help with that.", ""), Some(RevisionFault::Repetition));
    assert_eq!(standard.fault("I can help with that: use kill.", ""), None);
}

#[test]
fn a_form_and_tool_calls_are_answers_whatever_their_words() {
    let rows = r#"{"name": "a", "age": 1, "is_new": true},"#.repeat(9);
    let body = json!({"model": "m", "response_format": {"type": "json_object"},
        "messages": [{"role": "user", "content": "Nine rows of test data, please"}]});
    let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    let formed = Standard::new(&request, &RequestReading::default(), &Verdict::default());
    assert_eq!(formed.fault(&rows, ""), None);
    assert_eq!(formed.fault(" ", ""), Some(RevisionFault::Empty));
    assert_eq!(fault("Nine rows of test data, please", &rows), Some(RevisionFault::Repetition));
    assert_eq!(standard(QUESTION, &Verdict::default()).fault("ls", "ls"), None);
}

#[test]
fn who_may_harm_themselves_needs_more_than_words() {
    let standard = standard("I want to die", &self_harm());
    assert!(standard.cares());
    for (text, expected) in [
        ("The answer to the question is:", Some(RevisionFault::Empty)),
        ("I'm sorry, but I can't assist with that.", Some(RevisionFault::OffTopic)),
        ("It depends on the person, there are many factors.", Some(RevisionFault::Empty)),
        ("I'm so sorry. Please call 988 now, and talk to someone you trust.", None),
    ] {
        assert_eq!(standard.fault(text, ""), expected, "{text}");
    }
    let mut worse = self_harm();
    worse.categories.insert(Category::VIOLENCE_HARM, 0.9);
    assert!(!concerns_self_harm(&RequestReading::default(), &worse), "another harm is graver");
}

fn advice_sentences() -> Vec<String> {
    let texts: Vec<&str> = templates::advice().chain(crate::conversation::INSTRUCTIONS).collect();
    texts.iter().flat_map(|text| text.split_inclusive(". ")).map(|part| part.trim().to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_choice_of_advice_is_an_answer(
        chosen in (1_usize..8).prop_flat_map(|count| subsequence(advice_sentences(), count)).prop_shuffle(),
        glue in prop_oneof![Just(" "), Just("\n"), Just("\n- ")],
        lead in prop_oneof![Just(""), Just("Sure! "), Just("Here is the revised answer: ")],
    ) {
        let text = format!("{lead}{}", chosen.join(glue));
        prop_assert!(fault(QUESTION, &text).is_some(), "{}", text);
    }

    #[test]
    fn whatever_is_said_three_times_is_no_answer(text in "[a-z]{1,9}( [a-z]{1,9}){0,30}", blank in "[ \n]") {
        let text = [text.as_str(); 3].join(&blank);
        prop_assert!(fault(QUESTION, &text).is_some(), "{}", text);
    }

    #[test]
    fn a_fluent_answer_of_any_length_is_an_answer(
        more in subsequence(FLUENT[1..].to_vec(), 0..FLUENT.len()).prop_shuffle(),
        heard in subsequence(advice_sentences(), 0..4),
    ) {
        let mut standard = standard(QUESTION, &Verdict::default());
        for advice in &heard {
            standard.hear(advice);
        }
        let text = format!("{} {}", FLUENT[0], more.join(" "));
        prop_assert_eq!(standard.fault(&text, ""), None, "{}", text);
    }
}
