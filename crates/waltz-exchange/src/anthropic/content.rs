//! The conversation of an Anthropic request, read into chat messages.
//!
//! One Anthropic turn may become several chat messages: every tool result is a message of its own, and
//! what stands between results keeps its place. A block that waltz does not know is an error, because a
//! judge could not read it.

use serde_json::{Map, Value, json};

use super::error::invalid;
use super::{thinking, tools};
use crate::openai::ApiError;

/// What the content of a failed tool result begins with, so that a judge sees that it failed.
pub(super) const TOOL_ERROR: &str = "[tool error]";

/// A block with the path that an error names it by.
type Located = (String, Map<String, Value>);

/// The system prompt as a message, `None` when it is empty.
pub(super) fn system(value: Value) -> Result<Option<Value>, ApiError> {
    let content = text_content(value, "system")?;
    let empty = matches!(&content, Value::String(text) if text.is_empty());
    Ok((!empty).then(|| json!({"role": "system", "content": content})))
}

/// All turns as chat messages.
pub(super) fn messages(value: Value) -> Result<Vec<Value>, ApiError> {
    let turns = match value {
        Value::Array(turns) if !turns.is_empty() => turns,
        _ => return Err(invalid("messages", "must be an array with at least one message")),
    };
    let mut messages = Vec::new();
    for (position, turn) in turns.into_iter().enumerate() {
        let at = format!("messages[{position}]");
        let Value::Object(mut turn) = turn else { return Err(invalid(&at, "must be an object")) };
        let content = turn.shift_remove("content").unwrap_or_default();
        let at_content = format!("{at}.content");
        match turn.get("role").and_then(Value::as_str) {
            Some("user") => user_turn(content, &at_content, &mut messages)?,
            Some("assistant") => messages.push(assistant_turn(content, &at_content)?),
            Some("system") => {
                messages.push(json!({"role": "system", "content": text_content(content, &at_content)?}));
            }
            _ => return Err(invalid(&format!("{at}.role"), "must be one of user, assistant, system")),
        }
    }
    Ok(messages)
}

fn user_turn(content: Value, at: &str, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let mut parts = Vec::new();
    let mut results = 0;
    let found = blocks(content, at)?;
    // An Anthropic upstream would get no turn at all.
    let is_blank = |(_, block): &Located| {
        let text = block.get("text").and_then(Value::as_str);
        kind(block) == "text" && text.is_some_and(|text| text.trim().is_empty())
    };
    if found.iter().all(is_blank) {
        return Err(invalid(at, "must hold more than white space"));
    }
    for (at, block) in found {
        if kind(&block) == "tool_result" {
            if !parts.is_empty() {
                messages.push(json!({"role": "user", "content": joined(std::mem::take(&mut parts))}));
            }
            messages.push(tool_result(block, &at)?);
            results += 1;
        } else {
            part(block, &at, &mut parts)?;
        }
    }
    if !parts.is_empty() || results == 0 {
        messages.push(json!({"role": "user", "content": joined(parts)}));
    }
    Ok(())
}

