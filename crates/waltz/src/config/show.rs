//! Every effective value with its origin, for `waltz config show`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::raw::RawConfig;

/// One effective value.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: String,
}

/// All values, in the order of the file's sections. Values never hold secrets: keys are named by
/// variable or file, or hashed.
pub(crate) fn rows(raw: &RawConfig, origins: &BTreeMap<String, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Ok(value) = serde_json::to_value(raw) {
        collect("", &value, origins, &mut rows);
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
            value: value.clone(),
            origin: origins.get(path).cloned().unwrap_or_else(|| "default".to_owned()),
        }),
    }
}
