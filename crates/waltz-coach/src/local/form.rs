//! `response_format` as a form that a local model cannot leave: a JSON schema of one flat object.

use std::sync::Arc;

use serde_json::{Map, Value};
use waltz_model::{Field, FieldKind, Schema};

use super::{Language, Trouble};

/// Characters of a text whose schema does not say how long it may be.
const USUAL_LENGTH: u64 = 400;

/// The form that a request wants, if any. `json_object` alone names no fields, and is left to the prompt.
pub(super) fn schema(language: &Language, body: &Map<String, Value>) -> Result<Option<Arc<Schema>>, Trouble> {
    let Some(wanted) = body.get("response_format").and_then(|format| format.get("json_schema")) else {
        return Ok(None);
    };
    let fields = wanted.get("schema").and_then(fields).ok_or_else(|| {
        let message = "this model can keep to a flat object of strings, booleans, numbers with limits, enums and constants";
        Trouble::Invalid(message.to_owned())
    })?;
    let schema =
        Schema::new(&fields, language.index()).map_err(|error| Trouble::Invalid(error.to_string()))?;
    Ok(Some(Arc::new(schema)))
}

fn fields(schema: &Value) -> Option<Vec<Field>> {
    let properties = schema.get("properties")?.as_object()?;
    properties.iter().map(|(name, form)| Some(Field { name: name.clone(), kind: kind(form)? })).collect()
}

fn kind(form: &Value) -> Option<FieldKind> {
    if let Some(fixed) = form.get("const") {
        return Some(FieldKind::Fixed(fixed.as_str()?.to_owned()));
    }
    if let Some(choices) = form.get("enum") {
        let texts = choices.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
        return texts.collect::<Option<Vec<String>>>().map(FieldKind::OneOf);
    }
    let limit = |name: &str| form.get(name)?.as_i64().and_then(|limit| i32::try_from(limit).ok());
    match form.get("type")?.as_str()? {
        "boolean" => Some(FieldKind::Flag),
        "string" => {
            let most = form.get("maxLength").and_then(Value::as_u64).unwrap_or(USUAL_LENGTH);
            Some(FieldKind::Text { most: usize::try_from(most).ok()? })
        }
        "integer" => {
            Some(FieldKind::Number { least: limit("minimum")?, most: limit("maximum")?, decimals: 0 })
        }
        "number" => {
            Some(FieldKind::Number { least: limit("minimum")?, most: limit("maximum")?, decimals: 2 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flat_objects_are_understood_and_others_are_not() {
        let form = json!({"type": "object", "properties": {
            "nonce": {"const": "a1"},
            "why": {"type": "string", "maxLength": 80},
            "unsafe": {"type": "boolean"},
            "level": {"enum": ["low", "high"]},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        }});
        let names: Vec<String> = fields(&form).unwrap().into_iter().map(|field| field.name).collect();
        assert_eq!(names, ["nonce", "why", "unsafe", "level", "score"]);
        for unknown in
            [json!({"type": "array"}), json!({"type": "object", "properties": {}}), json!({"type": "number"})]
        {
            assert!(kind(&unknown).is_none(), "{unknown}");
        }
    }
}
