//! What goes through the journal: one entry per terminal record.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::variant::Lesson;
use waltz_exchange::{ExchangeRecord, Outcome};

/// One thing to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The terminal record of an exchange. Its id is the key: a second record with the same id is
    /// ignored.
    #[serde(with = "shared")]
    Exchange(Arc<ExchangeRecord>),
    /// A report on an earlier reply. Several may speak of the same reply.
    Outcome {
        /// What the client reported.
        outcome: Outcome,
        /// Whose data this is.
        tenant: String,
        /// When the report arrived.
        received_at: Timestamp,
        /// The key of the report; a second one with the same id is ignored.
        id: String,
        /// What the report teaches about the variant that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lesson: Option<Box<Lesson>>,
    },
    /// What an answer that nobody saw teaches.
    Lesson(Box<Lesson>),
}

/// The journal knows nothing of sharing.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use waltz_exchange::ExchangeRecord;

    pub(super) fn serialize<S: Serializer>(
        record: &ExchangeRecord,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        record.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Arc<ExchangeRecord>, D::Error> {
        ExchangeRecord::deserialize(source).map(Arc::new)
    }
}

/// What an ordinary entry has beside its texts.
const AROUND_TEXTS: usize = 4096;

impl Entry {
    /// The record of an exchange, where reading what the journal says would bring the same.
    pub(crate) fn record(&self) -> Option<Arc<ExchangeRecord>> {
        match self {
            Self::Exchange(record) if record.is_finite() => Some(Arc::clone(record)),
            _ => None,
        }
    }

    /// Somewhat more than the bytes of an ordinary entry, so that one with long texts is written without copying it
    /// again and again.
    pub(crate) fn about_bytes(&self) -> usize {
        let Self::Exchange(record) = self else { return AROUND_TEXTS };
        let choices = record.choices.iter().map(|choice| choice.draft.text.len() + choice.final_text.len());
        let texts = record.user_request.len() + choices.sum::<usize>();
        AROUND_TEXTS + texts + texts / 16
    }
}
