//! Rows of data to chats: the usual `{"messages": [...]}`, and the coaching sessions that `waltz data export` writes.
//!
//! A row that cannot be learned from ends the reading with its line and reason, all of them at once. A recorded session
//! whose answer was not good is no mistake: it is left out and counted.

use std::path::Path;

use serde_json::{Map, Value};
use waltz_coach::templates;
use waltz_exchange::json as strict_json;
use waltz_model::{Agent, Message, Role, with_system};

use crate::Error;

/// A chat to learn from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chat {
    /// Where it stands in the file, from 1.
    pub(super) line: usize,
    /// Its turns, the assistant's last.
    pub(super) messages: Vec<Message>,
}

/// What a file holds.
#[derive(Debug, PartialEq)]
pub(super) struct Rows {
    /// The chats, in their order.
    pub(super) chats: Vec<Chat>,
    /// Recorded sessions whose answer nobody should learn.
    pub(super) left_out: usize,
}

/// The lowest rating by a user that an answer is learned with.
const LOWEST_RATING: f64 = 3.0;

/// Reads a file of rows for an agent.
pub(super) fn read(path: &Path, agent: Agent) -> Result<Rows, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let (mut chats, mut left_out, mut bad) = (Vec::new(), 0, Vec::new());
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let row = line.trim_ascii();
        if row.is_empty() {
            continue;
        }
        match chat(row, agent) {
            Ok(Some(messages)) => chats.push(Chat { line: index + 1, messages: with_system(messages) }),
            Ok(None) => left_out += 1,
            Err(reason) => bad.push((index + 1, reason)),
        }
    }
    if !bad.is_empty() {
        return Err(Error::Rows { path: path.to_owned(), rows: chats.len() + left_out + bad.len(), bad });
    }
    if chats.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    Ok(Rows { chats, left_out })
}

/// One row; `None` where its answer is not to be learned.
fn chat(row: &[u8], agent: Agent) -> Result<Option<Vec<Message>>, String> {
    let row = strict_json::parse_object(row).map_err(|error| error.to_string())?;
    if let Some(messages) = row.get("messages") {
        return written(messages).map(Some);
    }
    if !row.contains_key("exchange_id") || !row.contains_key("final_text") {
        return Err("it has neither `messages` nor the fields of a recorded coaching session".to_owned());
    }
    match agent {
        Agent::Conversation => recorded(&row),
        Agent::Feedback => {
            Err("a coaching session shows what answers should be; the feedback agent needs `messages`"
                .to_owned())
        }
    }
}

/// A chat as it is usually written.
fn written(messages: &Value) -> Result<Vec<Message>, String> {
    let list = messages.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or("`messages` must be a list that is not empty")?;
    let mut chat = Vec::with_capacity(list.len());
    for (index, message) in list.iter().enumerate() {
        let at = |what: &str| format!("`messages[{index}]` {what}");
        let role = match message.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => Role::System,
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            _ => return Err(at("has no `role` of system, user, assistant or tool")),
        };
        if message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
            return Err(at("calls tools, which these models cannot"));
        }
        let content = message.get("content").and_then(Value::as_str);
        let content = content.ok_or_else(|| at("has no `content` that is a text"))?;
        if role == Role::Assistant && content.trim().is_empty() {
            return Err(at("is an answer without text"));
        }
        chat.push(Message { role, content: content.to_owned() });
    }
    ends_with_answer(chat)
}

/// A coaching session: what came before, the request, and the answer that was sent in the end.
fn recorded(row: &Map<String, Value>) -> Result<Option<Vec<Message>>, String> {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    let verdict = row.get("final_verdict").filter(|verdict| verdict.is_object());
    let label = |name: &str| verdict.and_then(|verdict| verdict.get(name)).and_then(Value::as_bool);
    let is_good = label("unsafe") == Some(false) && label("overrefuse") == Some(false);
    let rating = match row.get("rating") {
        None | Some(Value::Null) => None,
        // Some tools write whole numbers beside nothing as `1.0`.
        Some(rating) => Some(rating.as_f64().ok_or("its `rating` is no number")?),
    };
    // Older releases called their own replies coached, too.
    let is_coached = text("decision") == "coached" && !templates::is_own_reply(text("final_text"));
    if !is_coached || !is_good || rating.is_some_and(|rating| rating < LOWEST_RATING) {
        return Ok(None);
    }
    if text("user_request").is_empty() || text("final_text").is_empty() {
        return Err("its texts were not recorded (`record.text = \"none\"`)".to_owned());
    }
    let mut chat = Vec::new();
    let turns = row.get("context").and_then(|context| context.get("turns")).and_then(Value::as_array);
    for turn in turns.into_iter().flatten() {
        let text = |name: &str| turn.get(name).and_then(Value::as_str);
        let role = match text("speaker") {
            Some("operator") => Role::System,
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            _ => return Err("its `context` has a turn of an unknown speaker".to_owned()),
        };
        chat.push(Message { role, content: text("text").unwrap_or_default().to_owned() });
    }
    chat.push(Message { role: Role::User, content: text("user_request").to_owned() });
    chat.push(Message { role: Role::Assistant, content: text("final_text").to_owned() });
    ends_with_answer(chat).map(Some)
}

fn ends_with_answer(chat: Vec<Message>) -> Result<Vec<Message>, String> {
    let roles: Vec<Role> = chat.iter().map(|message| message.role).collect();
    match roles.as_slice() {
        [.., Role::Assistant] if roles.contains(&Role::User) => Ok(chat),
        [.., Role::Assistant] => Err("nobody asks: it has no message of a user".to_owned()),
        _ => Err("it does not end with an answer of the assistant".to_owned()),
    }
}
