//! What happened after a reply, as the client reports it.

use serde::{Deserialize, Serialize};

/// A report on a reply that was given earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The id of the answer it speaks of.
    pub response_id: String,
    /// Whether the task succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Stars, 1 to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<u8>,
    /// Free words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Stars per candidate, where an answer had several choices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateRating>,
    /// A low-cardinality class such as `timeout` when the task failed. `infrastructure`, `network`, `rate_limit`,
    /// `timeout`, `unavailable` and `upstream` blame nobody's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// How long the task took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// A rating of one choice of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateRating {
    /// The choice's index.
    pub index: u32,
    /// Stars, 1 to 5.
    pub rating: u8,
}

impl Outcome {
    /// Everything that is wrong with the report, as `(field, what is allowed)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        let stars = 1..=5;
        if self.response_id.is_empty() || self.response_id.len() > 128 {
            mistakes.push(("response_id", "must be the id of an answer, 1 to 128 characters".to_owned()));
        }
        if self.rating.is_some_and(|rating| !stars.contains(&rating)) {
            mistakes.push(("rating", "must be a whole number from 1 to 5".to_owned()));
        }
        if self.candidates.iter().any(|candidate| !stars.contains(&candidate.rating)) {
            mistakes.push(("candidates", "each rating must be a whole number from 1 to 5".to_owned()));
        }
        if self.candidates.len() > 128 {
            mistakes.push(("candidates", "at most 128 candidates can be rated".to_owned()));
        }
        if self.comment.as_ref().is_some_and(|comment| comment.len() > 8192) {
            mistakes.push(("comment", "must be at most 8192 bytes".to_owned()));
        }
        if self.error_class.as_ref().is_some_and(|class| class.len() > 64 || class.contains(char::is_control))
        {
            mistakes.push(("error_class", "must be at most 64 bytes without control characters".to_owned()));
        }
        let says_nothing = self.success.is_none()
            && self.rating.is_none()
            && self.comment.is_none()
            && self.candidates.is_empty()
            && self.error_class.is_none();
        if says_nothing {
            mistakes.push((
                "success",
                "must be given, or one of rating, comment, candidates, error_class".to_owned(),
            ));
        }
        mistakes
    }

    /// Whether the report blames an upstream, the network or waltz itself, and not the answer.
    pub fn blames_infrastructure(&self) -> bool {
        const CLASSES: [&str; 6] =
            ["infrastructure", "network", "rate_limit", "timeout", "unavailable", "upstream"];
        self.success != Some(true)
            && self
                .error_class
                .as_deref()
                .is_some_and(|class| CLASSES.contains(&class.to_ascii_lowercase().as_str()))
    }

    /// The rating rescaled to 0..=1, or 0 when none was given, as the shaped score wants it.
    pub fn rating_share(&self) -> f32 {
        self.rating.map_or(0.0, |stars| (f32::from(stars) - 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_disturb_a_log_are_mistakes() {
        let report = |more: &str| -> Outcome {
            serde_json::from_str(&format!(r#"{{"response_id": "resp_1", "success": false, {more}}}"#))
                .unwrap()
        };
        let field = |outcome: Outcome| outcome.mistakes().first().map(|(field, _)| *field);
        for class in ["a\\u0000", "\\u001b[31m"] {
            assert_eq!(
                field(report(&format!(r#""error_class": "{class}""#))),
                Some("error_class"),
                "{class}"
            );
        }
        assert_eq!(field(report(r#""error_class": "no answer""#)), None);
    }
}
