//! Tools in both directions: their definitions, the choice among them, and the calls.
//!
//! A tool that Anthropic defines and the client runs (`bash_20250124` and so on) has no chat form; it is kept
//! as it came, which an Anthropic upstream understands and another one refuses. A tool that the provider
//! runs (`web_search_20260318` and so on) acts before a judge can read the call, and reaches no upstream.

use serde_json::{Map, Value, json};

use super::error::invalid;
use crate::openai::ApiError;

/// The field under which arguments that are not a JSON object reach a form that allows only objects.
const RAW_ARGUMENTS: &str = "raw_arguments";

/// What the types of Anthropic's own tools begin with where the client runs them.
const RUN_BY_CLIENT: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

/// Anthropic's tool definitions as chat tools.
pub(super) fn definitions_to_chat(tools: Value) -> Result<Value, ApiError> {
    let Value::Array(tools) = tools else { return Err(invalid("tools", "must be an array of tools")) };
    let mut converted = Vec::with_capacity(tools.len());
    for (position, tool) in tools.into_iter().enumerate() {
        let at = format!("tools[{position}]");
        let Value::Object(mut tool) = tool else { return Err(invalid(&at, "must be an object")) };
        if let Some(kind) = tool.get("type").and_then(Value::as_str).filter(|kind| *kind != "custom") {
            if !is_run_by_client(kind) {
                let wanted = format!(
                    "is `{kind}`, a tool that the client does not run, which waltz does not pass on; leave it out"
                );
                return Err(invalid(&format!("{at}.type"), &wanted));
            }
            converted.push(Value::Object(tool));
            continue;
        }
        let name = tool.shift_remove("name").filter(Value::is_string);
        let name = name.ok_or_else(|| invalid(&format!("{at}.name"), "must be a string"))?;
        let schema = tool.shift_remove("input_schema").filter(Value::is_object);
        let schema =
            schema.ok_or_else(|| invalid(&format!("{at}.input_schema"), "must be a JSON schema object"))?;
        let mut function = Map::new();
        function.insert("name".to_owned(), name);
        for field in ["description", "strict"] {
            if let Some(value) = tool.shift_remove(field).filter(|value| !value.is_null()) {
                function.insert(field.to_owned(), value);
            }
        }
        function.insert("parameters".to_owned(), schema);
        let mut outer = Map::new();
        outer.insert("type".to_owned(), json!("function"));
        outer.insert("function".to_owned(), Value::Object(function));
        // The rest, such as `cache_control`, matters only to an Anthropic upstream.
        tool.shift_remove("type");
        outer.extend(tool);
        converted.push(Value::Object(outer));
    }
    Ok(Value::Array(converted))
}

/// Chat tools as Anthropic's tool definitions.
pub(super) fn definitions_from_chat(tools: &[Value]) -> Vec<Value> {
    tools.iter().filter_map(Value::as_object).filter_map(definition_from_chat).collect()
}

fn is_run_by_client(kind: &str) -> bool {
    RUN_BY_CLIENT.iter().any(|beginning| kind.starts_with(beginning))
}

fn definition_from_chat(outer: &Map<String, Value>) -> Option<Value> {
    let mut tool = Map::new();
    let any_object = json!({"type": "object", "properties": {}});
    if let Some(function) = outer.get("function") {
        tool.insert("name".to_owned(), function.get("name").cloned().unwrap_or_default());
        for field in ["description", "strict"] {
            if let Some(value) = function.get(field).filter(|value| !value.is_null()) {
                tool.insert(field.to_owned(), value.clone());
            }
        }
        let schema = function.get("parameters").filter(|schema| schema.is_object()).cloned();
        tool.insert("input_schema".to_owned(), schema.unwrap_or(any_object));
    } else if let Some(custom) = outer.get("custom") {
        // A free-text tool becomes a function of one text.
        tool.insert("name".to_owned(), custom.get("name").cloned().unwrap_or_default());
        if let Some(description) = custom.get("description") {
            tool.insert("description".to_owned(), description.clone());
        }
        let text =
            json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
        tool.insert("input_schema".to_owned(), text);
    } else {
        let kind = outer.get("type").and_then(Value::as_str);
        return kind.is_some_and(is_run_by_client).then(|| Value::Object(outer.clone()));
    }
    let rest = outer.iter().filter(|(name, _)| !matches!(name.as_str(), "type" | "function" | "custom"));
    tool.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
    Some(Value::Object(tool))
}

