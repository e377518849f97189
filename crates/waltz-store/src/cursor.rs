//! Where a page of a listing ends, as an opaque text that is safe in a URL.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The place after which the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cursor {
    /// The time of the last row, in microseconds since 1970.
    pub(crate) at: i64,
    /// The key of the last row.
    pub(crate) id: String,
    /// Its tenant, where the key alone is not unique.
    pub(crate) tenant: String,
}

impl Cursor {
    /// Before every row: the newest page.
    pub(crate) fn start() -> Self {
        Self { at: i64::MAX, id: String::new(), tenant: String::new() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(&(self.at, &self.id, &self.tenant)).map_err(|_| fmt::Error)?;
        for byte in text.bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownName {
            what: "a cursor",
            allowed: "the cursors of earlier pages",
            name: text.chars().take(64).collect(),
        };
        let mut bytes = Vec::with_capacity(text.len() / 2);
        for pair in text.as_bytes().chunks(2) {
            let digits = std::str::from_utf8(pair).map_err(|_| unknown())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| unknown())?);
        }
        let (at, id, tenant) = serde_json::from_slice(&bytes).map_err(|_| unknown())?;
        Ok(Self { at, id, tenant })
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for Cursor {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(at: i64, id: String, tenant: String) {
            let cursor = Cursor { at, id, tenant };
            prop_assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_a_cursor_or_an_error(text: String) {
            let _ = text.parse::<Cursor>();
        }
    }
}
