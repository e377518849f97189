//! The section that says what is done with personal data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done with personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PiiAction {
    /// It stays.
    Allow,
    /// It stays, and is counted in the record and in `waltz.scanned`.
    Tag,
    /// `[EMAIL]` stands in its place.
    Mask,
    /// A keyed hash stands in its place, the same for the same value.
    Hash,
    /// `[EMAIL_1]` stands in its place until the answer goes out, where the value comes back.
    Placeholder,
    /// The text does not go on.
    Refuse,
}

/// What is done with personal data and secrets on their way, by direction.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pii {
    /// In requests, before an upstream sees them.
    pub(crate) request: PiiAction,
    /// In answers, before the client sees them. Any action but `allow` and `tag` sends streams once all was read.
    pub(crate) answer: PiiAction,
    /// In what is stored, where `record.text` is `masked`.
    pub(crate) record: PiiAction,
    /// The environment variable that holds the key of hashes.
    pub(crate) hash_key_env: Option<String>,
    /// Other actions for single kinds, such as `kinds.email.request`.
    pub(crate) kinds: BTreeMap<String, PiiKindActions>,
}

impl Default for Pii {
    fn default() -> Self {
        Self {
            request: PiiAction::Allow,
            answer: PiiAction::Allow,
            record: PiiAction::Mask,
            hash_key_env: None,
            kinds: BTreeMap::new(),
        }
    }
}

/// What is done with one kind; what is left out is as for all kinds.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PiiKindActions {
    /// In requests.
    pub(crate) request: Option<PiiAction>,
    /// In answers.
    pub(crate) answer: Option<PiiAction>,
    /// In what is stored.
    pub(crate) record: Option<PiiAction>,
}
