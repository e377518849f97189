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
            let Some(given) = self.get(keyword) else { return Ok(None) };
            let limit = whole(given).and_then(|limit| i32::try_from(limit).ok());
            limit.map(Some).ok_or_else(|| self.wrong(keyword, "must be a whole number of at most 32 bits"))
        };
        Ok(match (limit("minimum")?, limit("maximum")?) {
            (Some(least), Some(most)) => FieldKind::Number { least, most, decimals },
            (least, most) => FieldKind::OpenNumber { least, most, decimals },
        })
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
mod tests;
