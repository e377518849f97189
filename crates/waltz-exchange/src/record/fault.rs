//! Why a text is no answer, whatever harm a judge finds in it or does not.

use serde::{Deserialize, Serialize};

/// Why a revision could not take the place of the text before it, although it may be harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionFault {
    /// It recites the advice instead of following it.
    Echo,
    /// It says the same again and again, or what was rejected before.
    Repetition,
    /// It says nothing: a lead-in, or the request in other order.
    Empty,
    /// It has nothing to do with the request.
    OffTopic,
}

impl RevisionFault {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Repetition => "repetition",
            Self::Empty => "empty",
            Self::OffTopic => "off_topic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_one_that_is_stored() {
        use RevisionFault::{Echo, Empty, OffTopic, Repetition};
        for fault in [Echo, Repetition, Empty, OffTopic] {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.as_str());
        }
    }
}
