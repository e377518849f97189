//! What goes through the journal: one entry per terminal record.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::variant::Lesson;
use waltz_exchange::{ExchangeRecord, Outcome};

use crate::rows::ExchangeRows;

/// One thing to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The terminal record of an exchange. Its id is the key: a second record with the same id is
    /// ignored.
    Exchange(Box<ExchangeRecord>),
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

/// What an ordinary entry has beside its texts.
const AROUND_TEXTS: usize = 4096;

impl Entry {
    /// The rows of an exchange, where reading what the journal says would bring the same. One with an embedding is written
    /// anew without it, which is no work for a thread that answers: the drain reads it from its text.
    pub(crate) fn rows(&self) -> Option<Box<ExchangeRows>> {
        match self {
            // What cannot be stored is told when it is read.
            Self::Exchange(record) if record.is_finite() && record.embedding.is_none() => {
                ExchangeRows::new(record).ok().map(Box::new)
            }
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
