//! `response_format` as a form that a local model cannot leave: a JSON schema of one flat object. A keyword that
//! restricts the answer and is not kept to is refused by its name: whoever asks for it relies on it.

use std::sync::Arc;

use serde_json::{Map, Value};
use waltz_model::{Field, FieldKind, Schema};

use super::{Language, Trouble};

/// Characters of a text whose schema does not say how long it may be.
const USUAL_LENGTH: usize = 400;
/// Keywords that say something about a value and restrict nothing. Definitions do so only where they are referred to.
const ANNOTATIONS: [&str; 14] = [
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
];

/// The form that a request wants, if any. `json_object` alone names no fields, and is left to the prompt.
pub(super) fn schema(language: &Language, body: &Map<String, Value>) -> Result<Option<Arc<Schema>>, Trouble> {
    let Some(wanted) = wanted(body)? else { return Ok(None) };
    let schema = Schema::new(&fields(wanted)?, language.index());
    schema.map(|schema| Some(Arc::new(schema))).map_err(|error| Trouble::Invalid(error.to_string()))
}

/// The JSON schema of a request that wants its answer to follow one.
fn wanted(body: &Map<String, Value>) -> Result<Option<&Value>, Trouble> {
    let format = match body.get("response_format") {
        None | Some(Value::Null) => return Ok(None),
        Some(format) => format,
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text" | "json_object") => Ok(None),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|named| named.get("schema"));
            let missing = || Trouble::Invalid("`response_format.json_schema.schema` is missing".to_owned());
            schema.map(Some).ok_or_else(missing)
        }
        _ => {
            let message = "`response_format.type` must be text, json_object or json_schema";
            Err(Trouble::Invalid(message.to_owned()))
        }
    }
}

fn fields(schema: &Value) -> Result<Vec<Field>, Trouble> {
    let root = Part::new("#".to_owned(), schema)?;
    // Only the properties are written, all of them: what the schema says of others is kept to.
    root.keeps_to(&["type", "properties", "required", "additionalProperties"])?;
    if root.get("type").is_some_and(|kind| kind != "object") {
        return Err(root.wrong("type", "must be object"));
    }
    let Some(properties) = root.get("properties").and_then(Value::as_object) else {
        return Err(root.wrong("properties", "must be the object's fields"));
    };
    let is_field = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    if !root
        .get("required")
        .is_none_or(|required| required.as_array().is_some_and(|names| names.iter().all(is_field)))
    {
        return Err(root.wrong("required", "must be a list of names in `properties`"));
    }
    let mut fields = Vec::with_capacity(properties.len());
    for (name, form) in properties {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let kind = Part::new(format!("#/properties/{escaped}"), form)?.kind()?;
        fields.push(Field { name: name.clone(), kind });
    }
    Ok(fields)
}

/// An object of the schema, and where it stands.
struct Part<'a> {
    path: String,
    keywords: &'a Map<String, Value>,
}

impl<'a> Part<'a> {
    fn new(path: String, value: &'a Value) -> Result<Self, Trouble> {
        match value.as_object() {
            Some(keywords) => Ok(Self { path, keywords }),
            None => Err(Trouble::Invalid(format!("`{path}` must be an object"))),
        }
    }

    fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.keywords.get(keyword)
    }

    /// Refuses every keyword but these, and those that restrict nothing.
    fn keeps_to(&self, kept: &[&str]) -> Result<(), Trouble> {
        let is_free = |word: &str| ANNOTATIONS.contains(&word) || word.starts_with("x-");
        match self.keywords.keys().find(|word| !kept.contains(&word.as_str()) && !is_free(word)) {
            Some(word) => Err(self.wrong(word, "is not enforced by this model: leave it out")),
            None => Ok(()),
        }
    }

    fn wrong(&self, keyword: &str, reason: &str) -> Trouble {
        Trouble::Invalid(format!(
            "`{}/{keyword}` {reason}; this model can keep to a flat object of strings (`maxLength`), booleans, \
             numbers (`minimum` and `maximum`), enums and constants",
            self.path
        ))
    }

    fn kind(&self) -> Result<FieldKind, Trouble> {
        for keyword in ["const", "enum"] {
            let Some(value) = self.get(keyword) else { continue };
            self.keeps_to(&[keyword, "type"])?;
            if self.get("type").is_some_and(|kind| kind != "string") {
                return Err(self.wrong("type", "must be string"));
            }
            let kind = if keyword == "const" { fixed(value) } else { one_of(value) };
            return kind.ok_or_else(|| self.wrong(keyword, "must be text"));
        }
        match self.get("type").and_then(Value::as_str) {
            Some("boolean") => {
                self.keeps_to(&["type"])?;
                Ok(FieldKind::Flag)
            }
            Some("string") => {
                self.keeps_to(&["type", "maxLength"])?;
                let most = self.get("maxLength").map_or(Some(USUAL_LENGTH), |most| {
                    whole(most).and_then(|most| usize::try_from(most).ok())
                });
                most.map(|most| FieldKind::Text { most })
                    .ok_or_else(|| self.wrong("maxLength", "must be a whole number from 0 up"))
            }
            Some("integer") => self.number(0),
            Some("number") => self.number(2),
            _ => {
                self.keeps_to(&["type"])?;
                Err(self.wrong("type", "must be string, boolean, integer or number"))
            }
        }
    }

    fn number(&self, decimals: u8) -> Result<FieldKind, Trouble> {
        self.keeps_to(&["type", "minimum", "maximum"])?;
        let limit = |keyword: &str| {
            let limit = self.get(keyword).and_then(whole).and_then(|limit| i32::try_from(limit).ok());
            limit.ok_or_else(|| self.wrong(keyword, "must be a whole number of at most 32 bits"))
        };
        Ok(FieldKind::Number { least: limit("minimum")?, most: limit("maximum")?, decimals })
    }
}

fn fixed(value: &Value) -> Option<FieldKind> {
    value.as_str().map(|text| FieldKind::Fixed(text.to_owned()))
}

fn one_of(value: &Value) -> Option<FieldKind> {
    let texts = value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
    texts.collect::<Option<Vec<String>>>().map(FieldKind::OneOf)
}

