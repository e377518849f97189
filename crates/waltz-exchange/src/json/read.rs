//! Makes our own types of JSON objects. serde's derived code also reads a struct from a list, field by field, and names
//! our types in its messages; senders mean objects and do not know our types. Called by whoever reads a body.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

use super::JsonError;

/// Reads a type from an object. Wherever in it a type with named fields is meant, only an object is taken.
pub fn read<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, JsonError> {
    T::deserialize(Named(Value::Object(object))).map_err(|error| JsonError(error.to_string()))
}

/// A value whose structs are objects.
struct Named(Value);

impl<'de> IntoDeserializer<'de, Error> for Named {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Named {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Named));
                let read = visitor.visit_seq(&mut items)?;
                items.end().map(|()| read)
            }
            Value::Object(object) => {
                let named = object.into_iter().map(|(key, value)| (Named(Value::String(key)), Named(value)));
                let mut fields = MapDeserializer::new(named);
                let read = visitor.visit_map(&mut fields)?;
                fields.end().map(|()| read)
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let found = match &self.0 {
            Value::Object(_) => return self.deserialize_any(visitor),
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
        };
        Err(Error::custom(format!("expected an object, not {found}")))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Basket {
        owner: Owner,
        size: Option<f32>,
        full: Option<bool>,
        #[serde(default)]
        fruits: Vec<Fruit>,
        #[serde(default)]
        prices: BTreeMap<Owner, u8>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Owner(String);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Fruit {
        name: String,
        count: i64,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Wicker,
        Metal(u8),
    }

    fn basket(value: Value) -> Result<Basket, String> {
        let Value::Object(object) = value else { panic!("{value}") };
        read(object).map_err(|error| error.to_string())
    }

    #[test]
    fn what_serde_json_reads_of_objects_is_read_the_same() {
        let fruits = json!([{"name": "pear", "count": -3}]);
        for value in [
            json!({"owner": "me"}),
            json!({"owner": "me", "size": 1, "full": null, "fruits": fruits, "kind": "wicker"}),
            json!({"owner": "me", "size": 0.5, "prices": {"you": 7}, "kind": {"metal": 2}}),
        ] {
            let expected: Basket = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(basket(value), Ok(expected));
        }
        for (value, wrong) in [
            (json!({}), "missing field `owner`"),
            (json!({"owner": "me", "colour": 1}), "unknown field `colour`"),
            (json!({"owner": "me", "size": "small"}), "invalid type: string \"small\", expected f32"),
            (json!({"owner": "me", "kind": "paper"}), "unknown variant `paper`"),
        ] {
            let message = basket(value).unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn a_list_is_no_object_at_any_depth_and_messages_name_no_types_of_ours() {
        for (fruit, found) in [
            (json!(["pear", 3]), "an array"),
            (json!("pear"), "a string"),
            (json!(3), "a number"),
            (json!(true), "true or false"),
            (json!(null), "null"),
        ] {
            let message = basket(json!({"owner": "me", "fruits": [fruit]})).unwrap_err();
            assert_eq!(message, format!("expected an object, not {found}"));
        }
    }
}