/// Anthropic's `tool_choice` as chat's `tool_choice` and `parallel_tool_calls`.
pub(super) fn choice_to_chat(choice: &Value, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let converted = match choice.get("type").and_then(Value::as_str) {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => {
            let Some(name) = choice.get("name").and_then(Value::as_str) else {
                return Err(invalid("tool_choice.name", "must be the name of a tool"));
            };
            json!({"type": "function", "function": {"name": name}})
        }
        _ => return Err(invalid("tool_choice.type", "must be one of auto, any, tool, none")),
    };
    chat.insert("tool_choice".to_owned(), converted);
    if choice.get("disable_parallel_tool_use").and_then(Value::as_bool) == Some(true) {
        chat.insert("parallel_tool_calls".to_owned(), json!(false));
    }
    Ok(())
}

/// Chat's `tool_choice` and `parallel_tool_calls` as Anthropic's `tool_choice`. A list of allowed
/// tools is not expressible: its mode is kept.
pub(super) fn choice_from_chat(chat: &Map<String, Value>) -> Option<Value> {
    let one_at_a_time = chat.get("parallel_tool_calls").and_then(Value::as_bool) == Some(false);
    let mode = |mode: Option<&str>| match mode {
        Some("required") => json!({"type": "any"}),
        Some("none") => json!({"type": "none"}),
        _ => json!({"type": "auto"}),
    };
    let mut choice = match chat.get("tool_choice") {
        Some(Value::String(text)) => mode(Some(text)),
        Some(Value::Object(object)) => {
            let named =
                ["function", "custom"].iter().find_map(|kind| object.get(*kind)?.get("name")?.as_str());
            match named {
                Some(name) => json!({"type": "tool", "name": name}),
                None => mode(object.get("allowed_tools").and_then(|allowed| allowed.get("mode")?.as_str())),
            }
        }
        _ if one_at_a_time => mode(None),
        _ => return None,
    };
    if one_at_a_time && choice["type"] != "none" {
        choice["disable_parallel_tool_use"] = json!(true);
    }
    Some(choice)
}

/// A chat tool call as a `tool_use` block.
pub(super) fn block_from_call(call: &Value) -> Option<Value> {
    let id = anthropic_id(call.get("id").and_then(Value::as_str).unwrap_or_default());
    let (name, input) = if let Some(function) = call.get("function") {
        (function.get("name"), input_of(function.get("arguments")))
    } else {
        let custom = call.get("custom")?;
        (custom.get("name"), json!({"input": custom.get("input")}))
    };
    // A name that is no text is none, and nothing that a judge did not read.
    let name = name.and_then(Value::as_str).unwrap_or_default();
    Some(json!({"type": "tool_use", "id": id, "name": name, "input": input}))
}

/// A chat tool call with the arguments as text.
pub(super) fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// The arguments of a call as the object that Anthropic requires. They are read as the judge reads them;
/// what is no object is kept as text rather than lost.
fn input_of(arguments: Option<&Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(input @ Value::Object(_)) => input,
            _ => json!({ RAW_ARGUMENTS: text }),
        },
        // Some upstreams send the arguments as an object.
        Some(input @ Value::Object(_)) => input.clone(),
        Some(other) => json!({ RAW_ARGUMENTS: other.to_string() }),
    }
}

/// The arguments text of a `tool_use` block's input.
pub(super) fn arguments_of(input: Option<&Value>) -> String {
    match input {
        Some(Value::Object(input)) => match (input.len(), input.get(RAW_ARGUMENTS)) {
            (1, Some(Value::String(raw))) => raw.clone(),
            _ => Value::Object(input.clone()).to_string(),
        },
        _ => "{}".to_owned(),
    }
}

/// An id in the characters that Anthropic accepts. Call and result are changed alike.
pub(super) fn anthropic_id(id: &str) -> String {
    let accepted = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    id.chars().map(|letter| if accepted(letter) { letter } else { '_' }).collect()
}