/// A whole number. To JSON schemas 1.0 is one.
fn whole(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "no limit of a form comes near those of 64 bits")]
    let from_float = || value.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i64);
    value.as_i64().or_else(from_float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field_kind(form: Value) -> Result<FieldKind, String> {
        let mut fields = told(fields(&json!({"properties": {"a": form}})))?;
        Ok(fields.remove(0).kind)
    }

    fn told<T>(outcome: Result<T, Trouble>) -> Result<T, String> {
        outcome.map_err(|trouble| match trouble {
            Trouble::Invalid(message) => message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn flat_objects_are_understood() {
        let form = json!({"type": "object", "title": "Opinion", "$schema": "x", "$defs": {"unused": {}},
            "additionalProperties": false, "required": ["nonce", "level"], "properties": {
            "nonce": {"const": "a1", "type": "string"},
            "why": {"type": "string", "maxLength": 80, "description": "in one sentence", "default": ""},
            "unsafe": {"type": "boolean", "readOnly": true, "x-order": 3},
            "level": {"enum": ["low", "high"], "examples": ["low"]},
            "score": {"type": "number", "minimum": 0, "maximum": 1.0},
        }});
        let fields = told(fields(&form)).unwrap();
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["nonce", "why", "unsafe", "level", "score"]);
        assert_eq!(fields[4].kind, FieldKind::Number { least: 0, most: 1, decimals: 2 });
        assert_eq!(
            field_kind(json!({"type": "integer", "minimum": -2.0, "maximum": 3e1})),
            Ok(FieldKind::Number { least: -2, most: 30, decimals: 0 })
        );
        assert_eq!(field_kind(json!({"type": "string", "maxLength": 8.0})), Ok(FieldKind::Text { most: 8 }));
        assert_eq!(field_kind(json!({"type": "string"})), Ok(FieldKind::Text { most: USUAL_LENGTH }));
    }

    #[test]
    fn what_a_field_is_not_held_to_is_refused_with_its_path() {
        let number = |more: Value| {
            let mut form = json!({"type": "integer", "minimum": 0, "maximum": 9});
            form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            form
        };
        for (form, path) in [
            (json!({"type": "string", "pattern": "^a+$"}), "pattern"),
            (json!({"type": "string", "minLength": 30}), "minLength"),
            (json!({"type": "string", "format": "date"}), "format"),
            (json!({"type": "string", "maxLenght": 3}), "maxLenght"),
            (json!({"type": "string", "maxLength": -1}), "maxLength"),
            (json!({"type": "string", "maxLength": "3"}), "maxLength"),
            (json!({"type": "string", "not": {"const": ""}}), "not"),
            (json!({"const": "abc", "maxLength": 2}), "maxLength"),
            (json!({"const": "abc", "enum": ["x"]}), "enum"),
            (json!({"const": 1}), "const"),
            (json!({"enum": ["a"], "type": "integer"}), "type"),
            (json!({"enum": ["a", 1]}), "enum"),
            (number(json!({"multipleOf": 4})), "multipleOf"),
            (number(json!({"exclusiveMinimum": 3})), "exclusiveMinimum"),
            (number(json!({"maximum": 1.5})), "maximum"),
            (number(json!({"minimum": 1e12})), "minimum"),
            (json!({"type": "number"}), "minimum"),
            (json!({"type": "boolean", "anyOf": []}), "anyOf"),
            (json!({"$ref": "#"}), "$ref"),
            (json!({"type": ["string", "null"]}), "type"),
            (json!({"type": "object", "properties": {}}), "properties"),
            (json!({"type": "array"}), "type"),
            (json!({}), "type"),
        ] {
            let message = field_kind(form.clone()).expect_err(&form.to_string());
            assert!(message.starts_with(&format!("`#/properties/a/{path}` ")), "{form}: {message}");
        }
        assert!(field_kind(json!(true)).unwrap_err().starts_with("`#/properties/a` must be an object"));
        let slashes = json!({"properties": {"a/~b": {"type": "string", "pattern": "x"}}});
        assert!(told(fields(&slashes)).unwrap_err().starts_with("`#/properties/a~1~0b/pattern` "));
    }

    #[test]
    fn what_an_object_is_not_held_to_is_refused_with_its_path() {
        for (more, path) in [
            (json!({"type": "string"}), "type"),
            (json!({"properties": null}), "properties"),
            (json!({"required": ["a", "b"]}), "required"),
            (json!({"required": true}), "required"),
            (json!({"minProperties": 2}), "minProperties"),
            (json!({"patternProperties": {}}), "patternProperties"),
            (json!({"allOf": []}), "allOf"),
            (json!({"$ref": "#/$defs/x"}), "$ref"),
        ] {
            let mut form = json!({"properties": {"a": {"type": "boolean"}}});
            form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let message = told(fields(&form)).unwrap_err();
            assert!(message.starts_with(&format!("`#/{path}` ")), "{more}: {message}");
        }
        assert!(told(fields(&json!(true))).is_err());
    }

    #[test]
    fn the_type_of_the_format_decides() {
        let schema = json!({"schema": {"properties": {}}});
        let wanted_by = |format: Value| {
            let body = json!({ "response_format": format });
            told(wanted(body.as_object().unwrap()).map(|schema| schema.is_some()))
        };
        assert_eq!(wanted_by(json!({"type": "json_schema", "json_schema": schema})), Ok(true));
        for free in
            [json!(null), json!({"type": "text", "json_schema": schema}), json!({"type": "json_object"})]
        {
            assert_eq!(wanted_by(free), Ok(false));
        }
        for (odd, named) in [
            (json!({"type": "json_schema"}), "`response_format.json_schema.schema`"),
            (
                json!({"type": "json_schema", "json_schema": {"name": "x"}}),
                "`response_format.json_schema.schema`",
            ),
            (json!({"json_schema": schema}), "`response_format.type`"),
            (json!({"type": "xml"}), "`response_format.type`"),
            (json!("json"), "`response_format.type`"),
        ] {
            assert!(wanted_by(odd).unwrap_err().starts_with(named));
        }
    }
}
