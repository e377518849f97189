use super::*;

fn request(body: Value) -> ChatRequest {
    ChatRequest::parse(body.to_string().as_bytes()).unwrap()
}

fn agent(self_assess: bool) -> ConversationAgent {
    ConversationAgent {
        name: "assistant".into(),
        variant: "default".into(),
        targets: Vec::new(),
        system_prompt: Some("Be brief.".into()),
        parameters: serde_json::Map::new(),
        self_assess,
        task_type: None,
    }
}

fn user(text: &str) -> ChatRequest {
    request(
        json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "n": 2, "seed": 7,
        "moderation": {"model": "x"}, "messages": [{"role": "user", "content": text}]}),
    )
}

#[test]
fn a_draft_keeps_every_parameter_but_those_meant_for_waltz() {
    let draft = draft_request(&agent(false), &user("hi"));
    assert_eq!(draft.messages()[0]["content"], "Be brief.");
    assert!(draft.stream() && draft.body()["seed"] == 7 && draft.choice_count() == 2);
    assert!(!draft.body().contains_key("moderation"));
}

#[test]
fn a_revision_shows_every_earlier_round_and_the_last_advice() {
    let turns = [
        Turn { response: "draft".into(), feedback: "first advice".into() },
        Turn { response: "revision".into(), feedback: "second advice".into() },
    ];
    let past = PastCoaching {
        user_request: "q\"".into(),
        feedback: "f".into(),
        accepted: "a".into(),
        dir_score: 0.4,
    };
    let revision = revision_request(
        &agent(false),
        &user("hi"),
        &turns,
        Some(Dropped::Faulty(RevisionFault::Echo)),
        &[past],
    );
    let texts: Vec<&str> =
        revision.messages().iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!((texts[1], texts[2], texts[4]), ("hi", "draft", "revision"));
    assert!(texts[3].contains("first advice") && !texts[3].contains(RECITED));
    assert!(texts[5].contains("second advice") && texts[5].contains(RECITED) && texts[5].contains(r#"q\""#));
    assert!(!revision.stream() && revision.choice_count() == 1);
}

#[test]
fn the_self_assessed_form_is_asked_for_only_where_it_fits() {
    assert!(!asks_for_assessment(
        &agent(false),
        &request(json!({"model": "m", "messages": [{"role": "user"}]}))
    ));
    assert!(asks_for_assessment(
        &agent(true),
        &request(json!({"model": "m", "messages": [{"role": "user"}]}))
    ));
    assert!(!asks_for_assessment(&agent(true), &user("two choices")));
    let tools = json!({"model": "m", "messages": [{"role": "user"}], "tools": [{"type": "function", "function": {"name": "f"}}]});
    assert!(!asks_for_assessment(&agent(true), &request(tools)));
}

#[test]
fn an_assessment_is_read_strictly() {
    let good = json!({"response": "hi", "confidence": 0.9, "reasoning": "r", "risk_score": 0.1, "risk_categories": ["self_harm"]});
    let (text, assessment) = parse_assessment(&good.to_string()).unwrap();
    assert_eq!((text.as_str(), assessment.source), ("hi", AssessmentSource::Agent));
    for (field, value) in [("confidence", json!(1.2)), ("risk_score", json!("low")), ("extra", json!(1))] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(parse_assessment(&bad.to_string()).is_none(), "{field}");
    }
    // Neither infinity nor NaN comes in: not in words, and not as a number that is too large for a score.
    for number in ["1e39", "-1e39", "1e400", "NaN", "Infinity", "null"] {
        let text = good.to_string();
        for (field, value) in [("confidence", "0.9"), ("risk_score", "0.1")] {
            let bad = text.replace(&format!("\"{field}\":{value}"), &format!("\"{field}\":{number}"));
            assert_ne!(bad, text);
            assert!(parse_assessment(&bad).is_none(), "{bad}");
        }
    }
    assert!(parse_assessment("plain text").is_none());
}
