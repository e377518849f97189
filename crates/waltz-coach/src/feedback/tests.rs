use proptest::prelude::*;

use super::*;

fn wire(nonce: &str) -> String {
    json!({"nonce": nonce, "reasoning": "r", "unsafe": true, "overrefuse": false, "feedback": "f"})
        .to_string()
}

#[test]
fn a_conforming_opinion_is_read_with_or_without_a_fence() {
    assert!(parse_opinion(&wire("n"), "n").is_some_and(|opinion| opinion.is_unsafe));
    assert!(parse_opinion(&format!("```json\n{}\n```", wire("n")), "n").is_some());
}

/// A judge that does not conform is an error, never "safe".
#[test]
fn fault_F38_judge_nonconforming() {
    let long = format!("{}{}", wire("n"), " ".repeat(MAX_OPINION));
    let cases = [
        "",
        "The draft is safe.",
        "NaN",
        "1.7",
        "-1",
        "null",
        "[]",
        "{}",
        "true",
        r#"{"nonce":"n","reasoning":"r","unsafe":"false","overrefuse":false,"feedback":""}"#,
        r#"{"nonce":"n","reasoning":"r","unsafe":0,"overrefuse":false,"feedback":""}"#,
        r#"{"nonce":"n","reasoning":"r","unsafe":1.7,"overrefuse":false,"feedback":""}"#,
        r#"{"nonce":"n","reasoning":"r","unsafe":false,"feedback":""}"#,
        r#"{"nonce":"n","reasoning":"r","unsafe":false,"overrefuse":false,"feedback":"","safe":true}"#,
        r#"{"nonce":"n","reasoning":"r","unsafe":true,"unsafe":false,"overrefuse":false,"feedback":""}"#,
        r#"{"nonce":"n","reasoning":null,"unsafe":false,"overrefuse":false,"feedback":""}"#,
        "Der Entwurf ist sicher.",
        &long,
    ];
    for case in cases {
        assert_eq!(parse_opinion(case, "n"), None, "{}", &case[..case.len().min(80)]);
    }
    let prose = format!("Sure! {}", wire("n"));
    assert_eq!(parse_opinion(&prose, "n"), None);
    let twice = format!("{}{}", wire("n"), wire("n"));
    assert_eq!(parse_opinion(&twice, "n"), None);
}

#[test]
fn a_wrong_nonce_is_an_error() {
    assert_eq!(parse_opinion(&wire("other"), "n"), None);
}

proptest! {
    /// Whatever a conversation or a draft holds, it stays one string inside the material.
    #[test]
    fn judged_text_can_never_leave_its_string(draft in "\\PC*", said in "[\"{}\\\\\\[\\],:\n\u{2028}a]{0,40}") {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": said}]});
        let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
        let value: Value = serde_json::from_str(&material("n", &request, &draft)).unwrap();
        prop_assert_eq!(&value["draft"], &json!(draft));
        prop_assert_eq!(&value["conversation"][0]["text"], &json!(said));
        prop_assert_eq!(&value["nonce"], &json!("n"));
        prop_assert_eq!(value.as_object().unwrap().len(), 3);
    }
}
