use waltz_model::{Agent, Message, Role};

use super::rows::{Rows, read};
use super::{Folder, Plan};
use crate::Error;

fn rows(text: &str, agent: Agent) -> Result<Rows, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    std::fs::write(&path, text).unwrap();
    read(&path, agent)
}

const CHAT: &str =
    r#"{"id":7,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]}"#;

/// A recorded session, with other fields in place of some.
fn session(change: &str) -> String {
    let sound = r#"{"exchange_id":"e","decision":"coached","user_request":"Why?","final_text":"Because.",
        "context":{"turns":[{"speaker":"operator","text":"Be brief."},{"speaker":"user","text":"Hi"},
        {"speaker":"assistant","text":"Hello."}],"tools":[]},"rating":null,
        "final_verdict":{"unsafe":false,"overrefuse":false}}"#;
    let mut row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(sound).unwrap();
    row.extend(serde_json::from_str::<serde_json::Map<_, _>>(change).unwrap());
    serde_json::to_string(&row).unwrap()
}

#[test]
fn both_forms_are_read_as_the_chats_that_they_are() {
    let text = format!("\u{feff}{CHAT}\r\n\n{}\n", session("{}"));
    let Rows { chats, left_out } = rows(&text, Agent::Conversation).unwrap();
    assert_eq!((chats.len(), left_out), (2, 0));
    assert_eq!((chats[0].line, chats[1].line), (1, 3));
    let said = |chat: &[Message]| -> Vec<(Role, String)> {
        chat.iter().map(|message| (message.role, message.content.clone())).collect()
    };
    let first = said(&chats[0].messages);
    assert_eq!(first[0].0, Role::System, "served chats begin with a system message, and so do learned ones");
    assert_eq!(first[1..], [(Role::User, "Hi".to_owned()), (Role::Assistant, "Hello.".to_owned())]);
    let second = said(&chats[1].messages);
    let expected = [
        (Role::System, "Be brief."),
        (Role::User, "Hi"),
        (Role::Assistant, "Hello."),
        (Role::User, "Why?"),
        (Role::Assistant, "Because."),
    ];
    assert_eq!(second, expected.map(|(role, text)| (role, text.to_owned())));
}

#[test]
fn every_bad_row_is_named_with_its_line_and_reason() {
    let bad = [
        ("not json", "expected"),
        ("[1]", "object"),
        (r#"{"text":"a"}"#, "neither `messages` nor"),
        (r#"{"messages":[]}"#, "not empty"),
        (r#"{"messages":"a"}"#, "must be a list"),
        (r#"{"messages":[{"role":"wizard","content":"a"}]}"#, "`messages[0]` has no `role`"),
        (r#"{"messages":[{"role":"user","content":[1]}]}"#, "`messages[0]` has no `content`"),
        (r#"{"messages":[{"role":"user","content":"a"}]}"#, "does not end with an answer"),
        (r#"{"messages":[{"role":"assistant","content":"a"}]}"#, "no message of a user"),
        (
            r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":" "}]}"#,
            "without text",
        ),
        (r#"{"messages":[{"role":"assistant","content":"a","tool_calls":[]}]}"#, "calls tools"),
        (r#"{"messages":[],"messages":[]}"#, "duplicate"),
    ];
    for (row, reason) in bad {
        let error = rows(&format!("{CHAT}\n{row}\n{CHAT}"), Agent::Conversation).unwrap_err().to_string();
        assert!(error.contains("1 of 3 rows") && error.contains("line 2: "), "{error}");
        assert!(error.contains(reason), "{row}: {error}");
    }
    let many = format!("{}{CHAT}\n", "{}\n".repeat(14));
    let error = rows(&many, Agent::Conversation).unwrap_err().to_string();
    assert!(error.contains("14 of 15 rows") && error.contains("and 4 more"), "{error}");
    assert!(matches!(rows("\n \n", Agent::Conversation), Err(Error::Empty { .. })));
    // The feedback agent cannot learn from what answers should be.
    let error = rows(&session("{}"), Agent::Feedback).unwrap_err().to_string();
    assert!(error.contains("needs `messages`"), "{error}");
    assert_eq!(rows(CHAT, Agent::Feedback).unwrap().chats.len(), 1);
}

#[test]
fn answers_that_were_not_good_are_left_out_and_counted() {
    let poor = [
        r#"{"decision":"refused"}"#,
        r#"{"final_verdict":null}"#,
        r#"{"final_verdict":{"unsafe":true,"overrefuse":false}}"#,
        r#"{"final_verdict":{"unsafe":false,"overrefuse":true}}"#,
        r#"{"rating":2}"#,
        r#"{"rating":1.0}"#,
    ];
    let text: String = poor.iter().map(|change| session(change) + "\n").collect();
    let Rows { chats, left_out } =
        rows(&format!("{text}{}", session(r#"{"rating":3}"#)), Agent::Conversation).unwrap();
    assert_eq!((chats.len(), left_out), (1, 6));
    let error = rows(&session(r#"{"rating":"1"}"#), Agent::Conversation).unwrap_err().to_string();
    assert!(error.contains("`rating`"), "{error}");
    let error = rows(&session(r#"{"final_text":""}"#), Agent::Conversation).unwrap_err().to_string();
    assert!(error.contains("not recorded"), "{error}");
}

#[test]
fn a_folder_is_one_run_s_and_one_process_s_at_a_time() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("run");
    let told = |outcome: Result<(Folder, Plan), Error>| outcome.unwrap_err().to_string();
    assert!(told(Folder::resume(&path)).contains("holds no run"));
    assert!(!path.exists(), "nothing is made where there is nothing to go on with");
    let held = Folder::begin(&path).unwrap();
    assert!(matches!(Folder::begin(&path), Err(Error::Held { .. })));
    drop(held);
    Folder::begin(&path).unwrap();
    std::fs::write(path.join("run.json"), "{").unwrap();
    assert!(Folder::begin(&path).unwrap_err().to_string().contains("--resume"));
    assert!(told(Folder::resume(&path)).contains("damaged"));
    let begun = |batch: usize, rate: f32| {
        format!(
            r#"{{"plan":{{"base":"a","data":"b","agent":"conversation","epochs":1,"batch":{batch},"rate":{rate},"rank":8,"seed":1}},
            "base_sha256":"","rows":""}}"#
        )
    };
    for (text, field) in [(begun(0, 0.1), "batch"), (begun(100_000, 0.1), "batch"), (begun(8, 2.0), "rate")] {
        std::fs::write(path.join("run.json"), text).unwrap();
        let error = told(Folder::resume(&path));
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
    std::fs::write(path.join("run.json"), begun(8, 0.1)).unwrap();
    assert!(Folder::resume(&path).is_ok());
    std::fs::write(path.join("adapter.safetensors"), "").unwrap();
    assert!(told(Folder::resume(&path)).contains("finished"));
    let other = here.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("thesis.txt"), "").unwrap();
    let error = Folder::begin(&other).unwrap_err().to_string();
    assert!(error.contains("thesis.txt"), "{error}");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1, "and leaves it as it was");
}
