//! Reading JSON that comes from outside: one pass, no duplicate keys, bounded depth and size.
//!
//! `serde_json` alone keeps the last of two equal keys, so that a rail and an upstream could each
//! read a different `model` out of the same bytes. Here the second key is an error.

mod read;

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub use read::read;

/// More values than any honest request has; a body of a million keys stops here.
pub const MAX_VALUES: usize = 200_000;

/// Why a text is not acceptable JSON, in words for the sender.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

/// Parses a JSON text. Nesting deeper than 127 levels, duplicate keys, lone surrogates, numbers out
/// of range and more than [`MAX_VALUES`] values are errors.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    parse_up_to(text, MAX_VALUES)
}

/// Parses an upstream's JSON object. It is as strict, but bounded by its bytes alone: log-probabilities and
/// vectors are many values.
pub fn parse_answer(text: &[u8]) -> Result<Map<String, Value>, JsonError> {
    match parse_up_to(text, usize::MAX)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError("the answer must be a JSON object".to_owned())),
    }
}

fn parse_up_to(text: &[u8], most: usize) -> Result<Value, JsonError> {
    let budget = Cell::new(most);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict { budget: &budget, roomy: most - ROOMY_VALUES.min(most) }
        .deserialize(&mut deserializer)
        .map_err(|error| JsonError(error.to_string()))?;
    deserializer.end().map_err(|error| JsonError(error.to_string()))?;
    Ok(value)
}

/// Parses a JSON text that must be an object.
pub fn parse_object(text: &[u8]) -> Result<Map<String, Value>, JsonError> {
    match parse(text)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError("the body must be a JSON object".to_owned())),
    }
}

/// Objects with fields that are looked for by name.
pub trait Fields {
    /// The field, if there is one. Objects of chats have few, and comparing a few names is quicker than hashing one.
    fn field(&self, name: &str) -> Option<&Value>;
}

/// From here on hashing a name is quicker.
const MANY_FIELDS: usize = 16;

impl Fields for Map<String, Value> {
    fn field(&self, name: &str) -> Option<&Value> {
        if self.len() >= MANY_FIELDS {
            return self.get(name);
        }
        self.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value)
    }
}

impl Fields for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        self.as_object()?.field(name)
    }
}

/// One text for equal values: keys in order, no spaces. Digests are taken over it.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort();
            let members: Vec<String> = keys
                .into_iter()
                .map(|key| format!("{}:{}", Value::from(key.as_str()), canonical(&object[key])))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Objects among so many first values get room for a few fields at once, which nearly all have; more of them could
/// make a small body large.
const ROOMY_VALUES: usize = 100;
const ROOM: usize = 7;

#[derive(Clone, Copy)]
struct Strict<'a> {
    /// Values that may follow.
    budget: &'a Cell<usize>,
    /// While more may follow, objects get room.
    roomy: usize,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.budget.get();
        if left == 0 {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        }
        self.budget.set(left - 1);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::with_capacity(if self.budget.get() > self.roomy { ROOM } else { 0 });
        while let Some(key) = entries.next_key::<String>()? {
            if object.field(&key).is_some() {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            let value = entries.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_field_is_found_in_small_and_large_objects(count in 0_usize..40, wanted in 0_usize..40) {
            let object: Map<String, Value> = (0..count).map(|key| (format!("k{key}"), key.into())).collect();
            let name = format!("k{wanted}");
            prop_assert_eq!(object.field(&name), object.get(&name));
            let whole = Value::Object(object.clone());
            prop_assert_eq!(whole.field(&name), object.get(&name));
            prop_assert_eq!(Value::Null.field(&name), None);
        }
    }

    fn rejected(text: &str) -> String {
        match parse(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(value) => panic!("accepted as {value}"),
        }
    }

    #[test]
    fn equal_values_have_one_canonical_text() {
        let one = parse(br#"{"b": [1, {"y": 0.5, "x": null}], "a": "\"q\""}"#).unwrap();
        let other = parse(br#"{"a":"\"q\"","b":[1,{"x":null,"y":0.50}]}"#).unwrap();
        assert_eq!(canonical(&one), canonical(&other));
        assert_eq!(canonical(&one), r#"{"a":"\"q\"","b":[1,{"x":null,"y":0.5}]}"#);
    }

    #[test]
    fn duplicate_keys_are_named_at_any_depth() {
        assert!(rejected(r#"{"model":"a","model":"b"}"#).contains("duplicate key `model`"));
        assert!(rejected(r#"{"a":[{"b":1,"b":2}]}"#).contains("duplicate key `b`"));
    }

    #[test]
    fn depth_size_and_surrogates_are_bounded() {
        assert!(rejected(&"[".repeat(100_000)).contains("recursion limit"));
        assert!(rejected(&format!("[{}1]", "1,".repeat(MAX_VALUES))).contains("values"));
        assert!(rejected(r#""\ud800""#).contains("escape"));
        assert!(rejected(r#""\udc00x""#).contains("surrogate"));
        assert!(rejected("1e999").contains("out of range"));
        assert!(rejected(r#"{"a":1} x"#).contains("trailing"));
        assert!(rejected("NaN").contains("expected"));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_what_it_accepts(text in r#"[\[\]{},:"a-c0-9.eE+\- ]{0,40}"#) {
            if let Ok(value) = parse(text.as_bytes()) {
                prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
