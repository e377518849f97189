//! Every effective value with its origin, for `waltz config show`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::build::is_variable_name;
use super::raw::RawConfig;

/// One effective value.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: String,
}

/// All values, in the order of the file's sections. Where a secret was written by mistake, it is not
/// shown: credentials in an address, or a key in place of a variable's name. A stage that cannot serve, for the reason
/// that is given, is not shown as one that does.
pub(crate) fn rows(
    raw: &RawConfig,
    origins: &BTreeMap<String, String>,
    stage_trouble: Option<&str>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Ok(value) = serde_json::to_value(raw) {
        collect("", &value, origins, &mut rows);
    }
    if let Some(reason) = stage_trouble
        && let Some(stage) = rows.iter_mut().find(|row| row.key == "waltz.stage")
    {
        stage.value = Value::from(1);
        stage.origin = format!("{} asks for 2: {reason}", stage.origin);
    }
    rows
}

fn collect(path: &str, value: &Value, origins: &BTreeMap<String, String>, rows: &mut Vec<Row>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, inner) in fields {
                let inner_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(&inner_path, inner, origins, rows);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, inner) in items.iter().enumerate() {
                collect(&format!("{path}[{index}]"), inner, origins, rows);
            }
        }
        Value::Null => {}
        _ => rows.push(Row {
            key: path.to_owned(),
            value: shown(path, value),
            origin: origins.get(path).cloned().unwrap_or_else(|| "default".to_owned()),
        }),
    }
}

fn shown(path: &str, value: &Value) -> Value {
    let Some(text) = value.as_str() else { return value.clone() };
    if (path.ends_with(".key_env") || path.ends_with(".database_url_env")) && !is_variable_name(text) {
        return Value::from("(hidden: not the name of a variable)");
    }
    if path.ends_with(".url") && text.contains(['@', '?', '#']) {
        return Value::from("(hidden: an address with credentials or a query)");
    }
    value.clone()
}
