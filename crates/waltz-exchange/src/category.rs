//! The eight harms, and room for an operator's own.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of harm, written as its stable snake_case name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Category(Cow<'static, str>);

impl Category {
    /// Hurting people or animals, weapons.
    pub const VIOLENCE_HARM: Self = Self(Cow::Borrowed("violence_harm"));
    /// Crimes that are not covered by a narrower category.
    pub const ILLEGAL_ACTIVITY: Self = Self(Cow::Borrowed("illegal_activity"));
    /// Getting into systems or accounts of others.
    pub const UNAUTHORIZED_ACCESS: Self = Self(Cow::Borrowed("unauthorized_access"));
    /// Exposing or collecting private data.
    pub const PRIVACY_VIOLATION: Self = Self(Cow::Borrowed("privacy_violation"));
    /// Demeaning people for what they are.
    pub const HATE_SPEECH: Self = Self(Cow::Borrowed("hate_speech"));
    /// Suicide and self-injury.
    pub const SELF_HARM: Self = Self(Cow::Borrowed("self_harm"));
    /// Sexual content, and any sexual content about minors.
    pub const SEXUAL_CONTENT: Self = Self(Cow::Borrowed("sexual_content"));
    /// False claims made to deceive many people.
    pub const MISINFORMATION: Self = Self(Cow::Borrowed("misinformation"));

    /// The eight built-in categories, in the order in which they are reported.
    pub const ALL: [Self; 8] = [
        Self::VIOLENCE_HARM,
        Self::ILLEGAL_ACTIVITY,
        Self::UNAUTHORIZED_ACCESS,
        Self::PRIVACY_VIOLATION,
        Self::HATE_SPEECH,
        Self::SELF_HARM,
        Self::SEXUAL_CONTENT,
        Self::MISINFORMATION,
    ];

    /// Reads a category name: a built-in one, or an operator's own in lower snake case.
    /// Returns `None` for anything else, so that a misspelling with capitals or blanks is noticed.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(builtin) = Self::ALL.iter().find(|category| category.as_str() == name) {
            return Some(builtin.clone());
        }
        let starts_well = name.chars().next().is_some_and(|first| first.is_ascii_lowercase());
        let well_formed = name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
        (starts_well && well_formed && name.len() <= 64).then(|| Self(Cow::Owned(name.to_owned())))
    }

    /// The stable name, for wire forms and the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is one of the eight built-in categories.
    pub fn is_builtin(&self) -> bool {
        Self::ALL.contains(self)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_names_are_borrowed_and_own_names_are_accepted() {
        assert_eq!(Category::parse("self_harm"), Some(Category::SELF_HARM));
        assert_eq!(Category::parse("trade_secrets").map(|own| own.is_builtin()), Some(false));
        assert_eq!(Category::parse("Self Harm"), None);
        assert_eq!(Category::parse(""), None);
    }
}
