//! JSON has no NaN and no infinity: they are written as `null`, which is no number when it is read back. What the
//! drain takes from memory must be what the journal says, so that numbers are looked at before.

use std::fmt;

use serde::ser::{
    self, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Whether every number of a value is one in JSON too.
pub(super) fn is_finite(value: &impl Serialize) -> bool {
    value.serialize(Look).is_ok()
}

/// Writes nothing and stops at the first number that is not finite.
struct Look;

#[derive(Debug)]
struct NotFinite;

impl fmt::Display for NotFinite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number is not finite")
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Looked = Result<(), NotFinite>;

/// Values without numbers in them that could be wrong.
macro_rules! harmless {
    ($($method:ident($($argument:ty),*)),* $(,)?) => {
        $(fn $method(self, $(_: $argument),*) -> Looked { Ok(()) })*
    };
}

/// Values that hold others.
macro_rules! compound {
    ($($kind:ident($method:ident($($argument:ty),*))),* $(,)?) => {
        $(fn $method(self, $(_: $argument),*) -> Result<Self, NotFinite> { Ok(self) })*
        $(type $kind = Self;)*
    };
}

impl Serializer for Look {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_f32(self, number: f32) -> Looked {
        if number.is_finite() { Ok(()) } else { Err(NotFinite) }
    }

    fn serialize_f64(self, number: f64) -> Looked {
        if number.is_finite() { Ok(()) } else { Err(NotFinite) }
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Looked {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Looked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Looked {
        value.serialize(self)
    }

    /// A time, which would be written out for nothing.
    fn collect_str<T: ?Sized + fmt::Display>(self, _: &T) -> Looked {
        Ok(())
    }

    harmless! {
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(&'static str),
        serialize_unit_variant(&'static str, u32, &'static str),
    }

    compound! {
        SerializeSeq(serialize_seq(Option<usize>)),
        SerializeTuple(serialize_tuple(usize)),
        SerializeTupleStruct(serialize_tuple_struct(&'static str, usize)),
        SerializeTupleVariant(serialize_tuple_variant(&'static str, u32, &'static str, usize)),
        SerializeMap(serialize_map(Option<usize>)),
        SerializeStruct(serialize_struct(&'static str, usize)),
        SerializeStructVariant(serialize_struct_variant(&'static str, u32, &'static str, usize)),
    }
}

/// The parts of values that hold others.
macro_rules! parts {
    ($($kind:ident { $method:ident($($name:ty)?) })*) => {
        $(impl $kind for Look {
            type Ok = ();
            type Error = NotFinite;

            fn $method<T: ?Sized + Serialize>(&mut self, $(_: $name,)? value: &T) -> Looked {
                value.serialize(Look)
            }

            fn end(self) -> Looked {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq { serialize_element() }
    SerializeTuple { serialize_element() }
    SerializeTupleStruct { serialize_field() }
    SerializeTupleVariant { serialize_field() }
    SerializeStruct { serialize_field(&'static str) }
    SerializeStructVariant { serialize_field(&'static str) }
}

impl SerializeMap for Look {
    type Ok = ();
    type Error = NotFinite;

    /// Keys are text.
    fn serialize_key<T: ?Sized + Serialize>(&mut self, _: &T) -> Looked {
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Looked {
        value.serialize(Look)
    }

    fn end(self) -> Looked {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;
    use serde_json::json;

    use super::is_finite;

    #[test]
    fn a_number_is_found_wherever_it_is() {
        #[derive(Serialize)]
        enum Kind {
            Unit,
            New(Option<f32>),
            Tuple(u8, f64),
            Fields { at: BTreeMap<String, Vec<f32>> },
        }
        let with = |number: f32| {
            let at = BTreeMap::from([("a".to_owned(), vec![1.0, number])]);
            [Kind::New(Some(number)), Kind::Tuple(1, number.into()), Kind::Fields { at }]
        };
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for kind in with(number) {
                assert!(!is_finite(&[Kind::Unit, kind]));
            }
        }
        assert!(is_finite(&with(0.5)));
        assert!(is_finite(&(json!({"a": [1, 2.5, null, "x", true]}), jiff::Timestamp::UNIX_EPOCH)));
    }
}