fn assistant_turn(content: Value, at: &str) -> Result<Value, ApiError> {
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    let mut thoughts = Vec::new();
    for (at, block) in blocks(content, at)? {
        match kind(&block) {
            "tool_use" => calls.push(tool_use(&block, &at)?),
            "thinking" | "redacted_thinking" => thoughts.push(Value::Object(block)),
            _ => part(block, &at, &mut parts)?,
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    let content = if parts.is_empty() && !calls.is_empty() { Value::Null } else { joined(parts) };
    message.insert("content".to_owned(), content);
    thinking::keep(&mut message, &thoughts, "");
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Ok(Value::Object(message))
}

fn tool_use(block: &Map<String, Value>, at: &str) -> Result<Value, ApiError> {
    let text = |field: &str| {
        let found = block.get(field).and_then(Value::as_str);
        found.ok_or_else(|| invalid(&format!("{at}.{field}"), "must be a string"))
    };
    let input = block.get("input");
    if !input.is_some_and(Value::is_object) {
        return Err(invalid(&format!("{at}.input"), "must be an object"));
    }
    Ok(tools::call(text("id")?, text("name")?, &tools::arguments_of(input)))
}

fn tool_result(mut block: Map<String, Value>, at: &str) -> Result<Value, ApiError> {
    let Some(Value::String(id)) = block.shift_remove("tool_use_id") else {
        return Err(invalid(&format!("{at}.tool_use_id"), "must be a string"));
    };
    let mut parts = Vec::new();
    let content = block.shift_remove("content").filter(|content| !content.is_null());
    for (at, inner) in blocks(content.unwrap_or_else(|| json!("")), &format!("{at}.content"))? {
        part(inner, &at, &mut parts)?;
    }
    let mut content = joined(parts);
    let failed = block.get("is_error").and_then(Value::as_bool) == Some(true);
    if failed {
        content = match content {
            Value::String(text) => json!(format!("{TOOL_ERROR} {text}")),
            Value::Array(mut parts) => {
                parts.insert(0, json!({"type": "text", "text": TOOL_ERROR}));
                Value::Array(parts)
            }
            other => other,
        };
    }
    let mut message = json!({"role": "tool", "tool_call_id": id, "content": content});
    if failed {
        message["is_error"] = json!(true);
    }
    if let Some(mark) = block.shift_remove("cache_control") {
        message["cache_control"] = mark;
    }
    Ok(message)
}

/// Adds one block of text, image, document or search result to the parts of a chat message.
fn part(mut block: Map<String, Value>, at: &str, parts: &mut Vec<Value>) -> Result<(), ApiError> {
    let before = parts.len();
    match kind(&block) {
        "text" => parts.push(text_part(&block, at)?),
        "image" => parts.push(image(&block, at)?),
        "document" => document(&mut block, at, parts)?,
        "search_result" => search_result(&mut block, at, parts)?,
        other => {
            let wanted = format!(
                "is `{other}`, which waltz does not pass on; use text, image, document, search_result, \
                 tool_use, tool_result or thinking"
            );
            return Err(invalid(&format!("{at}.type"), &wanted));
        }
    }
    if let (Some(mark), true) = (block.shift_remove("cache_control"), parts.len() > before)
        && let Some(Value::Object(last)) = parts.last_mut()
    {
        last.insert("cache_control".to_owned(), mark);
    }
    Ok(())
}

fn text_part(block: &Map<String, Value>, at: &str) -> Result<Value, ApiError> {
    match block.get("text") {
        Some(Value::String(text)) => Ok(json!({"type": "text", "text": text})),
        _ => Err(invalid(&format!("{at}.text"), "must be a string")),
    }
}

fn image(block: &Map<String, Value>, at: &str) -> Result<Value, ApiError> {
    let source = |field: &str| block.get("source").and_then(|source| source.get(field)?.as_str());
    let url = match (source("type"), source("media_type"), source("data"), source("url")) {
        (Some("base64"), Some(media), Some(data), _) => {
            if !matches!(media, "image/jpeg" | "image/png" | "image/gif" | "image/webp") {
                let wanted = "must be one of image/jpeg, image/png, image/gif, image/webp";
                return Err(invalid(&format!("{at}.source.media_type"), wanted));
            }
            format!("data:{media};base64,{data}")
        }
        (Some("url"), _, _, Some(url)) => url.to_owned(),
        _ => {
            let wanted = "must be {type: base64, media_type, data} or {type: url, url}";
            return Err(invalid(&format!("{at}.source"), wanted));
        }
    };
    Ok(json!({"type": "image_url", "image_url": {"url": url}}))
}

/// A document: plain text and nested blocks are spelled out, a PDF becomes a file part.
fn document(block: &mut Map<String, Value>, at: &str, parts: &mut Vec<Value>) -> Result<(), ApiError> {
    let title = block.get("title").and_then(Value::as_str).map(str::to_owned);
    if let Some(context) = block.get("context").and_then(Value::as_str) {
        parts.push(json!({"type": "text", "text": context}));
    }
    let mut source = block.shift_remove("source").unwrap_or_default();
    let field = |name: &str| source.get(name).and_then(Value::as_str);
    let name = || title.clone().unwrap_or_else(|| "document.pdf".to_owned());
    match (field("type"), field("data"), field("url")) {
        (Some("text"), Some(data), _) => {
            let text = title.map_or_else(|| data.to_owned(), |title| format!("{title}\n\n{data}"));
            parts.push(json!({"type": "text", "text": text}));
        }
        (Some("base64"), Some(data), _) if field("media_type") == Some("application/pdf") => {
            let data = format!("data:application/pdf;base64,{data}");
            parts.push(json!({"type": "file", "file": {"filename": name(), "file_data": data}}));
        }
        (Some("url"), _, Some(url)) => {
            parts.push(json!({"type": "file", "file": {"filename": name(), "file_url": url}}));
        }
        (Some("content"), _, _) => {
            parts.extend(title.map(|title| json!({"type": "text", "text": title})));
            let content = source.get_mut("content").map(Value::take).unwrap_or_default();
            for (at, inner) in blocks(content, &format!("{at}.source.content"))? {
                match kind(&inner) {
                    "text" => parts.push(text_part(&inner, &at)?),
                    "image" => parts.push(image(&inner, &at)?),
                    _ => return Err(invalid(&format!("{at}.type"), "must be text or image")),
                }
            }
        }
        _ => {
            let wanted = "must be a text, a PDF in base64, a url or content blocks; files are not supported";
            return Err(invalid(&format!("{at}.source"), wanted));
        }
    }
    Ok(())
}

fn search_result(block: &mut Map<String, Value>, at: &str, parts: &mut Vec<Value>) -> Result<(), ApiError> {
    for field in ["title", "source"] {
        let Some(text) = block.get(field).and_then(Value::as_str) else {
            return Err(invalid(&format!("{at}.{field}"), "must be a string"));
        };
        parts.push(json!({"type": "text", "text": text}));
    }
    let content = block.shift_remove("content").unwrap_or_default();
    for (at, inner) in blocks(content, &format!("{at}.content"))? {
        parts.push(text_part(&inner, &at)?);
    }
    Ok(())
}

/// Content that may only be text: a string, or text blocks.
fn text_content(content: Value, at: &str) -> Result<Value, ApiError> {
    let mut parts = Vec::new();
    for (at, block) in blocks(content, at)? {
        if kind(&block) != "text" {
            return Err(invalid(&format!("{at}.type"), "must be text"));
        }
        part(block, &at, &mut parts)?;
    }
    Ok(joined(parts))
}

/// The blocks of a content with the path of each; a string is one text block.
fn blocks(content: Value, at: &str) -> Result<Vec<Located>, ApiError> {
    let items = match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(items) => items,
        _ => return Err(invalid(at, "must be a string or an array of blocks")),
    };
    let mut found = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        let at = format!("{at}[{position}]");
        match item {
            Value::Object(block) if block.get("type").is_some_and(Value::is_string) => {
                found.push((at, block))
            }
            _ => return Err(invalid(&at, "must be an object with a `type`")),
        }
    }
    Ok(found)
}

fn kind(block: &Map<String, Value>) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Parts as the content of a chat message: a string when they are one plain text, which every upstream
/// takes.
fn joined(mut parts: Vec<Value>) -> Value {
    match parts.as_mut_slice() {
        [] => json!(""),
        [Value::Object(only)] if only.len() == 2 && only.contains_key("text") => {
            only.shift_remove("text").unwrap_or_default()
        }
        _ => Value::Array(parts),
    }
}
